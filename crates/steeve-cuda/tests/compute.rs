//! Random graphs of all operations on each GPU there is: every node within tolerance of exact values, wherever its result
//! stands, and the same bits in every plan, launched one by one and captured.
//!
//! `STEEVE_PROOF=10000` asks for more of them, and `--nocapture` shows what was in them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;
mod proof;
#[path = "../../steeve-cpu/tests/reference/mod.rs"]
mod reference;

use std::collections::BTreeMap;

use gpu::devices;
use proof::{Where, computing, judge_node, judge_nodes, run_node, run_whole};
use reference::{Case, Census, FORMATS, Size, Sketch, Values, contents_of, named, random_case, ways};
use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Device};
use steeve_graph::{DataType, Op, Order, TensorId};

fn seeds(usual: u64) -> u64 {
    std::env::var("STEEVE_PROOF").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// What happened to the nodes of each operation and types.
#[derive(Default)]
struct Tally(BTreeMap<String, (usize, usize, f64)>);

impl Tally {
    fn note(&mut self, case: &Case, node: TensorId, used: Option<f64>) {
        let tensors = case.graph.tensors();
        let types: Vec<&str> =
            tensors.sources(node).iter().map(|id| id.map_or("-", |id| tensors[id].layout.dtype().name())).collect();
        let title = format!("{} {}", tensors.op_title(tensors[node].op), types.join(" "));
        let (ran, refused, worst) = self.0.entry(title).or_default();
        match used {
            Some(used) => (*ran, *worst) = (*ran + 1, worst.max(used)),
            None => *refused += 1,
        }
    }

    fn print(&self) {
        for (title, (ran, refused, worst)) in &self.0 {
            println!("{ran:>6} judged, {refused:>4} refused, {:>3.0}% of the tolerance  {title}", 100.0 * worst);
        }
    }
}

fn prove(backend: &dyn Backend, case: &Case, tally: &mut Tally) -> Result<(), String> {
    let mut is_whole = true;
    let memory = judge_nodes(backend, case, &mut |node, used| {
        is_whole &= used.is_some();
        tally.note(case, node, used);
    })?;
    if !is_whole {
        return Ok(());
    }
    let tensors = case.graph.tensors();
    for way in ways() {
        let ran = run_whole(backend, case, &way, 3).map_err(|error| format!("{}: {error}", way.name))?;
        let Some(outcomes) = ran else { continue };
        for (time, outcome) in outcomes.iter().enumerate() {
            for (id, bytes) in outcome.outputs.iter().chain(&outcome.externals) {
                if *bytes != memory.bytes(tensors, *id) {
                    let name = named(&case.graph, *id);
                    return Err(format!("{}, run {time}: {name} is another one than node by node", way.name));
                }
            }
        }
    }
    Ok(())
}

fn prove_seeds(count: u64, size: Size) {
    for device in devices() {
        let (backend, cpu, mut census, mut tally) =
            (device.backend().unwrap(), CpuBackend::new(1), Census::default(), Tally::default());
        for seed in 0..count {
            let case = random_case(seed, size, &cpu, &mut census);
            if let Err(what) = prove(&*backend, &case, &mut tally) {
                panic!("seed {seed}, {size:?}: {what}\n{}", case.text());
            }
        }
        tally.print();
    }
}

#[test]
fn every_node_is_right_and_every_plan_gives_the_same_bits() {
    prove_seeds(seeds(400), Size::Small);
}

#[test]
fn so_it_is_with_large_tensors() {
    prove_seeds(seeds(40).min(1000), Size::Large);
}

#[test]
fn a_result_that_covers_a_part_of_a_source_is_right_too() {
    for device in devices() {
        let (backend, cpu, mut census, mut tried) =
            (device.backend().unwrap(), CpuBackend::new(1), Census::default(), 0);
        for seed in 10_000..10_000 + seeds(150) {
            let case = random_case(seed, Size::Small, &cpu, &mut census);
            let (graph, tensors) = (&case.graph, case.graph.tensors());
            let mut memory = contents_of(&case);
            for node in computing(graph) {
                let supported = backend.supports(graph, node).is_ok() && !tensors[node].is_view();
                for slot in 0..graph.sources(node).len() {
                    if !supported || graph.sources(node)[slot].is_none() {
                        continue;
                    }
                    let fail = |what: String| -> ! {
                        panic!("seed {seed}, beside slot {slot}, {}: {what}\n{}", named(graph, node), case.text())
                    };
                    let made = run_node(&*backend, graph, node, &memory, Where::Beside(slot));
                    let made = made.unwrap_or_else(|error| fail(error.to_string()));
                    judge_node(tensors, &memory, node, &made).unwrap_or_else(|what| fail(what));
                    tried += 1;
                }
                memory.step(tensors, node);
            }
        }
        assert!(tried > 100, "only {tried} were tried");
    }
}

/// Products of every pair of types, with few columns and many, repeated planes, and strides that no library takes.
#[test]
fn products_of_all_types_and_strides_are_right() {
    use DataType::{Bf16, F16, F32};
    for device in devices() {
        let (backend, mut tally, mut seed) = (device.backend().unwrap(), Tally::default(), 0);
        let types = [F32, F16, Bf16].into_iter().chain(FORMATS);
        for (a, b) in types.flat_map(|a| [F32, F16, Bf16].map(|b| (a, b))) {
            for [k, m, n] in [[64, 70, 1], [512, 33, 3], [288, 16, 8], [96, 65, 9], [320, 130, 67], [1024, 5, 40]] {
                let k = u64::next_multiple_of(k, a.block_len());
                seed += 1;
                let mut sketch = Sketch::new(seed);
                let weights = sketch.external(a, &[k, m, 2], Values::Within(0.5)).unwrap();
                let x = sketch.input(b, &[k, n, 4, 2], Values::Within(1.0)).unwrap();
                // The same seen through another order of dimensions, without a copy.
                let y = sketch.input(b, &[k, 4, n], Values::Within(1.0)).unwrap();
                let y = sketch.context.permute(y, [0, 2, 1, 3]).unwrap();
                // And rows that do not stand side by side.
                let z = sketch.input(b, &[n, k], Values::Within(1.0)).unwrap();
                let z = sketch.context.transpose(z).unwrap();
                let c = &mut sketch.context;
                let outputs = [c.mul_mat(weights, x), c.mul_mat(weights, y)].map(Result::unwrap);
                let one = c.view_2d(weights, [k, m], c.tensor(weights).unwrap().layout.nb()[1], steeve_graph::Bytes(0));
                let last = c.mul_mat(one.unwrap(), z).unwrap();
                let case = sketch.case(&[outputs[0], outputs[1], last]).unwrap();
                if let Err(what) = prove(&*backend, &case, &mut tally) {
                    panic!("{a} {b} {k} {m} {n}: {what}");
                }
            }
        }
        tally.print();
        assert!(tally.0.values().all(|(_, refused, _)| *refused == 0), "products are refused");
    }
}

/// Experts, for few tokens and for many, of every format.
#[test]
fn products_with_experts_of_all_formats_are_right() {
    for device in devices() {
        let (backend, mut tally, mut seed) = (device.backend().unwrap(), Tally::default(), 500);
        for dtype in FORMATS {
            for [k, m, used, tokens] in [[96, 33, 2, 3], [512, 70, 3, 1], [256, 65, 4, 40]] {
                seed += 1;
                let k = u64::next_multiple_of(k, dtype.block_len());
                let mut sketch = Sketch::new(seed);
                let experts = sketch.external(dtype, &[k, m, 5], Values::Within(0.5)).unwrap();
                let x = sketch.input(DataType::F32, &[k, used, tokens], Values::Within(1.0)).unwrap();
                let ids = sketch.input(DataType::I32, &[used, tokens], Values::Below(5)).unwrap();
                let out = sketch.context.mul_mat_id(experts, x, ids).unwrap();
                let case = sketch.case(&[out]).unwrap();
                prove(&*backend, &case, &mut tally).unwrap_or_else(|what| panic!("{dtype} {k} {tokens}: {what}"));
            }
        }
        tally.print();
        assert!(tally.0.values().all(|(_, refused, _)| *refused == 0), "products are refused");
    }
}

/// Blocks as they are, as rows that ids name and as floats of each type; some rows of them, and across planes.
#[test]
fn blocks_of_all_formats_are_read_right() {
    use DataType::{Bf16, F16, F32};
    for device in devices() {
        let (backend, mut tally, mut seed) = (device.backend().unwrap(), Tally::default(), 600);
        for dtype in FORMATS {
            for row in [dtype.block_len(), 5 * dtype.block_len()] {
                seed += 1;
                let mut sketch = Sketch::new(seed);
                let a = sketch.external(dtype, &[row, 7, 2], Values::Within(2.0)).unwrap();
                let ids = sketch.input(DataType::I32, &[9, 2], Values::Below(7)).unwrap();
                let nb = sketch.layout(a).nb();
                let some = sketch.context.view_3d(a, [row, 4, 2], [nb[1], nb[2]], steeve_graph::Bytes(nb[1])).unwrap();
                let turned = sketch.context.permute(a, [0, 2, 1, 3]).unwrap();
                let mut outputs = vec![sketch.context.get_rows(a, ids).unwrap()];
                for (source, shape) in [(a, [row, 7, 2]), (some, [row, 4, 2]), (turned, [row, 2, 7])] {
                    for to in [F32, F16, Bf16] {
                        let place = sketch.input(to, &shape, Values::Within(1.0)).unwrap();
                        outputs.push(sketch.context.cpy(source, place).unwrap());
                    }
                }
                let case = sketch.case(&outputs).unwrap();
                prove(&*backend, &case, &mut tally).unwrap_or_else(|what| panic!("{dtype} {row}: {what}"));
                // Copies of the same type are the same bytes.
                let mut sketch = Sketch::new(seed);
                let a = sketch.external(dtype, &[row, 7, 2], Values::Within(2.0)).unwrap();
                let turned = sketch.context.permute(a, [0, 2, 1, 3]).unwrap();
                let copies = [sketch.context.dup(a).unwrap(), sketch.context.cont(turned).unwrap()];
                let case = sketch.case(&copies).unwrap();
                for (source, copy) in [a, turned].into_iter().zip(copies) {
                    let memory = contents_of(&case);
                    let made = run_node(&*backend, &case.graph, copy, &memory, Where::Apart).unwrap();
                    assert!(made == memory.bytes(case.graph.tensors(), source), "{dtype} {row}");
                }
            }
        }
        tally.print();
        assert!(tally.0.values().all(|(_, refused, _)| *refused == 0), "blocks are refused");
    }
}

/// Blocks are read in words of four bytes where their size allows it, and they may stand between those.
#[test]
fn blocks_that_stand_between_words_are_read_right() {
    for device in devices() {
        let (backend, mut tally) = (device.backend().unwrap(), Tally::default());
        for dtype in FORMATS.into_iter().filter(|dtype| dtype.block_bytes().is_multiple_of(2)) {
            let mut sketch = Sketch::new(700);
            let all = sketch.external(dtype, &[256, 7], Values::Within(1.0)).unwrap();
            let x = sketch.input(DataType::F32, &[256, 2], Values::Within(1.0)).unwrap();
            let ids = sketch.input(DataType::I32, &[2], Values::Below(6)).unwrap();
            // Two bytes that are no part of it come first.
            let bytes = &mut sketch.contents[0].1;
            bytes.rotate_right(2);
            let row = sketch.layout(all).nb()[1];
            let c = &mut sketch.context;
            let askew = c.view_2d(all, [256, 6], row, steeve_graph::Bytes(2)).unwrap();
            let outputs = [c.mul_mat(askew, x), c.get_rows(askew, ids)].map(Result::unwrap);
            let case = sketch.case(&outputs).unwrap();
            prove(&*backend, &case, &mut tally).unwrap_or_else(|what| panic!("{dtype}: {what}"));
        }
        assert!(tally.0.values().all(|(_, refused, _)| *refused == 0), "blocks are refused");
    }
}

/// What is not supported is refused by name: nothing is rounded to the formats of weights, and no cache has them.
#[test]
fn nothing_is_rounded_to_the_formats_of_weights() {
    for device in devices() {
        let backend = device.backend().unwrap();
        let mut sketch = Sketch::new(1);
        let floats = sketch.input(DataType::F32, &[256, 2], Values::Within(1.0)).unwrap();
        let place = sketch.external(DataType::Q4K, &[256, 2], Values::Within(1.0)).unwrap();
        let ids = sketch.input(DataType::I64, &[2], Values::Distinct(2)).unwrap();
        let copied = sketch.context.cpy(floats, place).unwrap();
        let set = sketch.context.set_rows(place, floats, ids).unwrap();
        let case = sketch.case(&[copied, set]).unwrap();
        for node in [copied, set] {
            let error = backend.supports(&case.graph, node).unwrap_err().to_string();
            assert!(error.contains("q4_K"), "{error}");
        }
    }
}

/// Numbers whose squares no f32 holds, in rows that fit into registers and in rows that stand askew.
#[test]
fn norms_of_very_large_and_very_small_numbers_are_right() {
    for device in devices() {
        let (backend, mut tally, mut seed) = (device.backend().unwrap(), Tally::default(), 200);
        for dtype in [DataType::F32, DataType::Bf16] {
            for (most, epsilon) in [(1e18, 1e-5), (1e20, 1e-5), (1e-20, 0.0)] {
                for n in [4, 64, 1000, 4096, 16_384, 20_000] {
                    seed += 1;
                    let mut sketch = Sketch::new(seed);
                    let a = sketch.input(dtype, &[n + 2, 3], Values::Within(most)).unwrap();
                    let b = sketch.input(dtype, &[n, 3], Values::Within(most)).unwrap();
                    let c = &mut sketch.context;
                    let (row, size) = (c.tensor(a).unwrap().layout.nb()[1], dtype.block_bytes());
                    let askew = c.view_2d(a, [n, 3], row, steeve_graph::Bytes(size)).unwrap();
                    let mut outputs = Vec::new();
                    for x in [b, askew] {
                        outputs.extend([c.norm(x, epsilon), c.rms_norm(x, epsilon), c.l2_norm(x, epsilon)]);
                    }
                    let outputs: Vec<TensorId> = outputs.into_iter().map(Result::unwrap).collect();
                    let case = sketch.case(&outputs).unwrap();
                    prove(&*backend, &case, &mut tally).unwrap_or_else(|what| panic!("{dtype} {most} {n}: {what}"));
                }
            }
        }
        tally.print();
        assert!(tally.0.values().all(|(_, refused, _)| *refused == 0), "norms are refused");
    }
}

/// Sums that one block would be slow at: of everything and of long rows, in a line and across it, of whole numbers too.
#[test]
fn sums_of_many_elements_are_right_and_the_same_each_time() {
    for device in devices() {
        let (backend, mut tally, mut seed) = (device.backend().unwrap(), Tally::default(), 300);
        for dtype in [DataType::F32, DataType::F16, DataType::Bf16, DataType::I32] {
            for shape in [[1, 1, 1], [8193, 1, 1], [300_001, 3, 1], [70, 900, 5]] {
                seed += 1;
                let mut sketch = Sketch::new(seed);
                let values = if dtype == DataType::I32 { Values::Below(90) } else { Values::Within(1.0) };
                let a = sketch.input(dtype, &shape, values).unwrap();
                let c = &mut sketch.context;
                let turned = c.permute(a, [1, 2, 0, 3]).unwrap();
                let mut outputs = Vec::new();
                for x in [a, turned] {
                    outputs.extend([c.apply(Op::Sum, &[Some(x)], &[]), c.apply(Op::SumRows, &[Some(x)], &[])]);
                    if dtype != DataType::I32 {
                        outputs.push(c.apply(Op::Mean, &[Some(x)], &[]));
                    }
                }
                let outputs: Vec<TensorId> = outputs.into_iter().map(Result::unwrap).collect();
                let case = sketch.case(&outputs).unwrap();
                prove(&*backend, &case, &mut tally).unwrap_or_else(|what| panic!("{dtype} {shape:?}: {what}"));
            }
        }
        tally.print();
    }
}

#[test]
fn sums_of_whole_numbers_wrap_around() {
    for device in devices() {
        let backend = device.backend().unwrap();
        for n in [7, 100_000] {
            let mut sketch = Sketch::new(1);
            let a = sketch.input(DataType::I32, &[n], Values::Below(9)).unwrap();
            let numbers: Vec<i32> = (0..n as i32).map(|i| i32::MAX - 5 * i).collect();
            sketch.contents[0].1 = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
            let sum = sketch.context.apply(Op::Sum, &[Some(a)], &[]).unwrap();
            let case = sketch.case(&[sum]).unwrap();
            if backend.supports(&case.graph, sum).is_err() {
                continue;
            }
            let made = run_node(&*backend, &case.graph, sum, &contents_of(&case), Where::Apart).unwrap();
            let wanted = numbers.iter().fold(0i32, |sum, it| sum.wrapping_add(*it));
            assert_eq!(made, wanted.to_le_bytes(), "{n} numbers");
        }
    }
}

/// What stands in the memory of a row, so that many are equal: numbers, both zeros, infinities and what is none.
fn crowded(dtype: DataType, sketch: &mut Sketch, count: u64) -> (Vec<f64>, Vec<u8>) {
    let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN];
    let (mut values, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let value = match sketch.choices.below(8) {
            0 if dtype != DataType::I32 => special[sketch.choices.below(special.len())],
            _ => sketch.choices.below(4001) as f64 - 2000.0,
        };
        // Whole numbers of this size are exact but for bf16.
        match dtype {
            DataType::I32 => bytes.extend((value as i32).to_le_bytes()),
            DataType::F32 => bytes.extend((value as f32).to_le_bytes()),
            DataType::F16 => bytes.extend(half::f16::from_f64(value).to_le_bytes()),
            _ => bytes.extend(half::bf16::from_f64(value).to_le_bytes()),
        }
        values.push(if dtype == DataType::Bf16 { half::bf16::from_f64(value).to_f64() } else { value });
    }
    (values, bytes)
}

