//! A model and sizes in, the program out with a fact for each value. O(nodes), functions counted at each call.
//!
//! ```text
//!   nodes, in the order of the file --rules, folding--> values with facts, steps
//!             |-- of the model's own functions: their nodes, in the place of the call
//!             '-- If, Loop, Scan: subgraphs.rs
//! ```
//!
//! What depends on constants alone is a constant and no step. The file's own word on a shape is taken only where the rules have none:
//! tools that change a model often leave it as it was before.

use std::collections::{BTreeSet, HashMap};

use super::budget::WalkBudget;
use super::call::{Call, CallAttributes, Stuck, attribute};
use super::data_type::DataType;
use super::dims::DimSizes;
use super::error::{FreeDim, OnnxError};
use super::fact::Fact;
use super::fold::{fold, fold_split};
use super::known_sizes::Blame;
use super::model::{Function, Graph, Model, Node};
use super::operators::{Overwrites, is_random, is_view};
use super::program::{Program, Step, Value, ValueId, ValueKind};
use super::scope::Scope;
use super::shapes::infer;

/// The most dimensions of a tensor, as many as NumPy has: runtimes have far fewer, and what is kept of a value grows with them.
const MOST_DIMS: usize = 64;

/// What a walk through a model has found so far.
pub(super) struct Walk<'m> {
    pub(super) model: &'m Model,
    pub(super) dims: &'m DimSizes,
    functions: HashMap<FunctionName<'m>, usize>,
    pub(super) values: Vec<Value>,
    pub(super) free: Vec<FreeDim>,
    /// The names of all dimensions that the file leaves free.
    pub(super) dim_names: BTreeSet<String>,
    /// Results of which the size is not known, and not because of others.
    pub(super) unknown: Vec<String>,
    /// The functions that are being computed, as numbers.
    pub(super) calls: Vec<usize>,
    pub(super) budget: WalkBudget,
    /// How many graphs of `If`, `Loop` and `Scan` are around what is looked at.
    inside: usize,
}

/// Domain, name and overload.
type FunctionName<'m> = (&'m str, &'m str, &'m str);

impl<'m> Walk<'m> {
    pub(super) fn new(model: &'m Model, dims: &'m DimSizes) -> Self {
        let name =
            |function: &'m Function| (function.domain.as_str(), function.name.as_str(), function.overload.as_str());
        let functions = model.functions.iter().enumerate().map(|(number, function)| (name(function), number));
        Self {
            model,
            dims,
            functions: functions.collect(),
            values: Vec::new(),
            free: Vec::new(),
            dim_names: BTreeSet::new(),
            unknown: Vec::new(),
            calls: Vec::new(),
            budget: WalkBudget::of(model),
            inside: 0,
        }
    }

    /// Walks through the whole model.
    pub(super) fn model(&mut self) -> Result<Program, OnnxError> {
        let model = self.model;
        let inputs: Vec<Option<Fact>> = model.graph.inputs.iter().map(|_| None).collect();
        let (program, _) = self.graph(&model.graph, &inputs, None)?;
        if !self.free.is_empty() {
            return Err(OnnxError::FreeDims { free: std::mem::take(&mut self.free) });
        }
        self.check_sizes(&program);
        if !self.unknown.is_empty() {
            return Err(OnnxError::UnknownSizes { values: std::mem::take(&mut self.unknown) });
        }
        for id in program.values() {
            if self.values[id].fact.bytes().is_none() {
                let Value { name, fact, .. } = &self.values[id];
                return Err(OnnxError::Size { tensor: name.clone(), layout: fact.to_string() });
            }
        }
        Ok(program)
    }

    /// Walks through a graph: `given` is what is known of its inputs, where more than the graph says.
    pub(super) fn graph(
        &mut self,
        graph: &'m Graph,
        given: &[Option<Fact>],
        outer: Option<&Scope<'m, '_>>,
    ) -> Result<(Program, Vec<ValueId>), OnnxError> {
        self.inside += usize::from(outer.is_some());
        let walked = self.graph_inside(graph, given, outer);
        self.inside -= usize::from(outer.is_some());
        walked
    }

