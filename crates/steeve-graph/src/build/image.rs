//! Convolution, pooling, padding and interpolation.

use crate::{Context, DataType, GraphError, Layout, Op, Param, TensorId};

/// How a kernel moves over an image: one number for each direction, across first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// How far it moves.
    pub stride: [u32; 2],
    /// How many zeros are added on each side.
    pub padding: [u32; 2],
    /// How far its elements are apart.
    pub dilation: [u32; 2],
}

impl Default for Convolution {
    fn default() -> Self {
        Self { stride: [1; 2], padding: [0; 2], dilation: [1; 2] }
    }
}

/// What is taken from a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// The largest element.
    Max,
    /// The mean.
    Mean,
}

impl Pool {
    /// Returns ggml's number of the pool.
    pub(crate) const fn ggml_id(self) -> i64 {
        match self {
            Self::Max => 0,
            Self::Mean => 1,
        }
    }

    pub(crate) fn from_ggml_id(number: i64) -> Option<Self> {
        [Self::Max, Self::Mean].into_iter().find(|pool| pool.ggml_id() == number)
    }

    const fn param(self) -> Param {
        Param::Int(self.ggml_id())
    }
}

/// A window that moves over an image: one number for each direction, across first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// How large it is.
    pub size: [u32; 2],
    /// How far it moves.
    pub stride: [u32; 2],
    /// How much is added on each side; ggml allows fractions.
    pub padding: [f32; 2],
}

/// How the elements between two are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest one.
    Nearest,
    /// A mean of the four around.
    Bilinear,
}

impl Interpolation {
    /// Returns ggml's number of the interpolation.
    pub(crate) const fn ggml_id(self) -> i64 {
        match self {
            Self::Nearest => 0,
            Self::Bilinear => 1,
        }
    }

    pub(crate) fn from_ggml_id(number: i64) -> Option<Self> {
        [Self::Nearest, Self::Bilinear].into_iter().find(|interpolation| interpolation.ggml_id() == number)
    }
}

impl Context {
    /// Appends the patches of `image` `[w, h, channel, n]` under `kernel` `[w, h, channel, ..]`, one in each row.
    pub fn im2col(
        &mut self,
        kernel: TensorId,
        image: TensorId,
        way: Convolution,
        dtype: DataType,
    ) -> Result<TensorId, GraphError> {
        self.patches(kernel, image, way, dtype, 1)
    }

    /// Convolves `image` `[w, h, channel, n]` with `kernel` `[w, h, channel, out]`, by a matrix product of its patches.
    pub fn conv_2d(&mut self, kernel: TensorId, image: TensorId, way: Convolution) -> Result<TensorId, GraphError> {
        let filter = self.tensor(kernel)?.layout;
        let patches = self.patches(kernel, image, way, filter.dtype(), 1)?;
        let [patch, width, height, images] = self.tensor(patches)?.layout.ne();
        let [w, h, channels, out] = filter.ne();
        let rows = self.reshape(patches, &[patch, product(&[width, height, images])])?;
        let filters = self.reshape(kernel, &[product(&[w, h, channels]), out])?;
        let flat = self.mul_mat(rows, filters)?;
        let split = self.reshape(flat, &[width, height, images, out])?;
        let turned = self.permute(split, [0, 1, 3, 2])?;
        self.cont(turned)
    }

    /// Convolves `rows` `[length, channel, n]` with `kernel` `[length, channel, out]`. Only the first direction of
    /// `way` counts.
    pub fn conv_1d(&mut self, kernel: TensorId, rows: TensorId, way: Convolution) -> Result<TensorId, GraphError> {
        let patches = self.patches(kernel, rows, way, DataType::F16, 0)?;
        let [patch, length, count, _] = self.tensor(patches)?.layout.ne();
        let [size, channels, out, _] = self.tensor(kernel)?.layout.ne();
        let flat = self.reshape(patches, &[patch, product(&[length, count])])?;
        let filters = self.reshape(kernel, &[product(&[size, channels]), out])?;
        let product = self.mul_mat(flat, filters)?;
        self.reshape(product, &[length, out, count])
    }

    /// Appends one element for each window of a row.
    pub fn pool_1d(
        &mut self,
        a: TensorId,
        pool: Pool,
        size: u32,
        stride: u32,
        padding: u32,
    ) -> Result<TensorId, GraphError> {
        let [size, stride, padding] = [size, stride, padding].map(|value| Param::Int(value.into()));
        self.apply(Op::Pool1d, &[Some(a)], &[pool.param(), size, stride, padding])
    }

    /// Appends one element for each window of a plane.
    pub fn pool_2d(&mut self, a: TensorId, pool: Pool, window: Window) -> Result<TensorId, GraphError> {
        let [k0, k1] = window.size.map(|value| Param::Int(value.into()));
        let [s0, s1] = window.stride.map(|value| Param::Int(value.into()));
        let [p0, p1] = window.padding.map(Param::Float);
        self.apply(Op::Pool2d, &[Some(a)], &[pool.param(), k0, k1, s0, s1, p0, p1])
    }

    /// Appends `a` with both directions of a plane `factor` times as large.
    pub fn upscale(&mut self, a: TensorId, factor: u32, how: Interpolation) -> Result<TensorId, GraphError> {
        let layout = self.tensor(a)?.layout;
        let [width, height, planes, cubes] = layout.ne();
        let factor = u64::from(factor);
        let shape = [width.saturating_mul(factor), height.saturating_mul(factor), planes, cubes];
        let wanted = Layout::contiguous(layout.dtype(), &shape)?;
        self.build(Op::Upscale, &[Some(a)], &[Param::Int(how.ggml_id())], Some(wanted))
    }

    /// Appends `a` with zeros behind the elements of each dimension.
    pub fn pad(&mut self, a: TensorId, behind: [u32; 4]) -> Result<TensorId, GraphError> {
        let mut params = [Param::Int(0); 8];
        for (dim, count) in behind.into_iter().enumerate() {
            params[2 * dim + 1] = Param::Int(count.into());
        }
        self.apply(Op::Pad, &[Some(a)], &params)
    }

    fn patches(
        &mut self,
        kernel: TensorId,
        image: TensorId,
        way: Convolution,
        dtype: DataType,
        directions: i64,
    ) -> Result<TensorId, GraphError> {
        let [s0, s1] = way.stride.map(|value| Param::Int(value.into()));
        let [p0, p1] = way.padding.map(|value| Param::Int(value.into()));
        let [d0, d1] = way.dilation.map(|value| Param::Int(value.into()));
        let number = Param::Int(dtype.ggml_id().into());
        let params = [s0, s1, p0, p1, d0, d1, Param::Int(directions), number];
        self.apply(Op::Im2col, &[Some(kernel), Some(image)], &params)
    }
}

/// Multiplies numbers; a product too large to count becomes the largest number there is, which no tensor has.
fn product(numbers: &[u64]) -> u64 {
    numbers.iter().fold(1, |product: u64, &number| product.saturating_mul(number))
}
