//! The picture of a caller's own graph: in the words of that graph.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use steeve_graph::{Bytes, PlanOptions, TensorGraph, plan_tensor_graph};
use steeve_view::{PageStyle, Picture, PlanMap, page};

/// What each instruction is called, and the instruction that it reads.
struct Program(Vec<(&'static str, Option<usize>)>);

impl TensorGraph for Program {
    type Key = usize;

    fn nodes(&self) -> impl Iterator<Item = usize> {
        0..self.0.len()
    }

    fn sources(&self, node: usize) -> impl Iterator<Item = usize> {
        self.0[node].1.into_iter()
    }

    fn size(&self, _tensor: usize) -> Bytes {
        Bytes(4096)
    }

    fn name(&self, tensor: usize) -> String {
        format!("value {tensor}")
    }

    fn op_name(&self, node: usize) -> &str {
        self.0[node].0
    }
}

#[test]
fn a_picture_has_the_names_of_the_callers_tensors() {
    let program = Program(vec![("Load", None), ("Conv", Some(0)), ("Relu", Some(1))]);
    let plan = plan_tensor_graph(&program, &PlanOptions::default()).unwrap();
    let map = PlanMap::of_graph("own", plan.graph_plan());
    assert_eq!(map.peak(), plan.peak());
    let names: Vec<&str> = map.memories[0].tiles.iter().map(|tile| tile.name.as_str()).collect();
    assert_eq!(names, ["value 0", "value 1", "value 2"]);
    let page = page(&Picture::of("own", map), &PageStyle::default());
    assert!(page.contains("value 1") && page.contains("conv"));
    let file = PlanMap::of_file("own", &plan.graph_plan().to_file());
    assert_eq!((file.peak(), file.memories[0].tiles.len()), (plan.peak(), 3));
}
