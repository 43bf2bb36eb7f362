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

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::call::{Call, CallAttributes, Stuck, attribute};
use super::data_type::DataType;
use super::dims::DimSizes;
use super::error::{FreeDim, OnnxError};
use super::fact::{Fact, ListFact};
use super::fold::{fold, fold_split};
use super::model::{AttributeValue, Declared, DeclaredDim, Function, Graph, Model, Node};
use super::operators::{Overwrites, is_random, is_view};
use super::program::{Program, Step, Value, ValueId, ValueKind};
use super::shapes::infer;

/// What a walk through a model has found so far.
pub(super) struct Walk<'m> {
    pub(super) model: &'m Model,
    dims: &'m DimSizes,
    functions: HashMap<FunctionName<'m>, usize>,
    pub(super) values: Vec<Value>,
    free: Vec<FreeDim>,
    /// The names of all dimensions that the file leaves free.
    pub(super) dim_names: BTreeSet<String>,
    /// Results of which the size is not known, and not because of others.
    pub(super) unknown: Vec<String>,
    /// The functions that are being computed, as numbers.
    calls: Vec<usize>,
    /// How many nodes may still be looked at.
    nodes_left: u64,
    /// How many elements may still be computed.
    elements_left: u64,
}

/// Domain, name and overload.
type FunctionName<'m> = (&'m str, &'m str, &'m str);

/// The names that are known at a node.
pub(super) struct Scope<'m, 's> {
    /// `None` for an input of a function that is left out.
    pub(super) names: HashMap<&'m str, Option<ValueId>>,
    pub(super) declared: HashMap<&'m str, &'m Declared>,
    pub(super) around: Option<&'s CallAttributes<'m>>,
    opsets: &'m BTreeMap<String, i64>,
    pub(super) outer: Option<&'s Scope<'m, 's>>,
    /// What is put before the names of values.
    pub(super) prefix: String,
}

