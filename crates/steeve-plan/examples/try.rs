use std::time::Instant;
use steeve_plan::*;
fn load(p: &str) -> Problem {
    let s = std::fs::read_to_string(p).unwrap();
    let mut it = s.lines();
    let h: Vec<&str> = it.next().unwrap().split(',').collect();
    let c = |n: &str| h.iter().position(|x| *x == n).unwrap();
    let (a, b, z) = (c("lower"), c("upper"), c("size"));
    Problem::new(
        it.filter(|l| !l.is_empty())
            .map(|l| {
                let f: Vec<u64> = l.split(',').map(|x| x.trim().parse().unwrap_or(0)).collect();
                Block::new(Bytes(f[z]), Lifetime::new(f[a], f[b]).unwrap())
            })
            .collect::<Vec<_>>(),
    )
    .unwrap()
}
fn synth(n: usize) -> Problem {
    let mut s = 42u64;
    let mut r = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s.wrapping_mul(0x2545F4914F6CDD1D) >> 11) as f64 / (1u64 << 53) as f64
    };
    Problem::new(
        (0..n)
            .map(|i| {
                let u = r();
                let len = if u < 0.8 {
                    1 + (r() * 8.0) as u64
                } else if u < 0.97 {
                    1 + (r() * 200.0) as u64
                } else {
                    1 + (r() * (n as f64 / 2.0)) as u64
                };
                let sz = 256 * (1 + (2f64.powf(r() * 16.0)) as u64);
                Block::new(Bytes(sz), Lifetime::new(i as u64, i as u64 + len).unwrap())
            })
            .collect::<Vec<_>>(),
    )
    .unwrap()
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let mut tot = 0.0;
    for p in &a[2..] {
        let problem = if let Some(n) = p.strip_prefix("syn:") { synth(n.parse().unwrap()) } else { load(p) };
        let strat = match a[1].as_str() {
            "fast" => Strategy::Fast,
            "bf" => Strategy::BestFit,
            _ => {
                Strategy::Best(Best::new(Budget::Nodes(a[1].parse().unwrap())).with_threads(std::env::var("TH").map(|x|x.parse().unwrap()).unwrap_or(1)))
            }
        };
        let t = Instant::now();
        let o = place(&problem, &strat).unwrap();
        let e = t.elapsed();
        tot += e.as_secs_f64();
        let t = Instant::now();
        let plan = certify(problem.clone(), o.placement.clone()).unwrap();
        let c = t.elapsed();
        println!(
            "{:30} n={} {:?} ratio {:.5} nodes {} {:.2}ms certify {:.2}ms",
            p.rsplit('/').next().unwrap(),
            problem.blocks().len(),
            o.verdict,
            plan.peak().0 as f64 / plan.bound().bytes.0 as f64,
            o.nodes,
            e.as_secs_f64() * 1e3,
            c.as_secs_f64() * 1e3
        );
    }
    println!("total {:.1} ms", tot * 1e3);
}