/// In the order of the numbers: what is none comes last, zeros are equal, and equal ones stay in order.
fn sorted(row: &[f64], order: Order) -> Vec<i32> {
    use std::cmp::Ordering;
    let compare = |x: f64, y: f64| match (x.is_nan(), y.is_nan()) {
        (false, false) => x.partial_cmp(&y).unwrap_or(Ordering::Equal),
        (x, y) => x.cmp(&y),
    };
    let mut ids: Vec<i32> = (0..row.len() as i32).collect();
    ids.sort_by(|i, j| {
        let (x, y) = (row[*i as usize], row[*j as usize]);
        if order == Order::Ascending { compare(x, y) } else { compare(y, x) }
    });
    ids
}

#[test]
fn rows_of_any_length_are_sorted() {
    for device in devices() {
        let (backend, mut seed) = (device.backend().unwrap(), 400);
        for dtype in [DataType::F32, DataType::F16, DataType::Bf16, DataType::I32] {
            for (n, rows) in
                [1, 2, 31, 1000, 1024, 1025, 2048, 2049, 5000, 300_000].map(|n| (n, if n < 9 { 40 } else { 3 }))
            {
                seed += 1;
                let mut sketch = Sketch::new(seed);
                let dense = sketch.input(dtype, &[n, rows], Values::Below(9)).unwrap();
                let turned = sketch.input(dtype, &[rows, n], Values::Below(9)).unwrap();
                let numbers: Vec<Vec<f64>> = (0..2)
                    .map(|leaf| {
                        let (values, bytes) = crowded(dtype, &mut sketch, n * rows);
                        sketch.contents[leaf].1 = bytes;
                        values
                    })
                    .collect();
                let turned = sketch.context.transpose(turned).unwrap();
                let (n, rows) = (n as usize, rows as usize);
                let row_of = |which: usize, row: usize| -> Vec<f64> {
                    let at = |i: usize| if which == 0 { row * n + i } else { i * rows + row };
                    (0..n).map(|i| numbers[which][at(i)]).collect()
                };
                let mut wanted = Vec::new();
                for (which, source) in [dense, turned].into_iter().enumerate() {
                    for order in [Order::Ascending, Order::Descending] {
                        let node = sketch.context.argsort(source, order).unwrap();
                        let rows: Vec<Vec<i32>> = (0..rows).map(|row| sorted(&row_of(which, row), order)).collect();
                        if order == Order::Descending {
                            for k in [1, n.min(2), n.min(7), n.div_ceil(2)] {
                                let largest = sketch.context.top_k(source, k as u64).unwrap();
                                wanted.push((largest, rows.iter().flat_map(|row| row[..k].to_vec()).collect()));
                            }
                        }
                        wanted.push((node, rows.concat()));
                    }
                }
                let outputs: Vec<TensorId> = wanted.iter().map(|(node, _)| *node).collect();
                let case = sketch.case(&outputs).unwrap();
                let memory = contents_of(&case);
                for (node, ids) in wanted {
                    let made = run_node(&*backend, &case.graph, node, &memory, Where::Apart).unwrap();
                    let made: Vec<i32> = made.as_chunks().0.iter().map(|it| i32::from_le_bytes(*it)).collect();
                    let at = made.iter().zip(&ids).position(|(a, b)| a != b);
                    assert_eq!(at, None, "{dtype} {n}: {} differs", named(&case.graph, node));
                    assert_eq!(made.len(), ids.len());
                }
            }
        }
    }
}

