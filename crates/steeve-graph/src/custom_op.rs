//! Operations of the caller's: declared once, applied by [`Context::custom`], planned and replayed like any other.
//!
//! A declaration has a name, what the result looks like, and which sources the result may share memory with. Graphs keep the
//! name and the permissions, not the declaration: a graph that was saved and read again is planned without it, and a backend
//! looks a node's kernel up by the name of its operation.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::{CallError, Context, Glu, Graph, GraphError, Layout, Op, Param, Tensor, TensorId, Unary, View};

/// Derives the layout of a result from the layouts of the sources and the parameters.
type CustomShapeRule = dyn Fn(&[Option<Layout>], &[Param]) -> Result<Layout, String> + Send + Sync;

/// The planner looks at as many sources of a node for one to overwrite.
const MOST_SLOTS: usize = u16::BITS as usize;

/// Declares an operation of the caller's.
///
/// ```
/// use steeve_graph::{AssignedGraph, Context, CustomOp, DataType, Graph, PlanOptions, plan_graph};
/// let relu = CustomOp::elementwise("MY_RELU");
/// let mut context = Context::new();
/// let x = context.input(DataType::F32, &[64])?;
/// let y = context.custom(&relu, &[x], &[])?;
/// let z = context.custom(&relu, &[y], &[])?;
/// context.set_output(z)?;
/// let graph = AssignedGraph::from(Graph::from_outputs(&context, &[z])?);
/// // Both results are written over `x`.
/// assert_eq!(plan_graph(&graph, &PlanOptions::default())?.peak().get(), 64 * 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CustomOp {
    name: Arc<str>,
    rule: Option<Arc<CustomShapeRule>>,
    /// One bit per slot.
    overwrites: u16,
    writes_into: Option<usize>,
    /// The names of the parameters, where they are declared.
    params: Option<Arc<[String]>>,
}

