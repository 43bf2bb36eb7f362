//! A model and the sizes of its free dimensions in, the graph that is planned out.

use steeve_graph::{Bytes, Memory, TensorGraph};

use super::dims::DimSizes;
use super::error::OnnxError;
use super::model::{AttributeValue, Graph, Model, Node, Tensor};
use super::program::{OnnxKey, Program, ProgramGraph, Value, ValueKind, producers};
use super::walk::Walk;

/// A model as the planner sees it, with all shapes known.
///
/// The order of its nodes is that of the file. It is planned with [`Unread::Free`](steeve_graph::Unread::Free): outputs are marked, and
/// nothing else is kept. What a plan of it needs is what an executor needs that runs the nodes one by one in this order at planned
/// addresses; it is not what ONNX Runtime takes, which fuses and reorders nodes and keeps an arena of its own.
///
/// ```
/// use steeve_graph::{PlanOptions, Unread, plan_tensor_graph};
/// use steeve_models::onnx::{DataType, DimSizes, Model, OnnxGraph, SmallModel};
///
/// let mut small = SmallModel::new();
/// small.input("x", DataType::FLOAT, &["batch", "16"]);
/// small.constant("w", DataType::FLOAT, &[16, 32]);
/// small.node("MatMul", &["x", "w"], &["y"]);
/// small.node("Relu", &["y"], &["z"]);
/// small.output("z");
/// let model = Model::read(&small.to_bytes())?;
/// let graph = OnnxGraph::new(&model, &DimSizes::new([("batch".to_owned(), 4)])?)?;
/// let plan = plan_tensor_graph(&graph, &PlanOptions::default().with_unread(Unread::Free))?;
/// assert_eq!(plan.peak().get(), 4 * (4 * 16 + 4 * 32));
/// assert_eq!(graph.weights().stored, 4 * 16 * 32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OnnxGraph {
    values: Vec<Value>,
    program: Program,
    producers: Vec<Option<usize>>,
    weights: Weights,
    dim_names: Vec<String>,
}

/// The bytes of a model's constants, which are not planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weights {
    /// Those that the file has, or files beside it.
    pub stored: u64,
    /// Of these, those in files beside it, which are not read.
    pub beside: u64,
    /// Constants that nodes compute from these alone and other nodes read. An executor may compute them once, or at each run.
    pub computed: u64,
}

impl OnnxGraph {
    /// Works out all shapes.
    ///
    /// # Errors
    ///
    /// If dimensions are left without a size, the result of an unknown operation is not known, or the model is wrong.
    pub fn new(model: &Model, dims: &DimSizes) -> Result<Self, OnnxError> {
        let mut walk = Walk::new(model, dims);
        let program = walk.model()?;
        let (values, dim_names) = (walk.values, walk.dim_names.into_iter().collect());
        let mut weights = Weights::default();
        weights.add_graph(&model.graph);
        model.functions.iter().for_each(|function| weights.add_nodes(&function.nodes));
        let mut read: Vec<usize> = program.steps.iter().flat_map(|step| &step.sources).copied().collect();
        read.extend(&program.outputs);
        read.sort_unstable();
        read.dedup();
        let constants = read.into_iter().map(|id| &values[id]).filter(|value| value.kind == ValueKind::Constant);
        weights.computed = constants.filter_map(|value| value.fact.bytes()).fold(0, u64::saturating_add);
        let producers = producers(values.len(), &program);
        Ok(Self { values, program, producers, weights, dim_names })
    }

    /// Returns the bytes of the model's constants.
    pub fn weights(&self) -> Weights {
        self.weights
    }

    /// Returns the names of the dimensions that the file leaves free, and of which a size was given.
    pub fn dim_names(&self) -> impl Iterator<Item = &str> {
        self.dim_names.iter().map(String::as_str)
    }

    /// Returns an error for sizes of dimensions that the model does not have.
    ///
    /// # Errors
    ///
    /// If there is one.
    pub fn check_dims(&self, dims: &DimSizes) -> Result<(), OnnxError> {
        let is_known = |name: &str| self.dim_names.binary_search_by(|known| known.as_str().cmp(name)).is_ok();
        match dims.iter().find(|(name, _)| !is_known(name)) {
            Some((name, _)) => Err(OnnxError::UnknownDim { name: name.to_owned(), known: self.dim_names.clone() }),
            None => Ok(()),
        }
    }

