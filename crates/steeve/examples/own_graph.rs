//! An engine's own graph, planned as it is: one trait, and results by the engine's own keys.
//!
//!     cargo run --release -p steeve --example own_graph

use steeve::graph::{Bytes, PlanOptions, TensorGraph, plan_tensor_graph};

/// An instruction of an engine that has its own words for everything.
struct Instruction {
    result: &'static str,
    bytes: u64,
    operands: &'static [&'static str],
    in_place: bool,
}

const fn instruction(result: &'static str, bytes: u64, operands: &'static [&'static str]) -> Instruction {
    Instruction { result, bytes, operands, in_place: false }
}

const fn in_place(result: &'static str, bytes: u64, operands: &'static [&'static str]) -> Instruction {
    Instruction { result, bytes, operands, in_place: true }
}

struct Program(Vec<Instruction>);

impl Program {
    fn find(&self, result: &str) -> Option<&Instruction> {
        self.0.iter().find(|it| it.result == result)
    }
}

// What the planner has to know of it.
impl TensorGraph for Program {
    type Key = &'static str;

    fn nodes(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|it| it.result)
    }

    fn sources(&self, node: &'static str) -> impl Iterator<Item = &'static str> {
        self.find(node).into_iter().flat_map(|it| it.operands.iter().copied())
    }

    fn size(&self, tensor: &'static str) -> Bytes {
        Bytes(self.find(tensor).map_or(0, |it| it.bytes))
    }

    fn may_overwrite(&self, node: &'static str, _operand: &'static str) -> bool {
        self.find(node).is_some_and(|it| it.in_place)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = Program(vec![
        instruction("image", 602_112, &[]),
        instruction("conv1", 3_211_264, &["image"]),
        in_place("relu1", 3_211_264, &["conv1"]),
        instruction("pool1", 802_816, &["relu1"]),
        instruction("branch_a", 802_816, &["pool1"]),
        instruction("branch_b", 1_605_632, &["pool1"]),
        in_place("relu_b", 1_605_632, &["branch_b"]),
        instruction("squeeze", 802_816, &["relu_b"]),
        in_place("joined", 802_816, &["branch_a", "squeeze"]),
        in_place("relu2", 802_816, &["joined"]),
        instruction("logits", 4_000, &["relu2"]),
        in_place("softmax", 4_000, &["logits"]),
    ]);
    let plan = plan_tensor_graph(&program, &PlanOptions::default())?;
    plan.replay(&program)?; // a second checker, which knows no live ranges
    for (result, place) in plan.places() {
        let over = plan.overwrites(result).map_or(String::new(), |operand| format!(", over {operand}"));
        println!("{:>9} bytes at offset {:>9}  {result}{over}", place.size, place.offset);
    }
    let apart: u64 = program.0.iter().map(|it| it.bytes).sum();
    println!("{} bytes instead of {apart}", plan.peak());
    assert_eq!(plan.peak(), Bytes(3_211_264 + 802_816)); // `relu1` and `pool1`; no plan needs less
    Ok(())
}

#[test]
fn it_runs() {
    assert!(main().is_ok());
}
