//! `Loop` and `Scan`: a body that runs several times.
//!
//! A body has bytes of its own for its inputs and outputs, since the next turn reads what this one has written. Where it hands on one
//! value, the output may be located in the input's bytes; where it hands on several, no output shares bytes with an input, since it may
//! be another one's. What is handed on has one shape in all turns: where a dimension changes, the largest that it becomes is asked for.

use super::call::{attribute, axis_of};
use super::data_type::DataType;
use super::error::OnnxError;
use super::fact::{Dim, Elements, Fact};
use super::known_sizes::Blame;
use super::model::{AttributeValue, Graph, Node};
use super::program::{OutputMemory, Program, ValueId};
use super::scope::Scope;
use super::subgraphs::{GraphStep, either, graph_attribute};
use super::walk::Walk;

/// A body that has been walked through.
struct WalkedBody {
    program: Program,
    outputs: Vec<ValueId>,
    /// What is known of the values that one turn hands on to the next.
    carried: Vec<Fact>,
}

/// What a body is given beside the values that are handed on.
struct BodyInputs {
    /// Before them.
    before: Vec<Fact>,
    carried: Vec<Fact>,
    /// Behind them.
    behind: Vec<Fact>,
    /// The number of the first output that is handed on.
    first_output: usize,
}

impl<'m> Walk<'m> {
    pub(super) fn turns(&mut self, node: &'m Node, scope: &Scope<'m, '_>) -> Result<GraphStep, OnnxError> {
        let inputs = self.inputs(node, scope)?;
        let body = graph_attribute(node, "body")?;
        let carried: Vec<Fact> = inputs.iter().skip(2).map(|id| self.carried(*id)).collect();
        let given = BodyInputs {
            // In every turn that there is the condition is true.
            before: vec![
                Fact::scalar(DataType::INT64),
                Fact { elements: Some(Elements::Ints(vec![1])), ..Fact::scalar(DataType::BOOL) },
            ],
            carried,
            behind: Vec::new(),
            first_output: 1,
        };
        let WalkedBody { program, outputs, carried } = self.settle(node, body, given, scope)?;
        let element = |slot: usize| self.values[inputs.get(slot).copied().flatten()?].fact.elements.as_ref()?.float(0);
        // How often it turns is known if nothing ends it earlier.
        let starts = inputs.get(1).copied().flatten().is_none() || element(1).is_some_and(|it| it != 0.0);
        let goes_on = outputs.first().and_then(|id| self.values[*id].fact.elements.as_ref()?.float(0));
        let most = inputs.first().copied().flatten();
        let most = most.and_then(|id| self.values[id].fact.elements.as_ref()?.ints()?.first().copied());
        let is_counted = starts && goes_on.is_some_and(|it| it != 0.0);
        let length = most.filter(|_| is_counted).and_then(|most| u64::try_from(most.max(0)).ok());
        let collected = outputs.iter().skip(1 + carried.len()).map(|output| {
            let mut fact = self.values[*output].fact.without_elements();
            if let Some(shape) = fact.shape.as_mut() {
                shape.insert(0, length);
            }
            fact
        });
        let collected: Vec<Fact> = collected.collect();
        self.graph_step([carried, collected].concat(), &inputs, &program)
    }

