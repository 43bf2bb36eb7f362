//! Somebody else's graph straight into the planner: no tensors of ours, only blocks with lifetimes.
//!
//!     cargo run --release -p steeve --example own_graph

use std::collections::HashMap;

use steeve::plan::{Align, Block, Bytes, Lifetime, Problem, Strategy, plan};

/// An instruction of a compiler that has its own words for everything.
struct Instruction {
    result: &'static str,
    bytes: u64,
    operands: &'static [&'static str],
}

const PROGRAM: &[Instruction] = &[
    Instruction { result: "image", bytes: 602_112, operands: &[] },
    Instruction { result: "conv1", bytes: 3_211_264, operands: &["image"] },
    Instruction { result: "pool1", bytes: 802_816, operands: &["conv1"] },
    Instruction { result: "branch_a", bytes: 802_816, operands: &["pool1"] },
    Instruction { result: "branch_b", bytes: 1_605_632, operands: &["pool1"] },
    Instruction { result: "squeeze", bytes: 401_408, operands: &["branch_b"] },
    Instruction { result: "joined", bytes: 1_204_224, operands: &["branch_a", "squeeze"] },
    Instruction { result: "logits", bytes: 4_000, operands: &["joined"] },
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A value lives from the step that makes it until just behind the last that reads it; the result to the end.
    let mut last: HashMap<&str, usize> = HashMap::new();
    for (step, instruction) in PROGRAM.iter().enumerate() {
        last.insert(instruction.result, step);
        for operand in instruction.operands {
            last.insert(operand, step);
        }
    }
    last.insert("logits", PROGRAM.len());
    let align = Align::new(64)?;
    let mut blocks = Vec::new();
    for (step, instruction) in PROGRAM.iter().enumerate() {
        let life = Lifetime::new(step as u64, last[instruction.result] as u64 + 1)?;
        blocks.push(Block::new(Bytes(instruction.bytes), life).aligned(align));
    }

    // One call: placed, certified, and measured against the lower bound.
    let plan = plan(Problem::new(blocks)?, &Strategy::Fast)?;
    for (instruction, place) in PROGRAM.iter().zip(plan.places()) {
        println!("{:>9} bytes at offset {:>9}  {}", instruction.bytes, place.offset, instruction.result);
    }
    let apart: u64 = PROGRAM.iter().map(|instruction| instruction.bytes).sum();
    let optimal = if plan.is_optimal() { ", and no plan needs less" } else { "" };
    println!("{} bytes instead of {apart}{optimal}", plan.peak());
    Ok(())
}