/// More elements than are merged at a time.
#[test]
fn many_rows_are_sorted_some_at_a_time() {
    for device in devices() {
        let backend = device.backend().unwrap();
        let (n, rows, k) = (2100, 8100, 5);
        let mut sketch = Sketch::new(800);
        let a = sketch.input(DataType::F32, &[n, rows], Values::Below(9)).unwrap();
        let (values, bytes) = crowded(DataType::F32, &mut sketch, n * rows);
        sketch.contents[0].1 = bytes;
        let order = sketch.context.argsort(a, Order::Descending).unwrap();
        let largest = sketch.context.top_k(a, k).unwrap();
        let case = sketch.case(&[order, largest]).unwrap();
        let memory = contents_of(&case);
        let ids_of = |node: TensorId| -> Vec<i32> {
            let made = run_node(&*backend, &case.graph, node, &memory, Where::Apart).unwrap();
            made.as_chunks().0.iter().map(|it| i32::from_le_bytes(*it)).collect()
        };
        let (n, k, orders, largest) = (n as usize, k as usize, ids_of(order), ids_of(largest));
        for (row, values) in values.chunks(n).enumerate() {
            let wanted = sorted(values, Order::Descending);
            assert!(orders[row * n..][..n] == wanted, "row {row}");
            assert_eq!(largest[row * k..][..k], wanted[..k], "row {row}");
        }
    }
}

