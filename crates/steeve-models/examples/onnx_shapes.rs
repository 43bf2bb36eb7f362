//! Prints type and shape of each value of ONNX models, plans each model, and replays the plan.
//!
//! `onnx_shapes MODEL [NAME=SIZE]...` for one; without arguments for as many as there are lines on the standard input, with tabs
//! between the words and an empty line after each answer. A line `TYPE[DIMS]<tab>NAME` for each value, and at the end
//! `plan<tab>PEAK<tab>NOT_IN_PLACE<tab>BOUND<tab>NODES<tab>WEIGHTS<tab>COMPUTED<tab>READ_US<tab>PLAN_US`, or `error<tab>WHY`.
#![allow(clippy::unwrap_used)]

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

use steeve_graph::{KeyedGraph, PlanOptions, Reuse, TensorGraph, Unread, plan_graph, replay};
use steeve_models::onnx::{DimSizes, Model, OnnxGraph};

fn main() {
    let mut out = std::io::stdout().lock();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.is_empty() {
        answer(&args.iter().map(String::as_str).collect::<Vec<_>>(), &mut out);
        return;
    }
    for line in std::io::stdin().lock().lines() {
        answer(&line.unwrap().split('\t').collect::<Vec<_>>(), &mut out);
        writeln!(out).unwrap();
        out.flush().unwrap();
    }
}

fn answer(words: &[&str], out: &mut impl Write) {
    match shapes(words) {
        Ok(text) => writeln!(out, "{text}").unwrap(),
        Err(error) => writeln!(out, "error\t{}", steeve_graph::ErrorChain(&*error)).unwrap(),
    }
}

fn shapes(words: &[&str]) -> Result<String, Box<dyn Error>> {
    let (path, dims) = words.split_first().ok_or("expected a model")?;
    let dim = |word: &&str| {
        let (name, size) = word.rsplit_once('=').ok_or("expected NAME=SIZE")?;
        Ok::<_, Box<dyn Error>>((name.to_owned(), size.parse()?))
    };
    let dims = DimSizes::new(dims.iter().map(dim).collect::<Result<Vec<_>, _>>()?)?;
    let start = Instant::now();
    let graph = OnnxGraph::new(&Model::read(&std::fs::read(path)?)?, &dims)?;
    let read = start.elapsed();
    let mut lines: Vec<String> = graph.layouts().map(|(name, layout)| format!("{layout}\t{name}")).collect();
    let options = PlanOptions::default().with_unread(Unread::Free);
    let start = Instant::now();
    let keyed = KeyedGraph::new(&graph)?;
    let plan = plan_graph(keyed.assigned(), &options)?;
    let planned = start.elapsed();
    let plain = plan_graph(keyed.assigned(), &options.with_reuse(Reuse::None))?;
    for plan in [&plan, &plain] {
        replay(keyed.assigned(), &plan.places())?;
    }
    let bound: u64 = plan.memories().iter().map(|memory| memory.at_least.get()).sum();
    let weights = graph.weights();
    let (nodes, read, planned) = (graph.nodes().count(), read.as_micros(), planned.as_micros());
    let figures = [plan.peak().get(), plain.peak().get(), bound, nodes as u64, weights.stored, weights.computed];
    let figures: Vec<String> = figures.iter().map(u64::to_string).collect();
    lines.push(format!("plan\t{}\t{read}\t{planned}", figures.join("\t")));
    Ok(lines.join("\n"))
}
