//! Products, rows, joins and orders.

use crate::{Context, GraphError, Layout, Op, Param, TensorId};

/// In which direction to sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// The smallest first.
    Ascending,
    /// The largest first.
    Descending,
}

impl SortOrder {
    /// Returns ggml's number of the order.
    pub(crate) const fn ggml_id(self) -> i64 {
        match self {
            Self::Ascending => 0,
            Self::Descending => 1,
        }
    }

    pub(crate) fn from_ggml_id(number: i64) -> Option<Self> {
        [Self::Ascending, Self::Descending].into_iter().find(|order| order.ggml_id() == number)
    }
}

impl Context {
    /// Appends the matrix product: `a` `[k, m]` and `b` `[k, n]` make `[m, n]`. `a` is repeated over the outer
    /// dimensions.
    pub fn mul_mat(&mut self, a: TensorId, b: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::MulMat, &[Some(a), Some(b)], &[])
    }

    /// Appends the matrix product of each token with the experts that `ids` names for it.
    pub fn mul_mat_id(&mut self, experts: TensorId, b: TensorId, ids: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::MulMatId, &[Some(experts), Some(b), Some(ids)], &[])
    }

    /// Appends the rows of `a` that `ids` names.
    pub fn get_rows(&mut self, a: TensorId, ids: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::GetRows, &[Some(a), Some(ids)], &[])
    }

    /// Writes `rows` into `target` where `ids` says. The result is a view of `target`.
    pub fn set_rows(&mut self, target: TensorId, rows: TensorId, ids: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::SetRows, &[Some(rows), Some(ids), Some(target)], &[])
    }

    /// Appends `a` and `b` joined along dimension `dim`.
    pub fn concat(&mut self, a: TensorId, b: TensorId, dim: u32) -> Result<TensorId, GraphError> {
        self.apply(Op::Concat, &[Some(a), Some(b)], &[Param::Int(dim.into())])
    }

    /// Appends `a` repeated until it fills `shape`.
    pub fn repeat(&mut self, a: TensorId, shape: &[u64]) -> Result<TensorId, GraphError> {
        let wanted = Layout::contiguous(self.tensor(a)?.layout.dtype(), shape)?;
        self.build(Op::Repeat, &[Some(a)], &[], Some(wanted))
    }

    /// Appends a copy of `a` without gaps in another shape.
    pub fn cont_shaped(&mut self, a: TensorId, shape: &[u64]) -> Result<TensorId, GraphError> {
        let wanted = Layout::contiguous(self.tensor(a)?.layout.dtype(), shape)?;
        self.build(Op::Cont, &[Some(a)], &[], Some(wanted))
    }

    /// Appends the order that sorts each row.
    pub fn argsort(&mut self, a: TensorId, order: SortOrder) -> Result<TensorId, GraphError> {
        self.apply(Op::Argsort, &[Some(a)], &[Param::Int(order.ggml_id())])
    }

    /// Appends the positions of the `k` largest elements of each row, in any order.
    pub fn top_k(&mut self, a: TensorId, k: u64) -> Result<TensorId, GraphError> {
        self.apply(Op::TopK, &[Some(a)], &[Param::count(k)])
    }
}