    fn graph_inside(
        &mut self,
        graph: &'m Graph,
        given: &[Option<Fact>],
        outer: Option<&Scope<'m, '_>>,
    ) -> Result<(Program, Vec<ValueId>), OnnxError> {
        self.budget.spend(8 * (graph.value_info.len() + graph.outputs.len()))?;
        let mut scope = Scope::inside(graph, self.model, outer);
        let mut program = Program { first: self.values.len(), ..Program::default() };
        self.initializers(graph, &mut scope)?;
        for (index, info) in graph.inputs.iter().enumerate() {
            match scope.names.get(info.name.as_str()).copied().flatten() {
                // Older files list constants as inputs as well.
                Some(known) if self.values[known].is_constant() => continue,
                Some(_) => return Err(OnnxError::Twice { node: "the inputs".to_owned(), value: info.name.clone() }),
                None => {}
            }
            let given = given.get(index).cloned().flatten();
            // What the step around this graph hands in is that step's to explain.
            let blame = if given.is_some() { Blame::Others } else { Blame::Input };
            let (mut fact, title) = (given.unwrap_or_default(), format!("{}{}", scope.prefix, info.name));
            self.complete(&mut fact, Some(&info.declared));
            self.name_free_dims(&mut fact, &title, Some(&info.declared), blame);
            let id = self.push(title, fact, ValueKind::Computed)?;
            scope.names.insert(&info.name, Some(id));
            program.inputs.push(id);
        }
        self.nodes(&graph.nodes, &mut scope, &mut program.steps)?;
        program.outputs = self.outputs(graph, &scope)?;
        let outputs = program.outputs.clone();
        program.outputs.sort_unstable();
        program.outputs.dedup();
        Ok((program, outputs))
    }

    /// Adds the constants of a graph.
    pub(super) fn initializers(&mut self, graph: &'m Graph, scope: &mut Scope<'m, '_>) -> Result<(), OnnxError> {
        for tensor in &graph.initializers {
            let title = format!("{}{}", scope.prefix, tensor.name);
            let id = self.push(title, Fact::of_tensor(tensor), ValueKind::Stored)?;
            scope.names.insert(&tensor.name, Some(id));
        }
        Ok(())
    }

    /// Returns the values that a graph's outputs are.
    pub(super) fn outputs(&self, graph: &Graph, scope: &Scope<'m, '_>) -> Result<Vec<ValueId>, OnnxError> {
        let find = |name: &str| {
            let unknown = || OnnxError::UnknownValue { node: "an output".to_owned(), value: name.to_owned() };
            scope.find(name).flatten().ok_or_else(unknown)
        };
        graph.outputs.iter().map(|info| find(&info.name)).collect()
    }

    pub(super) fn push(&mut self, name: String, fact: Fact, kind: ValueKind) -> Result<ValueId, OnnxError> {
        self.budget.spend_value(&name, &fact)?;
        let rank = fact.shape.as_ref().map_or(0, Vec::len);
        if rank > MOST_DIMS {
            return Err(OnnxError::Rank { value: name, most: MOST_DIMS, rank });
        }
        let is_tainted = !fact.is_complete();
        self.values.push(Value { name, fact, kind, is_tainted, is_inside: self.inside > 0 });
        Ok(self.values.len() - 1)
    }

    /// Walks through nodes, one after the other.
    pub(super) fn nodes(
        &mut self,
        nodes: &'m [Node],
        scope: &mut Scope<'m, '_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), OnnxError> {
        for node in nodes {
            let function = (node.domain.as_str(), node.op_type.as_str(), node.overload.as_str());
            match (self.functions.get(&function).copied(), function) {
                (Some(number), _) => self.function(node, number, scope, steps)?,
                (None, ("", "If" | "Loop" | "Scan", _)) => self.subgraphs(node, scope, steps)?,
                _ => self.node(node, scope, steps)?,
            }
        }
        Ok(())
    }