/// Longer keys than one block takes, grouped heads, masks, every type of cache.
#[test]
fn attention_over_many_keys_is_right() {
    use steeve_graph::FlashAttention;
    for device in devices() {
        let (backend, mut tally, mut seed) = (device.backend().unwrap(), Tally::default(), 100);
        for dtype in [DataType::F32, DataType::F16, DataType::Bf16, DataType::Q8_0, DataType::Q4_0] {
            let sizes = [[64, 1000, 1], [128, 700, 2], [32, 300, 17], [96, 5, 3], [256, 130, 1], [512, 140, 2]];
            let long = [[128, 9000, 1], [64, 9000, 3]];
            for [d, keys, tokens] in sizes.into_iter().chain(long) {
                seed += 1;
                let mut sketch = Sketch::new(seed);
                let q = sketch.input(DataType::F32, &[d, tokens, 4], Values::Within(1.0)).unwrap();
                let k = sketch.external(dtype, &[d, keys, 2], Values::Within(1.0)).unwrap();
                let v = sketch.external(dtype, &[d, keys, 2], Values::Within(1.0)).unwrap();
                let mask = sketch.input(DataType::F16, &[keys, tokens], Values::Hiding(2.0)).unwrap();
                let numbers = FlashAttention { scale: 0.1, ..FlashAttention::default() };
                let out = sketch.context.flash_attn_ext(q, k, v, Some(mask), numbers).unwrap();
                let case = sketch.case(&[out]).unwrap();
                if let Err(what) = prove(&*backend, &case, &mut tally) {
                    panic!("{dtype} {d} {keys} {tokens}: {what}");
                }
            }
        }
        tally.print();
    }
}

