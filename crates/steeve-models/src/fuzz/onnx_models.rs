//! Random ONNX models, and the body of their fuzz target.

use steeve_graph::fuzz::Choices;
use steeve_graph::{KeyedGraph, PlanOptions, Reuse, Unread, plan_tensor_graph};

use super::MOST_TENSORS;
use crate::onnx::SmallAttribute::{Graph, Int, Tensor};
use crate::onnx::{DataType, DimSizes, Model, OnnxError, OnnxGraph, SmallModel};

/// How often sizes are given for the dimensions that an error lists: those that depend on data come up one after the other.
const MOST_ROUNDS: usize = 8;

/// Checks that any file is refused or read; that what is read is refused or planned, at the sizes that it asks for; and that plans are
/// right.
///
/// # Panics
///
/// If it does not: that is what a fuzzer looks for.
pub fn onnx(bytes: &[u8]) {
    let Ok(model) = Model::read(bytes) else { return };
    for size in [1, 0, 7] {
        // What is not planned is refused for a reason, whatever that is.
        let _ = planned(&model, size).map_err(|error| assert!(!error.to_string().is_empty()));
    }
}

/// Checks that a file is read and planned at some size, and what [`onnx`] checks of any.
///
/// # Panics
///
/// If it is not: that is what a fuzzer looks for.
pub fn valid_onnx(bytes: &[u8]) {
    let model = Model::read(bytes).unwrap_or_else(|error| unreachable!("{error}"));
    planned(&model, 3).unwrap_or_else(|error| unreachable!("{error}"));
    onnx(bytes);
}

/// Plans a model with every dimension that it leaves free of one size, and replays the plans.
fn planned(model: &Model, size: u64) -> Result<(), OnnxError> {
    let mut sizes: Vec<(String, u64)> = Vec::new();
    for _ in 0..MOST_ROUNDS {
        let graph = match OnnxGraph::new(model, &DimSizes::new(sizes.iter().cloned())?) {
            Err(OnnxError::FreeDims { free }) => {
                assert!(!free.is_empty());
                for dim in free {
                    // What was given is not asked for again.
                    assert!(sizes.iter().all(|(name, _)| *name != dim.name), "{dim}");
                    sizes.push((dim.name, size));
                }
                continue;
            }
            graph => graph?,
        };
        let keyed = KeyedGraph::new(&graph)?;
        if keyed.assigned().graph().tensors().len() > MOST_TENSORS {
            return Ok(());
        }
        for reuse in [Reuse::default(), Reuse::None] {
            let options = PlanOptions::default().with_unread(Unread::Free).with_reuse(reuse);
            let plan = plan_tensor_graph(&graph, &options)?;
            keyed.replay(|key| plan.place(key)).unwrap_or_else(|error| unreachable!("{error}"));
        }
        return Ok(());
    }
    Ok(())
}

/// A model in the making, with what it has computed so far.
struct RandomGraph {
    model: SmallModel,
    /// The names of tensors of one shape: batch, 4, 8.
    known: Vec<String>,
    /// What names of this graph begin with: those of graphs around it are others.
    prefix: String,
    count: usize,
    /// Whether it is the model itself.
    is_whole: bool,
}

impl RandomGraph {
    fn new(prefix: String, known: Vec<String>) -> Self {
        Self { model: SmallModel::new(), known, prefix, count: 0, is_whole: false }
    }

    fn fresh(&mut self) -> String {
        self.count += 1;
        format!("{}{}", self.prefix, self.count)
    }

    fn any(&self, choices: &mut Choices<'_>) -> String {
        self.known[choices.below(self.known.len())].clone()
    }

    /// Adds nodes, the last of which is the result; `depth` is how deep graphs inside may be.
    fn grow(&mut self, choices: &mut Choices<'_>, depth: usize) {
        for _ in 0..=choices.below(6) {
            let kind = choices.below(if depth > 0 { 11 } else { 8 });
            let from = self.any(choices);
            let to = self.fresh();
            match kind {
                0 => self.node("Relu", &[&from], &to),
                1 => {
                    let other = self.any(choices);
                    self.node("Add", &[&from, &other], &to);
                }
                2 => self.through(&from, &to, ["Transpose", "Transpose"]),
                3 => self.reshaped(&from, &to),
                4 => self.split(choices, &from, &to),
                5 => self.node("Softmax", &[&from], &to),
                6 => {
                    let weights = self.fresh();
                    self.model.constant(&weights, DataType::FLOAT, &[8, 8]);
                    self.node("MatMul", &[&from, &weights], &to);
                }
                7 => self.node("Identity", &[&from], &to),
                8 => self.choice(choices, &to, depth),
                9 => self.turns(choices, &from, &to, depth),
                _ => self.scan(choices, &from, &to, depth),
            }
            self.known.push(to);
        }
    }

    fn node(&mut self, op: &str, inputs: &[&str], output: &str) {
        self.model.node(op, inputs, &[output]);
    }

