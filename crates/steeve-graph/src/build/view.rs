//! Views: other ways to look at the memory of a tensor.

use steeve_plan::Bytes;

use crate::{Context, GraphError, Layout, MAX_DIMS, Op, Param, TensorId};

impl Context {
    /// Appends a view of `ne` elements from `offset` on.
    pub fn view_1d(&mut self, a: TensorId, ne: u64, offset: Bytes) -> Result<TensorId, GraphError> {
        self.view(a, &[ne], &[], offset)
    }

    /// Appends a view of a plane with rows `stride` bytes apart.
    pub fn view_2d(&mut self, a: TensorId, ne: [u64; 2], stride: u64, offset: Bytes) -> Result<TensorId, GraphError> {
        self.view(a, &ne, &[stride], offset)
    }

    /// Appends a view of a cube; `strides` are those of the second and third dimension in bytes.
    pub fn view_3d(
        &mut self,
        a: TensorId,
        ne: [u64; 3],
        strides: [u64; 2],
        offset: Bytes,
    ) -> Result<TensorId, GraphError> {
        self.view(a, &ne, &strides, offset)
    }

    /// Appends a view with four dimensions; `strides` are those of all but the first in bytes.
    pub fn view_4d(
        &mut self,
        a: TensorId,
        ne: [u64; 4],
        strides: [u64; 3],
        offset: Bytes,
    ) -> Result<TensorId, GraphError> {
        self.view(a, &ne, &strides, offset)
    }

    /// Appends a view of all elements of `a` in another shape. `a` must have no gaps.
    pub fn reshape(&mut self, a: TensorId, shape: &[u64]) -> Result<TensorId, GraphError> {
        let wanted = Layout::contiguous(self.tensor(a)?.layout.dtype(), shape)?;
        self.build(Op::Reshape, &[Some(a)], &[], Some(wanted))
    }

    /// Appends a view with permuted dimensions: dimension `i` of `a` becomes dimension `axes[i]` of the result.
    pub fn permute(&mut self, a: TensorId, axes: [u32; 4]) -> Result<TensorId, GraphError> {
        self.apply(Op::Permute, &[Some(a)], &axes.map(|axis| Param::Int(axis.into())))
    }

    /// Appends a view with the first two dimensions exchanged.
    pub fn transpose(&mut self, a: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::Transpose, &[Some(a)], &[])
    }

    /// Copies `a` into the memory of `b`, which it may convert to. The result is a view of `b`.
    pub fn cpy(&mut self, a: TensorId, b: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::Cpy, &[Some(a), Some(b)], &[])
    }

    /// Appends a view. The first stride is that of the type; those behind the last one given have no gaps, as in
    /// ggml.
    fn view(&mut self, a: TensorId, shape: &[u64], strides: &[u64], offset: Bytes) -> Result<TensorId, GraphError> {
        let dtype = self.tensor(a)?.layout.dtype();
        let packed = Layout::contiguous(dtype, shape)?;
        let (ne, mut nb) = (packed.ne(), packed.nb());
        for dim in 1..MAX_DIMS {
            nb[dim] = match strides.get(dim - 1) {
                Some(&stride) => stride,
                None if dim == 1 => nb[1],
                None => nb[dim - 1].checked_mul(ne[dim - 1]).ok_or(crate::LayoutError::TooLarge { dtype, ne })?,
            };
        }
        let wanted = Layout::new(dtype, ne, nb)?;
        self.build(Op::View, &[Some(a)], &[Param::count(offset.get())], Some(wanted))
    }
}
