//! Judges the record of a plan in a TFLite file: `check_tflite [in-place] [overlap] MODEL`. Fails if it is wrong.

use std::process::ExitCode;

use steeve_models::tflite::{GraphOptions, HeadRecord, KernelSet, Model, TfliteGraph, reference_scratch};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rest @ .., file] = arguments.as_slice() else {
        return Err("usage: check_tflite [in-place] [overlap] MODEL".into());
    };
    let set = |word: &str| if rest.iter().any(|it| it == word) { KernelSet::TflmReference } else { KernelSet::Any };
    let model = Model::read(std::fs::read(file)?)?;
    let Some(record) = HeadRecord::of(&model)? else { return Err("the file has no record".into()) };
    let options = GraphOptions::default().with_in_place(set("in-place")).with_overlap(set("overlap"));
    let graph = TfliteGraph::new(&model, options.with_scratch(reference_scratch(&model)))?;
    let report = graph.check_record(&record)?;
    report.faults.iter().for_each(|fault| println!("{fault}"));
    Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