    pub(super) fn scan(&mut self, node: &'m Node, scope: &Scope<'m, '_>) -> Result<GraphStep, OnnxError> {
        let all_inputs = self.inputs(node, scope)?;
        let body = graph_attribute(node, "body")?;
        // The first version had the lengths of sequences as its first input, and a batch in front of everything.
        let has_batch = scope.version(&node.domain) < 9;
        let inputs = all_inputs.get(usize::from(has_batch)..).unwrap_or_default();
        let ints = |name: &str| match attribute(node, scope.around, name) {
            Some(AttributeValue::Ints(ints)) => ints.clone(),
            Some(AttributeValue::Int(int)) => vec![*int],
            _ => Vec::new(),
        };
        let scanned = ints("num_scan_inputs").first().and_then(|it| usize::try_from(*it).ok());
        let Some(states) = scanned.and_then(|scanned| inputs.len().checked_sub(scanned)) else {
            let what = format!("num_scan_inputs: expected at most {} inputs", inputs.len());
            return Err(OnnxError::Shape { node: node.title(), what });
        };
        let axis = |axes: &[i64], index: usize, rank: usize| {
            let number = axes.get(index).copied().unwrap_or(if has_batch { 1 } else { 0 });
            axis_of(number, rank).ok()
        };
        let (input_axes, output_axes) = (ints("scan_input_axes"), ints("scan_output_axes"));
        let (mut length, mut batch): (Dim, Dim) = (None, None);
        let mut given: Vec<Fact> = inputs.iter().map(|id| self.carried(*id)).collect();
        for (index, fact) in given.iter_mut().enumerate() {
            let Some(shape) = fact.shape.as_mut() else { continue };
            if index >= states
                && let Some(axis) = axis(&input_axes, index - states, shape.len())
            {
                length = length.or(shape.remove(axis));
            }
            if has_batch && !shape.is_empty() {
                batch = batch.or(shape.remove(0));
            }
        }
        let behind = given.split_off(states);
        let given = BodyInputs { before: Vec::new(), carried: given, behind, first_output: 0 };
        let WalkedBody { program, outputs, mut carried } = self.settle(node, body, given, scope)?;
        let collected: Vec<Fact> =
            outputs.iter().skip(states).map(|id| self.values[*id].fact.without_elements()).collect();
        carried.extend(collected);
        for (index, fact) in carried.iter_mut().enumerate() {
            let Some(shape) = fact.shape.as_mut() else { continue };
            if has_batch {
                shape.insert(0, batch);
            }
            if let Some(index) = index.checked_sub(states)
                && let Some(axis) = axis(&output_axes, index, shape.len() + 1)
            {
                shape.insert(axis, length);
            }
        }
        self.graph_step(carried, &all_inputs, &program)
    }

    /// Returns what is known of a value in every turn.
    fn carried(&self, id: Option<ValueId>) -> Fact {
        id.map(|id| self.values[id].fact.without_elements()).unwrap_or_default()
    }

    fn graph_step(
        &mut self,
        facts: Vec<Fact>,
        inputs: &[Option<ValueId>],
        program: &Program,
    ) -> Result<GraphStep, OnnxError> {
        let mut sources: Vec<ValueId> = inputs.iter().flatten().copied().collect();
        sources.extend(program.outer_reads());
        Ok(GraphStep { facts, inner: self.inner_peak(program)?, sources })
    }

    /// Walks through a body until what it makes of the values that it hands on is what it was given: dimensions that change from turn
    /// to turn are not known.
    fn settle(
        &mut self,
        node: &'m Node,
        body: &'m Graph,
        mut given: BodyInputs,
        scope: &Scope<'m, '_>,
    ) -> Result<WalkedBody, OnnxError> {
        loop {
            let inputs = given.before.iter().chain(&given.carried).chain(&given.behind);
            let inputs: Vec<Option<Fact>> = inputs.cloned().map(Some).collect();
            let (mut program, outputs) = self.graph(body, &inputs, Some(scope))?;
            let mut has_changed = false;
            for (index, fact) in given.carried.iter_mut().enumerate() {
                let Some(output) = outputs.get(given.first_output + index) else { continue };
                let met = either(fact, &self.values[*output].fact);
                if met == *fact {
                    continue;
                }
                let before = std::mem::replace(fact, met);
                // The largest that it becomes can be given.
                if let Some(name) = node.outputs.get(index).filter(|_| fact.shape.is_some()) {
                    let title = format!("{}{name}", scope.prefix);
                    self.name_free_dims(fact, &title, None, Blame::Operation(node));
                }
                has_changed |= *fact != before;
            }
            // Each turn leaves fewer dimensions known, and those that are given stay, so this ends.
            if !has_changed {
                if given.carried.len() > 1 {
                    program.output_memory = OutputMemory::BesideInputs;
                }
                return Ok(WalkedBody { program, outputs, carried: given.carried });
            }
        }
    }
}
