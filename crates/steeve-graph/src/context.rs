//! Where tensors are built: metadata only, no memory.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Id};

use crate::error::{Named, OperandLayouts};
use crate::graph_parts::checked_view;
use crate::shape::{OperandChecks, ShapeInput};
use crate::tensor::ContextId;
use crate::{DataType, Flags, GraphError, Layout, Names, Op, Param, ShapeError, Tensor, TensorId, Tensors, View};

/// Builds tensors, and checks their shapes while it does.
///
/// ```
/// use steeve_graph::{Context, DataType};
/// let mut context = Context::new();
/// let w = context.external(DataType::Q4K, &[256, 64])?;
/// context.set_name(w, "w")?;
/// // What is built behind a mark can be dropped again, so that a loop over tokens does not grow.
/// let mark = context.mark();
/// let x = context.input(DataType::F32, &[256, 1])?;
/// let y = context.mul_mat(w, x)?;
/// assert_eq!(context.tensor(y)?.layout.shape(), [64]);
/// context.rewind(mark)?;
/// assert!(context.tensor(y).is_err());
/// // A mistake shows the operation and the shapes.
/// let narrow = context.input(DataType::F32, &[32, 1])?;
/// let error = context.mul_mat(w, narrow).unwrap_err();
/// assert_eq!(error.to_string(), "mul_mat of (w q4_K[256,64], f32[32]): the first dimensions must be equal");
/// # Ok::<(), steeve_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Context {
    tensors: Arc<Tensors>,
    names: Arc<Names>,
    /// Which context it is, to marks. Clones are one to them.
    identity: ContextId,
}

/// A moment in the life of a [`Context`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextMark {
    context: ContextId,
    /// The last tensor there was.
    last: Option<TensorId>,
}

impl Context {
    /// Returns an empty context.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the tensors built so far.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// Returns the names given so far.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns a tensor.
    ///
    /// # Errors
    ///
    /// If it was never built in this context or has been rewound.
    pub fn tensor(&self, id: TensorId) -> Result<&Tensor, GraphError> {
        self.tensors.find(id)
    }

    /// Remembers what has been built so far.
    pub fn mark(&self) -> ContextMark {
        ContextMark { context: self.identity, last: self.tensors.ids().next_back() }
    }

    /// Drops what was built after the mark. Ids of such tensors are no longer valid; the next tensors that are built get
    /// them. Graphs made before keep theirs.
    ///
    /// # Errors
    ///
    /// If the mark is one of another context, or of this one before a rewind.
    pub fn rewind(&mut self, mark: ContextMark) -> Result<(), GraphError> {
        let left = mark.last.map_or(0, |last| last.index() + 1);
        let is_there = mark.last.is_none_or(|last| self.tensors.get(last).is_some());
        if mark.context != self.identity || !is_there {
            return Err(GraphError::Mark { mark: left, tensors: self.tensors.len() });
        }
        if left < self.tensors.len() {
            Arc::make_mut(&mut self.tensors).truncate(left);
            Arc::make_mut(&mut self.names).truncate(left);
        }
        Ok(())
    }

    /// Appends a tensor that no node computes: a constant or a plain input, whose memory will be planned.
    pub fn new_tensor(&mut self, dtype: DataType, shape: &[u64]) -> Result<TensorId, GraphError> {
        self.push(Tensor::new(Layout::contiguous(dtype, shape)?), &[], &[])
    }

    /// Appends a tensor that the caller writes before a run.
    pub fn input(&mut self, dtype: DataType, shape: &[u64]) -> Result<TensorId, GraphError> {
        let tensor = Tensor::new(Layout::contiguous(dtype, shape)?);
        self.push(Tensor { flags: Flags::INPUT, ..tensor }, &[], &[])
    }

    /// Appends a tensor whose memory the caller provides: a weight, a cache.
    pub fn external(&mut self, dtype: DataType, shape: &[u64]) -> Result<TensorId, GraphError> {
        let tensor = Tensor::new(Layout::contiguous(dtype, shape)?);
        self.push(Tensor { external: true, ..tensor }, &[], &[])
    }

