//! `If`, `Loop` and `Scan`: one step each, with the peak of the graphs inside it.
//!
//! A branch writes its outputs to the results of the step. A body has bytes of its own for its inputs and outputs, since the next turn
//! reads what this one has written. Values around it that a graph reads are sources of the step. A branch whose condition is known is
//! computed in the place of the step.

use super::data_type::DataType;
use super::error::OnnxError;
use super::fact::{Dim, Elements, Fact};
use super::model::{Graph, Node};
use super::program::{Program, ProgramGraph, Step, ValueId, ValueKind};
use super::walk::{Blame, Scope, Walk, graph_attribute};

impl<'m> Walk<'m> {
    /// Computes a node that has graphs.
    pub(super) fn subgraphs(
        &mut self,
        node: &'m Node,
        scope: &mut Scope<'m, '_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), OnnxError> {
        match node.op_type.as_str() {
            "If" => self.branches(node, scope, steps),
            "Loop" => self.turns(node, scope, steps),
            _ => self.scan(node, scope, steps),
        }
    }

    fn branches(&mut self, node: &'m Node, scope: &mut Scope<'m, '_>, steps: &mut Vec<Step>) -> Result<(), OnnxError> {
        let inputs = self.inputs(node, scope)?;
        let [Some(condition), ..] = inputs.as_slice() else {
            return Err(OnnxError::Shape { node: node.title(), what: "the condition is missing".to_owned() });
        };
        let graphs = [graph_attribute(node, "then_branch")?, graph_attribute(node, "else_branch")?];
        let known = self.values[*condition].fact.elements.as_ref().and_then(|it| it.float(0));
        if let Some(condition) = known {
            return self.branch(node, graphs[usize::from(condition == 0.0)], scope, steps);
        }
        let mut merged: Vec<Option<Fact>> = vec![None; node.outputs.len()];
        let (mut peak, mut sources) = (0, vec![*condition]);
        let mut refused = None;
        for graph in graphs {
            let mark = self.unknown.len();
            let (mut program, outputs) = match self.graph(graph, &[], Some(scope)) {
                // A branch that contradicts the sizes that are given is not the one that runs with them.
                Err(error @ OnnxError::Shape { .. }) if refused.is_none() => {
                    self.unknown.truncate(mark);
                    refused = Some(error);
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
            program.writes_outside = true;
            peak = peak.max(self.inner_peak(&program)?);
            sources.extend(program.outer_reads());
        }
        let facts = merged.into_iter().map(Option::unwrap_or_default).collect();
        self.push_step(node, (facts, peak, sources), scope, steps)
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
            self.initializers(graph, &mut inner);
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

    fn turns(&mut self, node: &'m Node, scope: &mut Scope<'m, '_>, steps: &mut Vec<Step>) -> Result<(), OnnxError> {
        let inputs = self.inputs(node, scope)?;
        let body = graph_attribute(node, "body")?;
        let carried = inputs.get(2..).unwrap_or_default();
        let counts = [Some(Fact::scalar(DataType::INT64)), Some(Fact::scalar(DataType::BOOL))];
        let (program, outputs) = self.body(node, body, counts.to_vec(), carried, 1, scope)?;
        let element = |id: Option<ValueId>| id.and_then(|id| self.values[id].fact.elements.as_ref()?.float(0));
        let goes_on = |id: Option<ValueId>| id.is_none() || element(id).is_some_and(|it| it != 0.0);
        // How often it turns is known if nothing ends it earlier.
        let most = inputs
            .first()
            .copied()
            .flatten()
            .and_then(|id| self.values[id].fact.elements.as_ref()?.ints()?.first().copied());
        let endless = goes_on(inputs.get(1).copied().flatten()) && goes_on(outputs.first().copied());
        let length = most.filter(|_| endless).and_then(|most| u64::try_from(most.max(0)).ok());
        let facts = outputs.iter().skip(1).enumerate().map(|(index, output)| {
            let mut fact = self.values[*output].fact.without_elements();
            if index >= carried.len()
                && let Some(shape) = fact.shape.as_mut()
            {
                shape.insert(0, length);
            }
            fact
        });
        let facts = facts.collect();
        let mut sources: Vec<ValueId> = inputs.iter().flatten().copied().collect();
        sources.extend(program.outer_reads());
        let peak = self.inner_peak(&program)?;
        self.push_step(node, (facts, peak, sources), scope, steps)
    }

    fn scan(&mut self, node: &'m Node, scope: &mut Scope<'m, '_>, steps: &mut Vec<Step>) -> Result<(), OnnxError> {
        let inputs = self.inputs(node, scope)?;
        let body = graph_attribute(node, "body")?;
        let ints = |name: &str| match node.attribute(name).map(|attribute| &attribute.value) {
            Some(super::model::AttributeValue::Ints(ints)) => ints.clone(),
            Some(super::model::AttributeValue::Int(int)) => vec![*int],
            _ => Vec::new(),
        };
        let scanned = ints("num_scan_inputs").first().and_then(|it| usize::try_from(*it).ok());
        let states = scanned.and_then(|scanned| inputs.len().checked_sub(scanned));
        let Some(states) = states else {
            let what = format!("num_scan_inputs: expected at most {} inputs", inputs.len());
            return Err(OnnxError::Shape { node: node.title(), what });
        };
        let axis = |axes: &[i64], index: usize, rank: usize| {
            let axis = axes.get(index).copied().unwrap_or(0);
            super::call::axis_of(axis, rank).ok()
        };
        let (input_axes, output_axes) = (ints("scan_input_axes"), ints("scan_output_axes"));
        let mut length: Dim = None;
        let mut slices = Vec::new();
        for (index, input) in inputs[states..].iter().enumerate() {
            let mut fact = input.map(|id| self.values[id].fact.without_elements()).unwrap_or_default();
            if let Some(shape) = fact.shape.as_mut()
                && let Some(axis) = axis(&input_axes, index, shape.len())
            {
                length = length.or(shape.remove(axis));
            }
            slices.push(Some(fact));
        }
        let (program, outputs) = self.scan_body(node, body, &inputs[..states], slices, scope)?;
        let facts = outputs.iter().enumerate().map(|(index, output)| {
            let mut fact = self.values[*output].fact.without_elements();
            if index >= states
                && let Some(shape) = fact.shape.as_mut()
                && let Some(axis) = axis(&output_axes, index - states, shape.len() + 1)
            {
                shape.insert(axis, length);
            }
            fact
        });
        let facts = facts.collect();
        let mut sources: Vec<ValueId> = inputs.iter().flatten().copied().collect();
        sources.extend(program.outer_reads());
        let peak = self.inner_peak(&program)?;
        self.push_step(node, (facts, peak, sources), scope, steps)
    }

    fn scan_body(
        &mut self,
        node: &'m Node,
        body: &'m Graph,
        states: &[Option<ValueId>],
        slices: Vec<Option<Fact>>,
        scope: &Scope<'m, '_>,
    ) -> Result<(Program, Vec<ValueId>), OnnxError> {
        self.settle(node, states, 0, scope, |walk, facts| {
            let given: Vec<Option<Fact>> = facts.iter().cloned().map(Some).chain(slices.iter().cloned()).collect();
            walk.graph(body, &given, Some(scope))
        })
    }

    fn body(
        &mut self,
        node: &'m Node,
        body: &'m Graph,
        counts: Vec<Option<Fact>>,
        carried: &[Option<ValueId>],
        first: usize,
        scope: &Scope<'m, '_>,
    ) -> Result<(Program, Vec<ValueId>), OnnxError> {
        self.settle(node, carried, first, scope, |walk, facts| {
            let given: Vec<Option<Fact>> = counts.iter().cloned().chain(facts.iter().cloned().map(Some)).collect();
            walk.graph(body, &given, Some(scope))
        })
    }

    /// Walks through a body until what it makes of the values that it hands on is what it was given: dimensions that change from turn
    /// to turn are not known. `first` is the number of the first output that is handed on.
    fn settle(
        &mut self,
        node: &'m Node,
        carried: &[Option<ValueId>],
        first: usize,
        scope: &Scope<'m, '_>,
        mut walk_body: impl FnMut(&mut Self, &[Fact]) -> Result<(Program, Vec<ValueId>), OnnxError>,
    ) -> Result<(Program, Vec<ValueId>), OnnxError> {
        let of =
            |walk: &Self, id: Option<ValueId>| id.map(|id| walk.values[id].fact.without_elements()).unwrap_or_default();
        let mut facts: Vec<Fact> = carried.iter().map(|id| of(self, *id)).collect();
        loop {
            let (program, outputs) = walk_body(self, &facts)?;
            let mut changed = false;
            for (index, fact) in facts.iter_mut().enumerate() {
                let Some(output) = outputs.get(first + index) else { continue };
                let met = either(fact, &self.values[*output].fact);
                if met != *fact && fact.shape.is_some() {
                    changed = true;
                    *fact = met;
                    // The largest that it becomes can be given.
                    if let Some(name) = node.outputs.get(index) {
                        let title = format!("{}{name}", scope.prefix);
                        self.name_free_dims(fact, &title, None, Blame::Operation(node));
                    }
                }
            }
            // Each turn leaves fewer dimensions known, so this ends; those that are given stay.
            if !changed || facts.iter().all(Fact::is_complete) {
                return Ok((program, outputs));
            }
            if facts.iter().any(|fact| fact.shape.is_none()) {
                return Ok((program, outputs));
            }
        }
    }

    /// Returns the bytes that a graph inside a step needs; none if its sizes are not known, which is an error later.
    fn inner_peak(&mut self, program: &Program) -> Result<u64, OnnxError> {
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
        (mut facts, inner, mut sources): (Vec<Fact>, u64, Vec<ValueId>),
        scope: &mut Scope<'m, '_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), OnnxError> {
        facts.resize_with(node.outputs.len(), Fact::default);
        let is_tainted = sources.iter().any(|id| self.values[*id].is_tainted);
        let mut results = Vec::new();
        for (name, mut fact) in node.outputs.iter().zip(facts).filter(|(name, _)| !name.is_empty()) {
            let declared = scope.declared.get(name.as_str()).copied();
            self.complete(&mut fact, declared);
            let title = format!("{}{name}", scope.prefix);
            let blame = if is_tainted { Blame::Others } else { Blame::Operation(node) };
            self.name_free_dims(&mut fact, &title, declared, blame);
            let id = self.push(title, fact, ValueKind::Computed);
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

/// Returns what is known of a value that is one or the other.
fn either(a: &Fact, b: &Fact) -> Fact {
    let data_type = if a.data_type.is_known() { a.data_type } else { b.data_type };
    let shape = match (&a.shape, &b.shape) {
        (Some(a), Some(b)) if a.len() == b.len() => {
            Some(a.iter().zip(b).map(|(a, b)| if a == b { *a } else { None }).collect())
        }
        _ => None,
    };
    let elements: Option<Elements> = None;
    Fact { data_type, shape, elements, list: a.list.clone().filter(|list| Some(list) == b.list.as_ref()) }
}