impl CustomOp {
    /// Declares an operation that overwrites nothing. Its results have the layouts that are given to
    /// [`Context::custom_shaped`], unless it gets a [rule](Self::with_rule).
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), rule: None, overwrites: 0, writes_into: None, params: None }
    }

    /// Declares an operation whose result has the type and shape of source 0, and may overwrite it.
    ///
    /// This promises that element `i` of the result needs no other element of source 0 than `i`.
    pub fn elementwise(name: &str) -> Self {
        let like_first = |sources: &[Option<Layout>], _: &[Param]| {
            let first = sources.first().copied().flatten().ok_or("source 0: missing")?;
            Layout::contiguous(first.dtype(), &first.ne()).map_err(|error| error.to_string())
        };
        Self::new(name).with_rule(like_first).overwriting(0)
    }

    /// Derives the layouts of results from the layouts of the sources and the parameters. The error says what does not fit.
    pub fn with_rule(
        mut self,
        rule: impl Fn(&[Option<Layout>], &[Param]) -> Result<Layout, String> + Send + Sync + 'static,
    ) -> Self {
        self.rule = Some(Arc::new(rule));
        self
    }

    /// Permits the result to have the memory of the source in `slot`, element by element, if their layouts are equal and no
    /// later node reads that source.
    ///
    /// This promises that every kernel of the operation gives the same result there as anywhere else, which
    /// `steeve_device::conformance::check_custom_op` checks. The planner looks at the first 16 slots.
    pub fn overwriting(mut self, slot: usize) -> Self {
        if slot < MOST_SLOTS {
            self.overwrites |= 1 << slot;
        }
        self
    }

    /// Makes the result a view of the source in `slot`, into which the operation writes, as `CPY` and `SET_ROWS` do. Its
    /// layout is that of the source. What the kernel does not write keeps its contents.
    pub fn writing_into(mut self, slot: usize) -> Self {
        self.writes_into = Some(slot);
        self
    }

    /// Names the parameters. A node of the operation then has exactly these, in this order, and kernels may read them by name.
    /// Without this any number of them is accepted.
    ///
    /// ```
    /// use steeve_graph::{Context, CustomOp, DataType};
    /// let leaky = CustomOp::elementwise("LEAKY").with_params(&["slope"]);
    /// let mut context = Context::new();
    /// let x = context.input(DataType::F32, &[64])?;
    /// context.custom(&leaky, &[x], &[0.5.into()])?;
    /// let error = context.custom(&leaky, &[x], &[]).unwrap_err().to_string();
    /// assert_eq!(error, "LEAKY of (f32[64]): wrong number of parameters: expected 1 (slope), got 0");
    /// # Ok::<(), steeve_graph::GraphError>(())
    /// ```
    pub fn with_params(mut self, names: &[&str]) -> Self {
        self.params = Some(names.iter().map(|&name| name.into()).collect());
        self
    }

    /// Returns the name, by which graphs keep the operation and backends find its kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the result may have the memory of the source in `slot`, if their layouts are equal.
    pub fn overwrites(&self, slot: usize) -> bool {
        slot < MOST_SLOTS && self.overwrites >> slot & 1 == 1
    }

    /// Returns the slot of the source that the operation writes into.
    pub fn writes_into(&self) -> Option<usize> {
        self.writes_into
    }

    /// Returns the names of the parameters, in order; none if they are not [declared](Self::with_params).
    pub fn params(&self) -> &[String] {
        self.params.as_deref().unwrap_or_default()
    }

    /// Checks that a node is what this declaration says, so that a kernel may trust shapes and parameters.
    ///
    /// # Errors
    ///
    /// If the node is another operation or has another number of parameters than are declared, its result is not what the rule
    /// gives, or it is not a view of the source that is written into.
    pub fn check(&self, graph: &Graph, node: TensorId) -> Result<(), CallError> {
        let tensor = *graph.tensors().find(node).map_err(CallError::Unknown)?;
        let name = graph.tensors().op_name(tensor.op);
        if !matches!(tensor.op, Op::Other(_)) || name != self.name() {
            return Err(CallError::OtherOp { expected: self.name().into(), found: name.into() });
        }
        let layouts: Vec<_> =
            graph.sources(node).iter().map(|source| source.map(|source| graph.tensor(source).layout)).collect();
        if let Some(expected) = self.result(&layouts, graph.params(node)).map_err(|reason| self.refusal(reason))? {
            if expected.dtype() != tensor.layout.dtype() {
                let reason = alloc::format!("the result has another type: expected {expected}, got {}", tensor.layout);
                return Err(self.refusal(reason));
            }
            if expected.ne() != tensor.layout.ne() {
                return Err(CallError::Result { expected: expected.ne(), found: tensor.layout.ne() });
            }
        }
        match self.writes_into {
            Some(slot) if !graph.is_target(node, slot) => Err(CallError::View { slot }),
            None if tensor.view.is_some() => {
                Err(self.refusal("the result is a view, and the operation writes into no source".into()))
            }
            _ => Ok(()),
        }
    }

    fn refusal(&self, reason: String) -> CallError {
        CallError::Custom { op: self.name().into(), reason }
    }

    /// Returns the layout of the result, where the declaration says one. The error says what does not fit.
    fn result(&self, sources: &[Option<Layout>], params: &[Param]) -> Result<Option<Layout>, String> {
        if let Some(names) = self.params.as_deref().filter(|names| names.len() != params.len()) {
            let expected = match names {
                [] => String::from("none"),
                names => alloc::format!("{} ({})", names.len(), names.join(", ")),
            };
            return Err(alloc::format!("wrong number of parameters: expected {expected}, got {}", params.len()));
        }
        let target = match self.writes_into {
            Some(slot) => {
                let target = sources.get(slot).copied().flatten();
                Some(
                    target
                        .ok_or_else(|| alloc::format!("source {slot}: missing, though the operation writes into it"))?,
                )
            }
            None => None,
        };
        let Some(rule) = &self.rule else { return Ok(target) };
        let layout = rule(sources, params)?;
        match target {
            Some(target) if (target.dtype(), target.ne()) != (layout.dtype(), layout.ne()) => {
                Err(alloc::format!("the rule gives {layout}, and it writes into {target}"))
            }
            Some(target) => Ok(Some(target)),
            None => Ok(Some(layout)),
        }
    }

    fn check_name(&self) -> Result<(), GraphError> {
        let name = self.name();
        let is_like = |taken: &str| taken.eq_ignore_ascii_case(name);
        let is_taken = Op::PLAIN.iter().any(|op| is_like(op.name()))
            || Unary::ALL.iter().any(|kind| is_like(kind.name()))
            || Glu::ALL.iter().any(|kind| is_like(kind.name()))
            || ["UNARY", "GLU"].into_iter().any(is_like);
        if name.is_empty() || is_taken { Err(GraphError::CustomName { name: name.into() }) } else { Ok(()) }
    }
}