/// A mask of f16: zeros, and minus infinity where `hides` of a token and a key.
fn mask_of(keys: u64, tokens: u64, hides: impl Fn(u64, u64) -> bool) -> Vec<u8> {
    let all = (0..tokens).flat_map(|token| (0..keys).map(move |key| (token, key)));
    all.flat_map(|(token, key)| (0xfc00 * u16::from(hides(token, key))).to_le_bytes()).collect()
}

/// Prompts: as many queries as tensor cores are for, of all sizes of heads, with every kind of mask.
#[test]
fn attention_of_many_queries_is_right() {
    use steeve_graph::FlashAttention;
    for device in devices() {
        let (backend, mut tally, mut seed) = (device.backend().unwrap(), Tally::default(), 200);
        // Elements of keys and of values, keys, tokens, heads of keys, outer.
        let sizes = [
            [64, 64, 200, 70, 2, 1],
            [80, 80, 129, 40, 1, 2],
            [96, 96, 64, 33, 2, 1],
            [128, 128, 330, 60, 2, 1],
            [128, 128, 1100, 17, 1, 1],
            [128, 64, 1, 64, 2, 1],
            [40, 128, 130, 65, 3, 1],
            [256, 256, 70, 70, 4, 2],
            [192, 128, 33, 70, 4, 2],
        ];
        for (dtype, [d, dv, keys, tokens, groups, outer]) in
            [DataType::F16, DataType::Bf16].into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size)))
        {
            for (kind, softcap) in [("none", 0.0), ("causal", 0.0), ("hiding", 3.0), ("bias", 0.0)] {
                seed += 1;
                let (mut sketch, heads) = (Sketch::new(seed), 2 * groups);
                let q = sketch.input(DataType::F32, &[d, tokens, heads, outer], Values::Within(1.0)).unwrap();
                let k = sketch.external(dtype, &[d, keys, groups, outer], Values::Within(1.0)).unwrap();
                let v = sketch.external(dtype, &[dv, keys, groups, outer], Values::Within(1.0)).unwrap();
                let mask = match kind {
                    "none" => None,
                    "causal" => {
                        let mask = sketch.input(DataType::F16, &[keys, tokens], Values::Same(0.0)).unwrap();
                        // Tokens at the end of all keys, each of which sees those up to its own.
                        let hides = |token, key| key + tokens > keys + token;
                        sketch.contents.last_mut().unwrap().1 = mask_of(keys, tokens, hides);
                        Some(mask)
                    }
                    "hiding" => Some(sketch.input(DataType::F16, &[keys, tokens], Values::Hiding(2.0)).unwrap()),
                    _ => {
                        let shape = [keys, tokens + 3, heads, outer];
                        Some(sketch.input(DataType::F16, &shape, Values::Hiding(2.0)).unwrap())
                    }
                };
                let max_bias = if kind == "bias" { 8.0 } else { 0.0 };
                let numbers = FlashAttention { scale: 0.1, max_bias, softcap };
                let out = sketch.context.flash_attn_ext(q, k, v, mask, numbers).unwrap();
                let case = sketch.case(&[out]).unwrap();
                if let Err(what) = prove(&*backend, &case, &mut tally) {
                    panic!("{dtype} {d} {dv} {keys} {tokens}, {kind}: {what}");
                }
            }
        }
        tally.print();
    }
}