    /// Appends a tensor of any kind. What the other functions append is checked more closely.
    ///
    /// # Errors
    ///
    /// If a source or root is not of this context, or a view is outside of its root.
    pub fn add_tensor(
        &mut self,
        tensor: Tensor,
        sources: &[Option<TensorId>],
        params: &[Param],
    ) -> Result<TensorId, GraphError> {
        for &source in sources.iter().flatten() {
            self.tensor(source)?;
        }
        let view = match tensor.view {
            Some(View { root, .. }) => {
                self.tensor(root)?;
                checked_view(&self.tensors, &self.names, root, &tensor)?
            }
            None => None,
        };
        self.push(Tensor { view, ..tensor }, sources, params)
    }

    /// Applies any operation of the table; the functions named after them do the same with arguments that have names.
    ///
    /// # Errors
    ///
    /// If a source is not of this context, or the rule of the operation refuses sources or parameters.
    pub fn apply(&mut self, op: Op, sources: &[Option<TensorId>], params: &[Param]) -> Result<TensorId, GraphError> {
        self.build(op, sources, params, None)
    }

    /// Returns the operation with ggml's name and kind; an unknown one is kept by name.
    pub fn op(&mut self, name: &str, kind: Option<&str>) -> Result<Op, GraphError> {
        Arc::make_mut(&mut self.tensors).op(name, kind)
    }

    /// Gives a tensor a name.
    ///
    /// # Errors
    ///
    /// If the tensor is not of this context.
    pub fn set_name(&mut self, tensor: TensorId, name: &str) -> Result<(), GraphError> {
        self.tensor(tensor)?;
        Arc::make_mut(&mut self.names).set(tensor, name);
        Ok(())
    }

    /// Marks a tensor as an input: the caller writes it before a run.
    pub fn set_input(&mut self, tensor: TensorId) -> Result<(), GraphError> {
        self.flag(tensor, Flags::INPUT)
    }

    /// Marks a tensor as an output: the caller reads it after a run.
    pub fn set_output(&mut self, tensor: TensorId) -> Result<(), GraphError> {
        self.flag(tensor, Flags::OUTPUT)
    }

    /// Keeps a tensor until the end of a run, as an output, so that an input need not be written again for the next
    /// run.
    pub fn keep(&mut self, tensor: TensorId) -> Result<(), GraphError> {
        self.set_output(tensor)
    }

    /// Marks a tensor as a parameter, which training changes.
    pub fn set_param(&mut self, tensor: TensorId) -> Result<(), GraphError> {
        self.flag(tensor, Flags::PARAM)
    }

    /// Marks a tensor as the loss, which training minimises.
    pub fn set_loss(&mut self, tensor: TensorId) -> Result<(), GraphError> {
        self.flag(tensor, Flags::LOSS)
    }

    /// Makes a tensor external: the caller provides its memory.
    ///
    /// # Errors
    ///
    /// If it is a view, whose memory is its root's.
    pub fn set_external(&mut self, tensor: TensorId) -> Result<(), GraphError> {
        if let Some(view) = self.tensor(tensor)?.view {
            let named = |id| Named::new(id, &self.names);
            return Err(GraphError::ExternalView { tensor: named(tensor), root: named(view.root) });
        }
        self.change(tensor, |it| it.external = true)
    }

    pub(crate) fn tables(&self) -> (Arc<Tensors>, Arc<Names>) {
        (Arc::clone(&self.tensors), Arc::clone(&self.names))
    }

    /// Applies an operation, where the caller may say what the result should be.
    pub(crate) fn build(
        &mut self,
        op: Op,
        sources: &[Option<TensorId>],
        params: &[Param],
        wanted: Option<Layout>,
    ) -> Result<TensorId, GraphError> {
        let layouts = self.layouts(sources)?;
        let title = || self.tensors.op_title(op).to_ascii_lowercase();
        let Some(rule) = op.entry().rule else {
            return Err(GraphError::NoRule { op: title() });
        };
        let inferred =
            rule(&ShapeInput { sources: &layouts, params, wanted, checks: OperandChecks::Ggml }).map_err(|reason| {
                let operands = self.operands(sources, &layouts, wanted, reason);
                GraphError::Shape { op: title(), operands, reason }
            })?;
        let view = match inferred.shares {
            Some((slot, offset)) => self.view_of(sources.get(slot).copied().flatten(), offset, &inferred.layout)?,
            None => None,
        };
        let tensor = Tensor { op, view, ..Tensor::new(inferred.layout) };
        self.push(tensor, sources, params)
    }

