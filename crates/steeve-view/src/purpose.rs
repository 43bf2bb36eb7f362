//! Guesses the role and the layer of each tensor: from its own name, else from the names of the weights it is made of,
//! else from its operation, else from what it is made of and what reads it. O(edges).
//!
//! Models for images and sound name nothing, so that only the data flow distinguishes a product of queries and keys (a
//! soft-max reads it) from a convolution (an unfolded image is its operand).

use steeve_graph::{Graph, Op, TensorId};
use steeve_plan::Id;

use crate::layer::source_of_copy;
use crate::role::{WrittenLeafs, is_no_name};
use crate::{Role, layer_of};

/// The role of a tensor, and the block of a network it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorPurpose {
    pub(crate) role: Role,
    pub(crate) layer: Option<u32>,
}

/// Guesses the purpose of every root, by the number of the tensor. That of a view is its root's.
pub(crate) fn purposes(graph: &Graph) -> Vec<TensorPurpose> {
    let mut flow = PurposeInference::new(graph);
    flow.find_results();
    flow.follow_operands();
    flow.follow_readers();
    flow.follow_operands();
    flow.find_residuals();
    flow.purposes
}

const UNKNOWN: TensorPurpose = TensorPurpose { role: Role::Other, layer: None };

/// Guesses the purpose of a tensor from what is known of it alone: its flags, its name, its weight and its operation.
fn purpose(graph: &Graph, written: &WrittenLeafs, tensor: TensorId, name: &str) -> TensorPurpose {
    if written.is_weight_copy(graph, tensor) {
        return TensorPurpose { role: Role::WeightCopy, layer: layer_of(name) };
    }
    let it = graph.tensor(tensor);
    let operation = if it.op == Op::None { "" } else { graph.tensors().op_title(it.op) }.to_lowercase();
    let own = TensorPurpose { role: Role::guess(it.flags, name, &operation), layer: layer_of(name) };
    if !is_no_name(name) || it.flags.is_input() {
        return own;
    }
    let weight = |source| weight_name(graph, source).map(|name| of_weight(name, it.op));
    let Some(weight) = graph.sources(tensor).iter().copied().flatten().find_map(weight) else { return own };
    let role = if own.role.is_vague() { weight.role.unwrap_or(own.role) } else { own.role };
    TensorPurpose { role, layer: weight.layer }
}

struct PurposeInference<'a> {
    graph: &'a Graph,
    purposes: Vec<TensorPurpose>,
    /// Whether a tensor is more than a weight in another shape. Not all programs flag their inputs, so whatever is made
    /// of two tensors varies.
    varies: Vec<bool>,
}

impl<'a> PurposeInference<'a> {
    fn new(graph: &'a Graph) -> Self {
        let written = WrittenLeafs::of(graph);
        let names = names(graph);
        let mut varies = vec![false; graph.tensors().len()];
        let mut purposes = Vec::with_capacity(varies.len());
        for tensor in graph.tensors().ids() {
            let (it, root) = (graph.tensor(tensor), graph.root(tensor));
            let sources = || graph.sources(tensor).iter().copied().flatten();
            let is_made = sources().any(|source| varies[graph.root(source).index()]) || sources().count() > 1;
            if it.flags.is_input() || is_made {
                varies[root.index()] = true;
            }
            // Memory outside of the plan, and mere views, need no purpose.
            let is_idle = graph.tensor(root).external || (it.is_view() && it.op.writes_nothing());
            purposes.push(if is_idle { UNKNOWN } else { purpose(graph, &written, tensor, names[tensor.index()]) });
        }
        Self { graph, purposes, varies }
    }

    fn role(&self, tensor: TensorId) -> Role {
        self.purposes[self.graph.root(tensor).index()].role
    }

    /// Sets the role of a node's bytes, if none is known.
    fn set(&mut self, node: TensorId, role: Role) {
        let purpose = &mut self.purposes[self.graph.root(node).index()];
        if purpose.role.is_vague() {
            purpose.role = role;
        }
    }

    /// Returns the operands that are no weights, with their roles.
    fn operands(&self, node: TensorId) -> impl Iterator<Item = (TensorId, Role)> {
        let sources = self.graph.sources(node).iter().copied().flatten();
        sources.filter(|it| self.varies[self.graph.root(*it).index()]).map(|it| (it, self.role(it)))
    }

    /// Gives nodes of unknown purpose that of their operands, from first to last.
    fn follow_operands(&mut self) {
        for node in self.graph.nodes() {
            // What is made in place has the operation's role too, not only that of its root.
            let own = self.purposes[node.index()].role;
            let role = match self.graph.tensor(*node).op {
                _ if !self.role(*node).is_vague() => None,
                _ if !own.is_vague() => Some(own),
                Op::MulMat => self.of_product(*node),
                op if op.writes_nothing() => None,
                _ => self.of_elementwise(*node),
            };
            if let Some(role) = role {
                self.set(*node, role);
            }
        }
    }

