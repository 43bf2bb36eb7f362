//! The plan of a graph as a block list with offsets (`-o plan.graph_csv`).

use std::collections::BTreeMap;

use steeve_graph::{IdVec, MemoryPlan, TensorId};
use steeve_plan::BlockId;
use steeve_plan::csv::Table;

use super::graph_file::GraphFile;
use super::solve_graph::SolvedGraph;
use crate::error::Error;

/// Formats the plan of a graph as CSV. Fails if tensors are in several memories.
pub(crate) fn graph_csv(graph: &GraphFile, solved: &SolvedGraph) -> Result<String, Error> {
    let used: Vec<&MemoryPlan> = solved.plan.memories().iter().filter(|it| !it.plan.places().is_empty()).collect();
    let file = graph.file.clone();
    let [memory] = used.as_slice() else {
        let why = format!(
            "{file}: cannot be written as CSV: expected tensors in one memory, got {}; write a .json",
            used.len()
        );
        return Err(Error::Usage(why));
    };
    let table = Table::of_plan(&memory.plan, unique_names(graph, memory));
    table.map(|table| table.to_string()).map_err(|source| Error::Table { file, source })
}

/// Returns a unique name for each block: shared names get the tensor's id as well.
fn unique_names(graph: &GraphFile, memory: &MemoryPlan) -> IdVec<BlockId, String> {
    let labels: Vec<String> = memory.tensors.iter().map(|tensor| graph.label(*tensor)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for label in &labels {
        *counts.entry(label).or_default() += 1;
    }
    let name = |(tensor, label): (&TensorId, &String)| match (counts.get(label.as_str()), graph.id(*tensor)) {
        (Some(2..), Some(id)) => format!("{label}#{id}"),
        _ => label.clone(),
    };
    memory.tensors.iter().zip(&labels).map(name).collect()
}