    /// Adds two nodes, the second of which has the first's shape turned back.
    fn through(&mut self, from: &str, to: &str, ops: [&str; 2]) {
        let between = self.fresh();
        self.node(ops[0], &[from], &between);
        self.node(ops[1], &[&between], to);
    }

    /// Computes a shape, and takes a tensor through another one.
    fn reshaped(&mut self, from: &str, to: &str) {
        let [shape, flat, rest, shape_of] = [(); 4].map(|()| self.fresh());
        self.model.ints(&rest, &[-1]);
        self.node("Shape", &[from], &shape_of);
        self.node("Identity", &[&shape_of], &shape);
        self.node("Reshape", &[from, &rest], &flat);
        self.node("Reshape", &[&flat, &shape], to);
    }

    fn split(&mut self, choices: &mut Choices<'_>, from: &str, to: &str) {
        let parts: Vec<String> = (0..choices.below(3) + 1).map(|_| self.fresh()).collect();
        let names: Vec<&str> = parts.iter().map(String::as_str).collect();
        let along = [("axis", Int(-1)), ("num_outputs", Int(i64::try_from(parts.len()).unwrap_or(1)))];
        self.model.node_with(("", "Split"), &[from], &names, &along);
        self.model.node_with(("", "Concat"), &names, &[to], &[("axis", Int(-1))]);
    }

    /// Returns a graph inside this one that reads what is known here.
    fn inside(&mut self, known: Vec<String>) -> Self {
        let name = self.fresh();
        Self::new(format!("{name}_"), [known, self.known.clone()].concat())
    }

    fn choice(&mut self, choices: &mut Choices<'_>, to: &str, depth: usize) {
        let mut branch = || {
            let mut branch = self.inside(Vec::new());
            branch.grow(choices, depth - 1);
            let result = branch.any(choices);
            branch.model.output(&result);
            Graph(Box::new(branch.model))
        };
        let branches = [("then_branch", branch()), ("else_branch", branch())];
        let condition = if choices.below(4) == 0 { "yes" } else { "flag" };
        self.model.node_with(("", "If"), &[condition], &[to], &branches);
    }

    fn turns(&mut self, choices: &mut Choices<'_>, from: &str, to: &str, depth: usize) {
        let state = self.fresh();
        let mut body = self.inside(vec![state.clone()]);
        let [number, condition, go] = [(); 3].map(|()| body.fresh());
        body.model.input(&number, DataType::INT64, &[]);
        body.model.input(&condition, DataType::BOOL, &[]);
        body.model.input(&state, DataType::FLOAT, &["batch", "4", "8"]);
        body.grow(choices, depth - 1);
        match choices.below(2) {
            0 => body.model.node("Identity", &[&condition], &[&go]),
            _ => body.model.node_with(("", "Constant"), &[], &[&go], &[("value", Tensor(vec![1]))]),
        }
        let (next, collected) = (body.any(choices), body.any(choices));
        [go, next, collected].iter().for_each(|name| body.model.output(name));
        let all = self.fresh();
        let body = [("body", Graph(Box::new(body.model)))];
        self.model.node_with(("", "Loop"), &["turns", "", from], &[to, &all], &body);
        // The outputs of graphs inside others are in the order of the results of the step around them.
        if self.is_whole {
            self.model.output(&all);
        }
    }

    fn scan(&mut self, choices: &mut Choices<'_>, from: &str, to: &str, depth: usize) {
        let (state, row) = (self.fresh(), self.fresh());
        let mut body = self.inside(vec![state.clone()]);
        body.model.input(&state, DataType::FLOAT, &["batch", "4", "8"]);
        body.model.input(&row, DataType::FLOAT, &["4", "8"]);
        let sum = body.fresh();
        body.model.node("Add", &[&state, &row], &[&sum]);
        body.known.push(sum);
        body.grow(choices, depth - 1);
        let next = body.any(choices);
        body.model.output(&next);
        let scanned = self.any(choices);
        let attributes = [("num_scan_inputs", Int(1)), ("body", Graph(Box::new(body.model)))];
        self.model.node_with(("", "Scan"), &[from, &scanned], &[to], &attributes);
    }
}

/// Returns a random model: nodes of several kinds, shapes that are computed, views, and graphs inside each other.
pub fn random_onnx(choices: &mut Choices<'_>) -> SmallModel {
    let mut graph = RandomGraph::new("t".to_owned(), vec!["x".to_owned()]);
    graph.is_whole = true;
    graph.model.input("x", DataType::FLOAT, &["batch", "4", "8"]);
    graph.model.input("flag", DataType::BOOL, &[]);
    graph.model.ints("yes", &[1]);
    graph.model.ints("turns", &[5]);
    graph.grow(choices, 3);
    for _ in 0..=choices.below(3) {
        let output = graph.any(choices);
        graph.model.output(&output);
    }
    graph.model
}