    fn of_product(&self, node: TensorId) -> Option<Role> {
        // Whatever is multiplied with a soft-max are values; what is multiplied with an unfolded image are kernels.
        let spreads = |role: &Role| role.spreads() || *role == Role::Convolution;
        let is_image = |it: &TensorId| matches!(self.graph.tensor(self.graph.root(*it)).op, Op::Im2col);
        self.operands(node)
            .find(|(it, role)| spreads(role) && (*role != Role::Convolution || is_image(it)))
            .map(|it| it.1)
    }

    /// Returns the role of an elementwise node: that of the one operand that is as large as the result, since the other
    /// is a bias or a scale.
    fn of_elementwise(&self, node: TensorId) -> Option<Role> {
        let size = self.graph.tensor(node).layout.elements();
        let is_main = |(it, _): &(TensorId, Role)| self.graph.tensor(*it).layout.elements() >= size;
        let mut main = self.operands(node).filter(is_main);
        let ((_, role), rest) = (main.next()?, main.next());
        let op = self.graph.tensor(node).op;
        match (role, rest) {
            // An activation between two products.
            (Role::Product | Role::Elementwise | Role::Copy, None) if matches!(op, Op::Unary(_)) => {
                Some(Role::FeedForward)
            }
            (Role::Residual, _) if self.role(node) != Role::Copy => None,
            (role, None) if !role.is_vague() && role != Role::Input => Some(role),
            // A gate.
            (role, Some((_, other))) if op == Op::Mul => [role, other].into_iter().find(|it| it.spreads()),
            _ => None,
        }
    }

    /// Gives operands of attention and of feed-forward parts their role, from last to first.
    fn follow_readers(&mut self) {
        for node in self.graph.nodes().iter().rev() {
            let role = self.role(*node);
            if role.spreads() && !self.graph.tensor(*node).op.writes_nothing() {
                let operands: Vec<TensorId> = self.operands(*node).map(|(it, _)| it).collect();
                operands.into_iter().for_each(|it| self.set(it, role));
            }
        }
    }

    /// Marks residuals: the sum of two values of one shape without another role, and the values it starts with.
    fn find_residuals(&mut self) {
        for node in self.graph.nodes() {
            let it = self.graph.tensor(*node);
            let is_equal =
                |(source, _): &(TensorId, Role)| self.graph.tensor(*source).layout.elements() == it.layout.elements();
            let equal: Vec<TensorId> = self.operands(*node).filter(is_equal).map(|(it, _)| it).collect();
            if it.op == Op::Add && equal.len() == 2 {
                self.set(*node, Role::Residual);
                if self.role(*node) == Role::Residual {
                    equal.into_iter().for_each(|it| self.set(it, Role::Residual));
                }
            }
        }
    }

    /// Marks results: what no node reads is for the caller, also where no flag says so.
    fn find_results(&mut self) {
        let mut is_read = vec![false; self.varies.len()];
        for node in self.graph.nodes() {
            let root = self.graph.root(*node);
            for source in self.graph.sources(*node).iter().copied().flatten().map(|it| self.graph.root(it)) {
                is_read[source.index()] |= source != root;
            }
        }
        for node in self.graph.nodes().iter().filter(|it| !is_read[self.graph.root(**it).index()]) {
            self.set(*node, Role::Output);
        }
    }
}

/// Returns the name of each tensor; that of a view where it has none.
fn names(graph: &Graph) -> Vec<&str> {
    let is_named = |name: &str| !is_no_name(name);
    let mut names: Vec<&str> = graph.tensors().ids().map(|tensor| graph.name(tensor)).collect();
    for tensor in graph.tensors().ids() {
        let (root, name) = (graph.root(tensor).index(), graph.name(tensor));
        if is_named(name) && !is_named(names[root]) {
            names[root] = name;
        }
    }
    names
}

/// Returns the name of a weight, or of the one that a copy was made of.
fn weight_name(graph: &Graph, source: TensorId) -> Option<&str> {
    let root = graph.root(source);
    let (it, name) = (graph.tensor(root), graph.name(root));
    let copied = source_of_copy(name);
    let name = copied.unwrap_or(name);
    let is_leaf = it.op == Op::None && !it.flags.is_input() && (it.external || copied.is_some());
    (is_leaf && !is_no_name(name)).then_some(name)
}

struct WeightPurpose {
    role: Option<Role>,
    layer: Option<u32>,
}

fn of_weight(name: &str, reader: Op) -> WeightPurpose {
    let is_head = ["token_embd", "output.weight", "lm_head"].iter().any(|it| name.starts_with(it));
    let role = if is_head && reader == Op::MulMat { Some(Role::Output) } else { Role::of_name(name) };
    WeightPurpose { role, layer: layer_of(name) }
}