impl fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots: Vec<_> = (0..MOST_SLOTS).filter(|&slot| self.overwrites(slot)).collect();
        f.debug_struct("CustomOp")
            .field("name", &self.name)
            .field("has_rule", &self.rule.is_some())
            .field("overwrites", &slots)
            .field("writes_into", &self.writes_into)
            .field("params", &self.params)
            .finish()
    }
}

impl Context {
    /// Applies an operation of the caller's, whose [rule](CustomOp::with_rule) gives the layout of the result.
    ///
    /// # Errors
    ///
    /// If the rule refuses the sources, there is none, the number of parameters is not the declared one, or the name is that of an operation in the table, in upper or lower case.
    pub fn custom(&mut self, op: &CustomOp, sources: &[TensorId], params: &[Param]) -> Result<TensorId, GraphError> {
        self.custom_result(op, None, sources, params)
    }

    /// Applies an operation of the caller's to get a result of the given layout.
    ///
    /// # Errors
    ///
    /// If the operation has a rule that gives another layout, the number of parameters is not the declared one, or the name is that of an operation in the table, in upper or lower
    /// case.
    pub fn custom_shaped(
        &mut self,
        op: &CustomOp,
        result: Layout,
        sources: &[TensorId],
        params: &[Param],
    ) -> Result<TensorId, GraphError> {
        self.custom_result(op, Some(result), sources, params)
    }

    fn custom_result(
        &mut self,
        op: &CustomOp,
        wanted: Option<Layout>,
        sources: &[TensorId],
        params: &[Param],
    ) -> Result<TensorId, GraphError> {
        op.check_name()?;
        let sources: Vec<_> = sources.iter().copied().map(Some).collect();
        let layouts = self.layouts(&sources)?;
        let refuse = |reason: String| GraphError::CustomShape {
            op: op.name().into(),
            operands: self.named_operands(&sources, &layouts),
            reason,
        };
        let layout = match (op.result(&layouts, params).map_err(refuse)?, wanted) {
            (Some(said), Some(wanted)) if said != wanted => {
                return Err(refuse(alloc::format!("the result does not fit: expected {said}, got {wanted}")));
            }
            (Some(layout), _) | (None, Some(layout)) => layout,
            (None, None) => return Err(GraphError::NoRule { op: op.name().into() }),
        };
        let view = op.writes_into().and_then(|slot| sources.get(slot).copied().flatten());
        let view = view.map(|target| View { root: self.tensors().root(target), offset: self.tensors().offset(target) });
        let slots =
            (0..layouts.len().min(MOST_SLOTS)).filter(|&slot| op.overwrites(slot) && layouts[slot] == Some(layout));
        let permitted: Box<[usize]> = if view.is_some() { Box::default() } else { slots.collect() };
        self.push_custom(op.name(), Tensor { view, ..Tensor::new(layout) }, &sources, params, &permitted)
    }
}

impl Graph {
    /// Returns the slot of the source that a node writes into: by the table of operations (`CPY`, `SET_ROWS`), or, where the
    /// table does not have the operation and the result is a view, the first source with the memory and layout of the result.
    pub fn writes_into(&self, node: TensorId) -> Option<usize> {
        let tensor = self.tensor(node);
        let (Op::Other(_), Some(_)) = (tensor.op, tensor.view) else { return tensor.op.writes_into() };
        (0..self.sources(node).len()).find(|&slot| self.is_target(node, slot))
    }

    /// Returns whether a node is a view of all bytes of the source in `slot`, with the layout of that source.
    fn is_target(&self, node: TensorId, slot: usize) -> bool {
        let tensor = self.tensor(node);
        let (Some(view), Some(source)) = (tensor.view, self.sources(node).get(slot).copied().flatten()) else {
            return false;
        };
        let memory = (self.root(source), self.tensors().offset(source));
        source != node && memory == (view.root, view.offset) && self.tensor(source).layout == tensor.layout
    }

    /// Returns whether a node's result may have the memory of the source in `slot`, whatever the table of operations says.
    pub fn permits_overwrite(&self, node: TensorId, slot: usize) -> bool {
        slot < MOST_SLOTS && self.tensors().permitted_slots(node) >> slot & 1 == 1
    }
}