    /// Returns the inputs of a node.
    pub(super) fn inputs(&mut self, node: &Node, scope: &Scope<'m, '_>) -> Result<Vec<Option<ValueId>>, OnnxError> {
        let find = |name: &String| match name.as_str() {
            "" => Ok(None),
            name => {
                scope.find(name).ok_or_else(|| OnnxError::UnknownValue { node: node.title(), value: name.to_owned() })
            }
        };
        let inputs = node.inputs.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let rank = |id: &ValueId| self.values[*id].fact.shape.as_ref().map_or(0, Vec::len);
        let of_inputs = inputs.iter().flatten().map(rank).fold(0, usize::saturating_add);
        self.budget.spend_node(node, of_inputs)?;
        Ok(inputs)
    }

    /// Gives a result of a node its name.
    pub(super) fn name_result(
        &self,
        node: &Node,
        name: &'m str,
        id: ValueId,
        scope: &mut Scope<'m, '_>,
    ) -> Result<(), OnnxError> {
        match scope.names.insert(name, Some(id)) {
            None => Ok(()),
            Some(_) => Err(OnnxError::Twice { node: node.title(), value: name.to_owned() }),
        }
    }

    /// Computes the nodes of a function in the place of a call.
    fn function(
        &mut self,
        node: &'m Node,
        number: usize,
        scope: &mut Scope<'m, '_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), OnnxError> {
        let function = &self.model.functions[number];
        if let Some(start) = self.calls.iter().position(|it| *it == number) {
            let path = self.calls[start..].iter().chain([&number]);
            return Err(OnnxError::Recursion { path: path.map(|it| self.model.functions[*it].name.clone()).collect() });
        }
        let inputs = self.inputs(node, scope)?;
        self.budget.spend(8 * (function.inputs.len() + function.value_info.len() + function.defaults.len()))?;
        let mut around: CallAttributes<'m> =
            function.defaults.iter().map(|attribute| (attribute.name.as_str(), &attribute.value)).collect();
        for own in &node.attributes {
            if let Some(value) = attribute(node, scope.around, &own.name) {
                around.insert(&own.name, value);
            }
        }
        let formal = function.inputs.iter().enumerate();
        let title = if node.name.is_empty() { &node.op_type } else { &node.name };
        let mut inner = Scope {
            names: formal.map(|(slot, name)| (name.as_str(), inputs.get(slot).copied().flatten())).collect(),
            declared: function.value_info.iter().map(|info| (info.name.as_str(), &info.declared)).collect(),
            around: Some(&around),
            opsets: &function.opsets,
            outer: None,
            prefix: format!("{}{title}/", scope.prefix),
        };
        let first = self.values.len();
        self.budget.enter(|| node.title())?;
        self.calls.push(number);
        self.nodes(&function.nodes, &mut inner, steps)?;
        self.calls.pop();
        self.budget.leave();
        for (own, result) in function.outputs.iter().zip(&node.outputs).filter(|(_, result)| !result.is_empty()) {
            let unknown =
                || OnnxError::UnknownValue { node: format!("function {}", function.name), value: own.clone() };
            let id = inner.find(own).flatten().ok_or_else(unknown)?;
            if id >= first {
                self.values[id].name = format!("{}{result}", scope.prefix);
            }
            self.name_result(node, result, id, scope)?;
        }
        Ok(())
    }