    pub(crate) fn push(
        &mut self,
        tensor: Tensor,
        sources: &[Option<TensorId>],
        params: &[Param],
    ) -> Result<TensorId, GraphError> {
        let tensors = Arc::make_mut(&mut self.tensors);
        let id = tensors.push(tensor, sources, params)?;
        tensors.adopt(id, tensor.view);
        Ok(id)
    }

    /// Appends a node of an operation that only its name is known of, which may overwrite the sources in some slots.
    pub(crate) fn push_custom(
        &mut self,
        name: &str,
        tensor: Tensor,
        sources: &[Option<TensorId>],
        params: &[Param],
        overwrites: &[usize],
    ) -> Result<TensorId, GraphError> {
        let op = Arc::make_mut(&mut self.tensors).other_op(name)?;
        let id = self.push(Tensor { op, ..tensor }, sources, params)?;
        let tensors = Arc::make_mut(&mut self.tensors);
        overwrites.iter().for_each(|&slot| tensors.permit_overwrite(id, slot));
        Ok(id)
    }

    pub(crate) fn layouts(&self, sources: &[Option<TensorId>]) -> Result<Vec<Option<Layout>>, GraphError> {
        let layout = |source: &Option<TensorId>| match *source {
            Some(source) => Ok(Some(self.tensor(source)?.layout)),
            None => Ok(None),
        };
        sources.iter().map(layout).collect()
    }

    /// Returns the sources for an error, and the wanted shape where that is what does not fit.
    fn operands(
        &self,
        sources: &[Option<TensorId>],
        layouts: &[Option<Layout>],
        wanted: Option<Layout>,
        reason: ShapeError,
    ) -> OperandLayouts {
        let mut operands = self.named_operands(sources, layouts);
        let result = wanted.filter(|_| matches!(reason, ShapeError::Unfit(_)));
        operands.0.extend(result.map(|layout| Some(("result".into(), layout))));
        operands
    }

    /// Returns the sources with their names, for an error.
    pub(crate) fn named_operands(&self, sources: &[Option<TensorId>], layouts: &[Option<Layout>]) -> OperandLayouts {
        let name = |source: &Option<TensorId>| source.map_or("", |source| self.names.get(source)).into();
        let given = sources.iter().zip(layouts).map(|(source, layout)| layout.map(|layout| (name(source), layout)));
        OperandLayouts(given.collect())
    }

    /// Returns a view of a source, flattened: the root of a view of a view is the tensor that owns the memory.
    fn view_of(&self, source: Option<TensorId>, offset: Bytes, layout: &Layout) -> Result<Option<View>, GraphError> {
        let Some(source) = source else {
            return Err(GraphError::NoRule { op: "view".to_string() });
        };
        let root = self.tensors.root(source);
        // An offset that overflows lies outside of any root; the largest one is refused below, unless there are no bytes.
        let offset = self.tensors.offset(source).checked_add(offset).unwrap_or(Bytes(u64::MAX));
        let view = Some(View { root, offset });
        checked_view(&self.tensors, &self.names, source, &Tensor { view, ..Tensor::new(*layout) })
    }

    fn flag(&mut self, tensor: TensorId, flag: Flags) -> Result<(), GraphError> {
        self.change(tensor, |it| it.flags |= flag)
    }

    fn change(&mut self, tensor: TensorId, act: impl FnOnce(&mut Tensor)) -> Result<(), GraphError> {
        self.tensor(tensor)?;
        act(Arc::make_mut(&mut self.tensors).find_mut(tensor)?);
        Ok(())
    }
}
