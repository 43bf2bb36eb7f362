//! Plans a TFLite file for TensorFlow Lite Micro: `plan_tflite MODEL PLANNED [in-place] [overlap]`.

use steeve_graph::{PlanOptions, Unread, plan_tensor_graph};
use steeve_models::tflite::{GraphOptions, KernelSet, Model, TfliteGraph, reference_scratch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, rest @ ..] = arguments.as_slice() else {
        return Err("usage: plan_tflite MODEL PLANNED [in-place] [overlap]".into());
    };
    let set = |word: &str| if rest.iter().any(|it| it == word) { KernelSet::TflmReference } else { KernelSet::Any };

    let model = Model::read(std::fs::read(from)?)?;
    let options = GraphOptions::default().with_in_place(set("in-place")).with_overlap(set("overlap"));
    let graph = TfliteGraph::new(&model, options.with_scratch(reference_scratch(&model)))?;
    let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free))?;
    let head = graph.head_plan(|key| plan.place(key).map(|place| place.offset))?;
    std::fs::write(to, model.with_record(&head.record)?)?;

    println!(
        "head: {} bytes, {} without a plan; {} tensors are left to the runtime",
        head.head, head.tflm_head, head.online
    );
    Ok(())
}