    /// Returns type and shape of a tensor, such as `f32[1,3,224,224]`; `None` for what is no tensor of the model.
    pub fn layout(&self, key: OnnxKey) -> Option<String> {
        match key {
            OnnxKey::Value(id) => self.values.get(id).map(|value| value.fact.to_string()),
            OnnxKey::Inner(_) => None,
        }
    }

    /// Returns each value of the model itself, constants and all, with its name, type and shape, in the order in which they are
    /// computed; not those inside `If`, `Loop` and `Scan`.
    pub fn layouts(&self) -> impl Iterator<Item = (&str, String)> {
        self.values.iter().filter(|value| !value.is_inside).map(|value| (value.name.as_str(), value.fact.to_string()))
    }

    fn as_program(&self) -> ProgramGraph<'_> {
        ProgramGraph { values: &self.values, program: &self.program, producers: &self.producers }
    }
}

impl Weights {
    fn add(&mut self, tensor: &Tensor) {
        let bytes = tensor.stored_bytes().unwrap_or(0);
        self.stored = self.stored.saturating_add(bytes);
        if tensor.is_external {
            self.beside = self.beside.saturating_add(bytes);
        }
    }

    fn add_list(&mut self, count: usize, each: u64) {
        self.stored = self.stored.saturating_add((count as u64).saturating_mul(each));
    }

    fn add_graph(&mut self, graph: &Graph) {
        graph.initializers.iter().for_each(|tensor| self.add(tensor));
        self.add_nodes(&graph.nodes);
    }

    fn add_nodes(&mut self, nodes: &[Node]) {
        for (node, attribute) in nodes.iter().flat_map(|node| node.attributes.iter().map(move |it| (node, it))) {
            match &attribute.value {
                // Classical models have what they have learnt in lists.
                AttributeValue::Floats(floats) if node.domain == "ai.onnx.ml" => self.add_list(floats.len(), 4),
                AttributeValue::Ints(ints) if node.domain == "ai.onnx.ml" => self.add_list(ints.len(), 8),
                AttributeValue::Tensor(tensor) => self.add(tensor),
                AttributeValue::Graph(graph) => self.add_graph(graph),
                _ => {}
            }
        }
    }
}

impl TensorGraph for OnnxGraph {
    type Key = OnnxKey;

    fn nodes(&self) -> impl Iterator<Item = OnnxKey> {
        self.as_program().nodes().collect::<Vec<_>>().into_iter()
    }

    fn sources(&self, node: OnnxKey) -> impl Iterator<Item = OnnxKey> {
        self.as_program().sources(node).collect::<Vec<_>>().into_iter()
    }

    fn more_results(&self, node: OnnxKey) -> impl Iterator<Item = OnnxKey> {
        self.as_program().more_results(node).collect::<Vec<_>>().into_iter()
    }

    fn size(&self, tensor: OnnxKey) -> Bytes {
        self.as_program().size(tensor)
    }

    fn inputs(&self) -> impl Iterator<Item = OnnxKey> {
        self.program.inputs.iter().map(|id| OnnxKey::Value(*id))
    }

    fn outputs(&self) -> impl Iterator<Item = OnnxKey> {
        self.program.outputs.iter().map(|id| OnnxKey::Value(*id))
    }

    fn is_external(&self, tensor: OnnxKey) -> bool {
        self.as_program().is_external(tensor)
    }

    fn view_of(&self, tensor: OnnxKey) -> Option<(OnnxKey, Bytes)> {
        self.as_program().view_of(tensor)
    }

    fn may_overwrite(&self, node: OnnxKey, source: OnnxKey) -> bool {
        self.as_program().may_overwrite(node, source)
    }

    fn name(&self, tensor: OnnxKey) -> String {
        self.as_program().name(tensor)
    }

    fn op_name(&self, node: OnnxKey) -> &str {
        let OnnxKey::Value(id) = node else { return "node" };
        let step = self.producers.get(id).copied().flatten().and_then(|number| self.program.steps.get(number));
        step.map_or("node", |step| step.op.as_str())
    }

    fn memories(&self) -> Vec<Memory> {
        self.as_program().memories()
    }
}