/// What is hidden may be no number, and sinks count: beside the processor, with keys and values that are all numbers there.
#[test]
fn what_is_hidden_from_a_query_never_reaches_it() {
    const D: u64 = 128;
    let floats = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)).collect::<Vec<f32>>();
    for device in devices() {
        let (backend, cpu) = (device.backend().unwrap(), CpuBackend::new(2));
        for (dtype, [keys, tokens, unwritten, poisoned]) in
            [DataType::F16, DataType::Bf16].into_iter().flat_map(|dtype| {
                // All keys behind some were never written; one that a few tokens see is no number.
                [[200, 70, 20, 0], [130, 130, 1, 80], [1400, 40, 600, 0], [1400, 40, 0, 1370]].map(|it| (dtype, it))
            })
        {
            let mut sketch = Sketch::new(keys);
            let q = sketch.input(DataType::F32, &[D, tokens, 4], Values::Within(1.0)).unwrap();
            let k = sketch.external(dtype, &[D, keys, 2], Values::Within(1.0)).unwrap();
            let v = sketch.external(dtype, &[D, keys, 2], Values::Within(1.0)).unwrap();
            let mask = sketch.input(DataType::F16, &[keys, tokens], Values::Same(0.0)).unwrap();
            let seen = keys - unwritten;
            let hides = |token: u64, key: u64| key >= seen || key + tokens > seen + token;
            sketch.contents.last_mut().unwrap().1 = mask_of(keys, tokens, hides);
            let sinks = sketch.external(DataType::F32, &[4], Values::Within(3.0)).unwrap();
            let sources = [q, k, v, mask, sinks].map(Some);
            let numbers = [0.1, 0.0, 0.0].map(steeve_graph::Param::Float);
            let out = sketch.context.apply(Op::FlashAttnExt, &sources, &numbers).unwrap();
            let mut case = sketch.case(&[out]).unwrap();
            let wanted = run_node(&cpu, &case.graph, out, &contents_of(&case), Where::Apart).unwrap();
            for (id, bytes) in case.contents.iter_mut().filter(|(id, _)| [k, v].contains(id)) {
                for (number, row) in bytes.chunks_mut(2 * D as usize).enumerate() {
                    let key = number as u64 % keys;
                    if key >= seen || key == poisoned && poisoned > 0 && *id == v {
                        row.fill(0xFF);
                    }
                }
            }
            let made = run_node(&*backend, &case.graph, out, &contents_of(&case), Where::Apart).unwrap();
            for (index, (made, wanted)) in floats(&made).into_iter().zip(floats(&wanted)).enumerate() {
                let token = index as u64 / (4 * D);
                let right = match poisoned > 0 && !hides(token, poisoned) {
                    true => made.is_nan(),
                    false => (made - wanted).abs() < 2e-6,
                };
                assert!(right, "{dtype} {keys} {tokens}: element {index} is {made} and should be {wanted}");
            }
        }
    }
}

