//! `If`, and what all nodes with graphs inside have in common: one step, with the peak of the graphs inside it.
//!
//! A branch writes its outputs to the results of the step. Values around it that a graph reads are sources of the step. A branch whose
//! condition is known is computed in the place of the step.

use super::error::OnnxError;
use super::fact::{Fact, ListFact};
use super::known_sizes::Blame;
use super::model::{AttributeValue, Graph, Node};
use super::program::{OutputMemory, Program, ProgramGraph, Step, ValueId, ValueKind};
use super::scope::Scope;
use super::walk::Walk;

/// What is known of a node with graphs once these are walked through.
pub(super) struct GraphStep {
    /// What is known of its results.
    pub(super) facts: Vec<Fact>,
    /// The bytes that the graphs need while it runs.
    pub(super) inner: u64,
    /// What it reads, itself and in its graphs.
    pub(super) sources: Vec<ValueId>,
}

impl<'m> Walk<'m> {
    /// Computes a node that has graphs.
    pub(super) fn subgraphs(
        &mut self,
        node: &'m Node,
        scope: &mut Scope<'m, '_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), OnnxError> {
        self.budget.enter(|| node.title())?;
        let step = match node.op_type.as_str() {
            "If" => self.branches(node, scope, steps)?,
            "Loop" => Some(self.turns(node, scope)?),
            _ => Some(self.scan(node, scope)?),
        };
        self.budget.leave();
        step.map_or(Ok(()), |step| self.push_step(node, step, scope, steps))
    }

    /// Walks through both branches; none is left for a step if it is known which one runs.
    fn branches(
        &mut self,
        node: &'m Node,
        scope: &mut Scope<'m, '_>,
        steps: &mut Vec<Step>,
    ) -> Result<Option<GraphStep>, OnnxError> {
        let inputs = self.inputs(node, scope)?;
        let [Some(condition), ..] = inputs.as_slice() else {
            return Err(OnnxError::Shape { node: node.title(), what: "the condition is missing".to_owned() });
        };
        let graphs = [graph_attribute(node, "then_branch")?, graph_attribute(node, "else_branch")?];
        let known = self.values[*condition].fact.elements.as_ref().and_then(|it| it.float(0));
        if let Some(condition) = known {
            self.branch(node, graphs[usize::from(condition == 0.0)], scope, steps)?;
            return Ok(None);
        }
        let mut merged: Vec<Option<Fact>> = vec![None; node.outputs.len()];
        let (mut inner, mut sources) = (0, vec![*condition]);
        let mut refused = false;
        for graph in graphs {
            let (unknown, free) = (self.unknown.len(), self.free.len());
            let (depth, calls) = (self.budget.depth, self.calls.len());
            let (mut program, outputs) = match self.graph(graph, &[], Some(scope)) {
                // A branch that contradicts the sizes that are given is not the one that runs with them.
                Err(OnnxError::Shape { .. }) if !refused => {
                    self.budget.depth = depth;
                    self.calls.truncate(calls);
                    self.unknown.truncate(unknown);
                    for dim in self.free.split_off(free) {
                        self.dim_names.remove(&dim.name);
                    }
                    refused = true;
                    continue;
                }
                walked => walked?,
            };
            for (merged, output) in merged.iter_mut().zip(outputs) {
                let fact = self.values[output].fact.without_elements();
                *merged = Some(match merged.take() {
                    None => fact,
                    Some(other) => either(&other, &fact),
                });
            }
            program.output_memory = OutputMemory::Outside;
            inner = inner.max(self.inner_peak(&program)?);
            sources.extend(program.outer_reads());
        }
        let facts = merged.into_iter().map(Option::unwrap_or_default).collect();
        Ok(Some(GraphStep { facts, inner, sources }))
    }

    /// Computes the one branch that runs.
    fn branch(
        &mut self,
        node: &'m Node,
        graph: &'m Graph,
        scope: &mut Scope<'m, '_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), OnnxError> {
        let first = self.values.len();
        let outputs = {
            let mut inner = Scope::inside(graph, self.model, Some(scope));
            self.initializers(graph, &mut inner)?;
            self.nodes(&graph.nodes, &mut inner, steps)?;
            self.outputs(graph, &inner)?
        };
        for (name, id) in node.outputs.iter().zip(outputs).filter(|(name, _)| !name.is_empty()) {
            if id >= first {
                self.values[id].name = format!("{}{name}", scope.prefix);
            }
            self.name_result(node, name, id, scope)?;
        }
        Ok(())
    }

    /// Returns the bytes that a graph inside a step needs; none if its sizes are not known, which is an error later.
    pub(super) fn inner_peak(&mut self, program: &Program) -> Result<u64, OnnxError> {
        self.check_sizes(program);
        if program.values().any(|id| self.values[id].fact.bytes().is_none()) {
            return Ok(0);
        }
        ProgramGraph::peak(&self.values, program)
    }

    /// Adds a step with its results.
    fn push_step(
        &mut self,
        node: &'m Node,
        step: GraphStep,
        scope: &mut Scope<'m, '_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), OnnxError> {
        let GraphStep { mut facts, inner, mut sources } = step;
        facts.resize_with(node.outputs.len(), Fact::default);
        let is_tainted = sources.iter().any(|id| self.values[*id].is_tainted);
        let mut results = Vec::new();
        for (name, mut fact) in node.outputs.iter().zip(facts).filter(|(name, _)| !name.is_empty()) {
            let declared = scope.declared.get(name.as_str()).copied();
            self.complete(&mut fact, declared);
            let title = format!("{}{name}", scope.prefix);
            let blame = if is_tainted { Blame::Others } else { Blame::Operation(node) };
            self.name_free_dims(&mut fact, &title, declared, blame);
            let id = self.push(title, fact, ValueKind::Computed)?;
            self.values[id].is_tainted |= is_tainted;
            self.name_result(node, name, id, scope)?;
            results.push(id);
        }
        sources.sort_unstable();
        sources.dedup();
        if !results.is_empty() {
            let (op, title) = (node.op_type.to_lowercase(), node.title());
            steps.push(Step { op, title, results, sources, view_of: None, overwrites: Vec::new(), inner });
        }
        Ok(())
    }
}

/// Returns the graph that an attribute of a node is.
pub(super) fn graph_attribute<'m>(node: &'m Node, name: &str) -> Result<&'m Graph, OnnxError> {
    match node.attribute(name).map(|attribute| &attribute.value) {
        Some(AttributeValue::Graph(graph)) => Ok(graph),
        _ => Err(OnnxError::Shape { node: node.title(), what: format!("the graph {name} is missing") }),
    }
}

/// Returns what is known of a value that is one or the other.
pub(super) fn either(a: &Fact, b: &Fact) -> Fact {
    let data_type = if a.data_type.is_known() { a.data_type } else { b.data_type };
    let shape = match (&a.shape, &b.shape) {
        (Some(a), Some(b)) if a.len() == b.len() => {
            Some(a.iter().zip(b).map(|(a, b)| if a == b { *a } else { None }).collect())
        }
        _ => None,
    };
    let list = match (&a.list, &b.list) {
        (Some(a), Some(b)) => Some(if a == b { a.clone() } else { ListFact::Unknown }),
        _ => None,
    };
    Fact { data_type, shape, elements: None, list }
}