    /// Computes one node.
    fn node(&mut self, node: &'m Node, scope: &mut Scope<'m, '_>, steps: &mut Vec<Step>) -> Result<(), OnnxError> {
        let inputs = self.inputs(node, scope)?;
        let mut facts = self.infer(node, &inputs, scope)?;
        // Nothing is left out in the middle: what the rule does not know of is known by nothing but its name.
        facts.resize_with(node.outputs.len(), Fact::default);
        let depends = inputs.iter().flatten().any(|id| !self.values[*id].is_constant());
        let has_elements = facts.iter().all(|fact| fact.elements.is_some());
        let is_constant =
            has_elements || !depends && !is_random(node) && (!inputs.is_empty() || node.op_type == "Constant");
        let kind = match is_constant {
            true if node.op_type == "Constant" => ValueKind::Stored,
            true => ValueKind::Constant,
            false => ValueKind::Computed,
        };
        let is_tainted = inputs.iter().flatten().any(|id| self.values[*id].is_tainted);
        let mut results = Vec::new();
        for (name, mut fact) in node.outputs.iter().zip(facts) {
            if name.is_empty() {
                continue;
            }
            let declared = scope.declared.get(name.as_str()).copied();
            self.complete(&mut fact, declared);
            let title = format!("{}{name}", scope.prefix);
            let blame = if is_tainted { Blame::Others } else { Blame::Operation(node) };
            self.name_free_dims(&mut fact, &title, declared, blame);
            let id = self.push(title, fact, kind)?;
            self.values[id].is_tainted |= is_tainted;
            self.name_result(node, name, id, scope)?;
            results.push(id);
        }
        if kind == ValueKind::Computed && !results.is_empty() {
            let step = self.step(node, &inputs, results);
            steps.push(step);
        }
        Ok(())
    }

    /// Returns what the rules know of the results of a node.
    fn infer(
        &mut self,
        node: &'m Node,
        inputs: &[Option<ValueId>],
        scope: &Scope<'m, '_>,
    ) -> Result<Vec<Fact>, OnnxError> {
        let facts = inputs.iter().map(|id| id.map(|id| &self.values[id].fact)).collect();
        let call = Call { node, version: scope.version(&node.domain), inputs: facts, around: scope.around };
        let mut facts = match infer(&call) {
            Ok(facts) => facts,
            Err(Stuck::Unknown) => return Ok(Vec::new()),
            Err(Stuck::Wrong(what)) => return Err(OnnxError::Shape { node: node.title(), what }),
        };
        let sources = call.inputs.iter().flatten().filter_map(|fact| fact.elements.as_ref());
        let cost: usize = 1 + sources.map(|elements| elements.len()).sum::<usize>();
        let results: u64 = facts.iter().filter_map(Fact::count).filter(|count| *count <= 1 << 16).sum();
        if !self.budget.take_elements(cost as u64 + results) {
            facts.iter_mut().for_each(|fact| fact.elements = None);
        } else if let Some(parts) = fold_split(&call, &facts) {
            facts.iter_mut().zip(parts).for_each(|(fact, elements)| fact.elements = Some(elements));
        } else if let [fact] = facts.as_mut_slice() {
            fact.elements = fold(&call, fact);
        }
        Ok(facts)
    }

    /// Returns the step of a node whose results are not constants.
    fn step(&self, node: &Node, inputs: &[Option<ValueId>], results: Vec<ValueId>) -> Step {
        let sources: Vec<ValueId> = inputs.iter().flatten().copied().collect();
        let view_of = match (results.as_slice(), inputs.first()) {
            ([_], Some(Some(source))) if is_view(node) => Some(*source),
            _ => None,
        };
        let allowed = Overwrites::of(node);
        let mut overwrites = Vec::new();
        if let [result] = results.as_slice() {
            let alike = |source: ValueId| {
                let (result, source) = (&self.values[*result].fact, &self.values[source].fact);
                result.shape == source.shape && result.data_type.bytes(8) == source.data_type.bytes(8)
            };
            let refused = (0..inputs.len()).filter(|slot| !allowed.allows(*slot)).filter_map(|slot| inputs[slot]);
            let refused: BTreeSet<ValueId> = refused.collect();
            overwrites = sources.iter().copied().filter(|it| !refused.contains(it) && alike(*it)).collect();
        }
        let op = node.op_type.to_lowercase();
        Step { op, title: node.title(), results, sources, view_of, overwrites, inner: 0 }
    }
}

impl Fact {
    /// Returns what is known of a tensor in the file.
    pub(super) fn of_tensor(tensor: &super::model::Tensor) -> Self {
        let shape = tensor.shape().map(|shape| shape.into_iter().map(Some).collect());
        Self { data_type: tensor.data_type, shape, elements: tensor.elements.clone(), list: None }
    }

    /// Returns a number of 64 bits, or a truth value, that is not known.
    pub(super) fn scalar(data_type: DataType) -> Self {
        Self::known(data_type, &[])
    }
}
