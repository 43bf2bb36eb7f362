#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
use std::io::Read;
use std::path::*;
use steeve_graph::*;
fn files() -> Vec<PathBuf> { let mut v=vec![]; for d in ["arch","llm","multi","other"] { for e in std::fs::read_dir(Path::new("/work/shared/corpus/graphs").join(d)).unwrap() { v.push(e.unwrap().path()); } } v.sort(); v }
fn read(p:&Path)->Recorded{ let b=std::fs::read(p).unwrap(); let mut s=vec![]; flate2::read::GzDecoder::new(&b[..]).read_to_end(&mut s).unwrap(); Recorded::from_json_bytes(&s).unwrap() }
#[test] fn ggml_exact(){ let mut placed=0; let mut bad=0;
 for p in files(){ let r=read(&p); let a=ggml_answer(&r.assigned).unwrap();
  for (id,want) in r.answer.places.pairs(){ if let Some(w)=want { placed+=1; match &a.places[id] { Some(g) if g.memory==w.memory && g.place.buffer.index()==w.chunk as usize && g.place.offset==w.offset => {}, g => { bad+=1; if bad<10 { println!("{} {:?} want {:?} got {:?}",p.display(),id,w,g);} } } } }
  for (m,c) in r.answer.chunks.pairs(){ let o=r.assigned.owner(m); let got=&a.chunks[o]; let want:Vec<_>=c.iter().copied().collect(); if got!=&want { bad+=1; if bad<10 {println!("{} chunks {:?} {:?}",p.display(),want,got);} } }
  plan_graph(&r.assigned,&PlanOptions::new(GraphStrategy::Ggml)).unwrap();
 } println!("placed {placed} bad {bad}"); assert_eq!(bad,0); }
#[test] fn stats(){
 for (name,reuse) in [("ggml",Reuse::Ggml),("more",Reuse::More),("none",Reuse::None)]{
  let (mut above,mut mem,mut opt,mut lim)=(0,0,0,0); let mut logs:std::collections::BTreeMap<&str,(f64,usize)>=Default::default();
  let mut t=std::time::Duration::ZERO; let mut tg=t;
  for p in files(){ let r=read(&p); let n=p.display().to_string();
   let t0=std::time::Instant::now(); let plan=plan_graph(&r.assigned,&PlanOptions::new(GraphStrategy::Fast).with_reuse(reuse)).unwrap(); t+=t0.elapsed();
   let t0=std::time::Instant::now(); let _g=plan_graph(&r.assigned,&PlanOptions::new(GraphStrategy::Ggml)).unwrap(); tg+=t0.elapsed();
   for m in plan.memories(){ let want:u64=r.answer.chunks[m.memory].iter().map(|b|b.0).sum(); if want==0 {continue}
    mem+=1; let limited=r.assigned.memories()[m.memory].max_buffer.is_some_and(|l|l.0<want);
    if m.plan.peak().0>want {above+=1; if reuse!=Reuse::None {println!("above {} {} {} > {}",n,m.memory,m.plan.peak(),want);} }
    if m.verdict==Verdict::Optimal {opt+=1} else if limited {lim+=1} else if reuse!=Reuse::None { println!("not optimal {} mem {} {} bound {} ggml {}",n,m.memory,m.plan.peak(),m.plan.bound().bytes,want); }
    if limited && reuse==Reuse::Ggml { println!("limited {} {:?} ggml {:?}",n.rsplit('/').next().unwrap(),m.plan.buffers(),r.answer.chunks[m.memory]); }
    let l=(m.plan.peak().0 as f64/want as f64).ln();
    let mut add=|k|{let e=logs.entry(k).or_insert((0.0,0)); e.0+=l; e.1+=1;};
    if n.contains("/llm/")&&n.contains(".fa1.out1.pp"){add("llm fa1.out1.pp")} if !n.contains("/arch/"){add("llm+multi+other")} else {add("arch")} } }
  println!("{name}: memories {mem} above {above} optimal {opt} limited-not-optimal {lim} time fast {:?} ggml {:?}",t,tg); for (k,v) in logs{ println!("   {k}: {:.4} ({})",(v.0/v.1 as f64).exp(),v.1); } } }