/// A row that does not exist is an error with a name when somebody waits, and everything goes on behind it.
#[test]
fn what_data_shows_to_be_wrong_is_reported_and_over() {
    for device in devices() {
        let backend = device.backend().unwrap();
        let mut sketch = Sketch::new(1);
        let rows = sketch.input(DataType::F32, &[8, 4], Values::Within(1.0)).unwrap();
        let ids = sketch.input(DataType::I32, &[3], Values::Same(4.0)).unwrap();
        let taken = sketch.context.get_rows(rows, ids).unwrap();
        sketch.context.set_name(taken, "taken").unwrap();
        let case = sketch.case(&[taken]).unwrap();
        let error = run_node(&*backend, &case.graph, taken, &contents_of(&case), Where::Apart).unwrap_err().to_string();
        assert!(error.contains("taken") && error.contains("id 4"), "{error}");
        backend.synchronise().unwrap();
        let mut right = Case { contents: case.contents.clone(), ..case };
        right.contents[1].1 = [3i32, 0, 3].iter().flat_map(|id| id.to_le_bytes()).collect();
        let made = run_node(&*backend, &right.graph, taken, &contents_of(&right), Where::Apart).unwrap();
        judge_node(right.graph.tensors(), &contents_of(&right), taken, &made).unwrap();
        assert_eq!(right.graph.tensor(taken).op, Op::GetRows);
    }
}