impl<'m, 's> Scope<'m, 's> {
    /// Returns the scope of a graph inside another, or of the whole model.
    pub(super) fn inside(graph: &'m Graph, model: &'m Model, outer: Option<&'s Scope<'m, 's>>) -> Self {
        let infos = graph.value_info.iter().chain(&graph.outputs);
        Self {
            names: HashMap::new(),
            declared: infos.map(|info| (info.name.as_str(), &info.declared)).collect(),
            around: outer.and_then(|outer| outer.around),
            opsets: outer.map_or(&model.opsets, |outer| outer.opsets),
            outer,
            prefix: outer.map(|outer| outer.prefix.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<Option<ValueId>> {
        let mut scope = Some(self);
        while let Some(here) = scope {
            if let Some(found) = here.names.get(name) {
                return Some(*found);
            }
            scope = here.outer;
        }
        None
    }

    fn version(&self, domain: &str) -> i64 {
        // A file without a version of the standard set is from before there were any.
        self.opsets.get(domain).copied().unwrap_or(1)
    }
}

impl<'m> Walk<'m> {
    pub(super) fn new(model: &'m Model, dims: &'m DimSizes) -> Self {
        let name =
            |function: &'m Function| (function.domain.as_str(), function.name.as_str(), function.overload.as_str());
        let functions = model.functions.iter().enumerate().map(|(number, function)| (name(function), number));
        let bytes = model.bytes as u64;
        Self {
            model,
            dims,
            functions: functions.collect(),
            values: Vec::new(),
            free: Vec::new(),
            dim_names: BTreeSet::new(),
            unknown: Vec::new(),
            calls: Vec::new(),
            nodes_left: most_nodes(bytes),
            elements_left: bytes.saturating_mul(64).saturating_add(1 << 22),
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

    /// Notes which values of a program have no size although nothing before them is to blame.
    pub(super) fn check_sizes(&mut self, program: &Program) {
        if !self.unknown.is_empty() || !self.free.is_empty() {
            return;
        }
        for id in program.values() {
            let Value { name, fact, .. } = &self.values[id];
            if !fact.is_complete() {
                self.unknown.push(format!("{name:?}: {fact}"));
            }
        }
    }

    /// Walks through a graph: `given` is what is known of its inputs, where more than the graph says.
    pub(super) fn graph(
        &mut self,
        graph: &'m Graph,
        given: &[Option<Fact>],
        outer: Option<&Scope<'m, '_>>,
    ) -> Result<(Program, Vec<ValueId>), OnnxError> {
        let mut scope = Scope::inside(graph, self.model, outer);
        let mut program = Program { first: self.values.len(), ..Program::default() };
        self.initializers(graph, &mut scope);
        for (index, info) in graph.inputs.iter().enumerate() {
            // Older files list constants as inputs as well.
            if scope.names.contains_key(info.name.as_str()) {
                continue;
            }
            let mut fact = given.get(index).cloned().flatten().unwrap_or_default();
            self.complete(&mut fact, Some(&info.declared));
            self.name_free_dims(&mut fact, &info.name, Some(&info.declared), Blame::Input);
            let id = self.push(format!("{}{}", scope.prefix, info.name), fact, ValueKind::Computed);
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
    pub(super) fn initializers(&mut self, graph: &'m Graph, scope: &mut Scope<'m, '_>) {
        for tensor in &graph.initializers {
            let id = self.push(format!("{}{}", scope.prefix, tensor.name), Fact::of_tensor(tensor), ValueKind::Stored);
            scope.names.insert(&tensor.name, Some(id));
        }
    }

    /// Returns the values that a graph's outputs are.
    pub(super) fn outputs(&self, graph: &Graph, scope: &Scope<'m, '_>) -> Result<Vec<ValueId>, OnnxError> {
        let find = |name: &str| {
            let unknown = || OnnxError::UnknownValue { node: "an output".to_owned(), value: name.to_owned() };
            scope.find(name).flatten().ok_or_else(unknown)
        };
        graph.outputs.iter().map(|info| find(&info.name)).collect()
    }

    pub(super) fn push(&mut self, name: String, fact: Fact, kind: ValueKind) -> ValueId {
        let is_tainted = !fact.is_complete();
        self.values.push(Value { name, fact, kind, is_tainted });
        self.values.len() - 1
    }

    /// Walks through nodes, one after the other.
    pub(super) fn nodes(
        &mut self,
        nodes: &'m [Node],
        scope: &mut Scope<'m, '_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), OnnxError> {
        for node in nodes {
            self.nodes_left = self.nodes_left.checked_sub(1).ok_or_else(|| {
                let file = self.model.bytes;
                OnnxError::TooLong { most: most_nodes(file as u64), file }
            })?;
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
    pub(super) fn inputs(&self, node: &Node, scope: &Scope<'m, '_>) -> Result<Vec<Option<ValueId>>, OnnxError> {
        let find = |name: &String| match name.as_str() {
            "" => Ok(None),
            name => {
                scope.find(name).ok_or_else(|| OnnxError::UnknownValue { node: node.title(), value: name.to_owned() })
            }
        };
        node.inputs.iter().map(find).collect()
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
        self.calls.push(number);
        self.nodes(&function.nodes, &mut inner, steps)?;
        self.calls.pop();
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
            let id = self.push(title, fact, kind);
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
        // What is folded is paid for, so that a small file does not keep its reader busy.
        let sources = call.inputs.iter().flatten().filter_map(|fact| fact.elements.as_ref());
        let cost: usize = 1 + sources.map(|elements| elements.len()).sum::<usize>();
        let results: u64 = facts.iter().filter_map(Fact::count).filter(|count| *count <= 1 << 16).sum();
        match self.elements_left.checked_sub(cost as u64 + results) {
            None => facts.iter_mut().for_each(|fact| fact.elements = None),
            Some(left) => {
                self.elements_left = left;
                if let Some(parts) = fold_split(&call, &facts) {
                    facts.iter_mut().zip(parts).for_each(|(fact, elements)| fact.elements = Some(elements));
                } else if let [fact] = facts.as_mut_slice() {
                    fact.elements = fold(&call, fact);
                }
            }
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
            let only_allowed =
                |source: ValueId| (0..inputs.len()).all(|slot| inputs[slot] != Some(source) || allowed.allows(slot));
            overwrites = sources.iter().copied().filter(|source| alike(*source) && only_allowed(*source)).collect();
        }
        let op = node.op_type.to_lowercase();
        Step { op, title: node.title(), results, sources, view_of, overwrites, inner: 0 }
    }

    /// Fills in what the file declares, where nothing else is known.
    pub(super) fn complete(&mut self, fact: &mut Fact, declared: Option<&Declared>) {
        let Some(declared) = declared else { return };
        if !fact.data_type.is_known() {
            fact.data_type = declared.data_type;
        }
        if declared.is_sequence {
            fact.list.get_or_insert(ListFact::Unknown);
            return;
        }
        let Some(dims) = &declared.shape else { return };
        let shape = fact.shape.get_or_insert_with(|| vec![None; dims.len()]);
        if shape.len() != dims.len() {
            return;
        }
        for (dim, declared) in shape.iter_mut().zip(dims) {
            if dim.is_none() {
                *dim = match declared {
                    DeclaredDim::Known(size) => Some(*size),
                    DeclaredDim::Named(_) | DeclaredDim::Unknown => None,
                };
            }
        }
    }

    /// Looks up the sizes of dimensions that are not known: by the name that the file has for them, or by that of the tensor and the
    /// number of the axis. Those without a size are noted, if they are not the consequence of others.
    pub(super) fn name_free_dims(
        &mut self,
        fact: &mut Fact,
        title: &str,
        declared: Option<&Declared>,
        blame: Blame<'_>,
    ) {
        if fact.list.is_some() {
            return;
        }
        let operation = match blame {
            Blame::Operation(node) => Some(node.title()),
            Blame::Input | Blame::Others => None,
        };
        let Some(shape) = &mut fact.shape else {
            return self.note_unknown(fact, title, &blame);
        };
        let dims = declared.and_then(|declared| declared.shape.as_deref()).filter(|dims| dims.len() == shape.len());
        for (axis, dim) in shape.iter_mut().enumerate().filter(|(_, dim)| dim.is_none()) {
            let point = format!("{title}.{axis}");
            let own = match dims.map(|dims| &dims[axis]) {
                Some(DeclaredDim::Named(name)) => Some(name.as_str()),
                _ => None,
            };
            let name = [own, Some(&point)].into_iter().flatten().find(|name| self.dims.get(name).is_some());
            if let Some(name) = name {
                *dim = self.dims.get(name);
                let names = &mut self.dim_names;
                self.dims.names_in(name, &mut |used| {
                    names.insert(used.to_owned());
                });
                continue;
            }
            if matches!(blame, Blame::Others) {
                continue;
            }
            let name = own.map_or(point, str::to_owned);
            if self.dim_names.insert(name.clone()) {
                self.free.push(FreeDim { name, tensor: title.to_owned(), operation: operation.clone() });
            }
        }
        self.note_unknown(fact, title, &blame);
    }

    fn note_unknown(&mut self, fact: &Fact, title: &str, blame: &Blame<'_>) {
        if fact.list.is_some() || fact.shape.is_some() && fact.data_type.is_known() {
            return;
        }
        match blame {
            Blame::Others => {}
            Blame::Input => self.unknown.push(format!("input {title:?} has no declared shape: {fact}")),
            Blame::Operation(node) => {
                let domain = if node.domain.is_empty() { "" } else { &format!("{}.", node.domain) };
                self.unknown.push(format!("{title:?}: {fact}, computed by {domain}{}", node.title()));
            }
        }
    }
}

/// Whose fault it is that a dimension is not known.
#[derive(Clone, Copy)]
pub(super) enum Blame<'a> {
    /// The caller has to say it.
    Input,
    /// It depends on data.
    Operation(&'a Node),
    /// Something before it is not known.
    Others,
}

/// Returns how many nodes a file of so many bytes may run: a node takes a few bytes, and functions are called several times.
fn most_nodes(bytes: u64) -> u64 {
    bytes.saturating_mul(4).saturating_add(1 << 16)
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

/// Returns the graph that an attribute of a node is.
pub(super) fn graph_attribute<'m>(node: &'m Node, name: &str) -> Result<&'m Graph, OnnxError> {
    match node.attribute(name).map(|attribute| &attribute.value) {
        Some(AttributeValue::Graph(graph)) => Ok(graph),
        _ => Err(OnnxError::Shape { node: node.title(), what: format!("the graph {name} is missing") }),
    }
}
