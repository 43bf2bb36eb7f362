//! Writes random models in which `IF` calls subgraphs, once and several times: `random_calls FOLDER COUNT`.
//!
//! For each there are `NUMBER.tflite` without a plan and `NUMBER.planned` with one. Prints "NUMBER HEAD HEAD": what TensorFlow Lite
//! Micro takes by itself and with the plan, by our simulation. `proofs/tflite.py` prints what it really takes.

use std::path::Path;

use steeve_graph::fuzz::Choices;
use steeve_graph::{PlanOptions, Unread, plan_tensor_graph};
use steeve_models::tflite::{BuiltinOp, DataType, GraphOptions, KernelSet, Model, Options, SmallModel, TfliteGraph};

/// Adds operators on vectors of `count` numbers to a subgraph. Those of the first subgraph call the others.
fn fill(model: &mut SmallModel, choices: &mut Choices<'_>, subgraph: usize, count: i32, callees: &[usize]) {
    let x = model.tensor(subgraph, "x", DataType::FLOAT32, &[count]);
    let (mut known, mut inputs) = (vec![x], vec![x]);
    let condition = (subgraph == 0).then(|| model.tensor(0, "condition", DataType::BOOL, &[]));
    inputs.extend(condition);
    for number in 0..choices.below(6) + 2 {
        let y = model.tensor(subgraph, &format!("y{number}"), DataType::FLOAT32, &[count]);
        let source = known[choices.below(known.len())];
        match (choices.below(4), condition) {
            (0, _) => {
                let other = known[choices.below(known.len())];
                model.operator(subgraph, BuiltinOp::ADD, &[source, other], &[y], Options::Other);
            }
            (1, Some(condition)) => {
                let mut callee = || i32::try_from(callees[choices.below(callees.len())]).unwrap_or(1);
                let options = Options::If { then_subgraph: callee(), else_subgraph: callee() };
                model.operator(subgraph, BuiltinOp::IF, &[condition, source], &[y], options);
            }
            _ => {
                model.operator(subgraph, BuiltinOp::RELU, &[source], &[y], Options::Other);
            }
        }
        known.push(y);
    }
    let output = known[known.len() - 1 - choices.below(2)];
    model.io(subgraph, &inputs, &[output]);
}

fn random_calls(choices: &mut Choices<'_>) -> SmallModel {
    let count = 4 + 4 * i32::try_from(choices.below(30)).unwrap_or(0);
    let mut model = SmallModel::new();
    let callees: Vec<usize> = (0..choices.below(3) + 1).map(|_| model.subgraph()).collect();
    for subgraph in callees.iter().copied().chain([0]) {
        fill(&mut model, choices, subgraph, count, &callees);
    }
    model
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, count] = arguments.as_slice() else { return Err("usage: random_calls FOLDER COUNT".into()) };
    for number in 0..count.parse()? {
        let model = Model::read(random_calls(&mut Choices::from_seed(number)).to_bytes())?;
        let kernels = KernelSet::TflmReference;
        let graph = TfliteGraph::new(&model, GraphOptions::default().with_in_place(kernels).with_overlap(kernels))?;
        let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free))?;
        let head = graph.head_plan(|key| plan.place(key).map(|place| place.offset))?;
        std::fs::write(Path::new(folder).join(format!("{number}.tflite")), model.bytes())?;
        std::fs::write(Path::new(folder).join(format!("{number}.planned")), model.with_record(&head.record)?)?;
        println!("{number} {} {}", head.tflm_head, head.head);
    }
    Ok(())
}
