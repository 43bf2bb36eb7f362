//! What each family of kernels is told: one structure per calling convention.
//!
//! In CUDA C every one of them starts with `asserts`, which the launch fills in, and goes on with the members below. Where
//! a tensor may be missing, its address is null then.

use crate::cuda_c::{CudaValue, DevicePointer, Flag, cuda_struct};
use crate::data_types::number;
use crate::kernels::{Function, Norm, Pairing, PositionSharing};
use crate::operand::{Operand, signed};

cuda_struct! {
    /// A tensor as kernels are given it.
    Tensor {
        data: DevicePointer<u8>,
        ne: [i64; 4],
        nb: [i64; 4],
        /// The number of its type.
        dtype: i32,
        /// The bytes of a block.
        size: i32,
    }
}

impl From<Operand> for Tensor {
    fn from(Operand { address, shape }: Operand) -> Self {
        let [ne, nb] = [shape.ne, shape.nb].map(|all| all.map(signed));
        Self { data: DevicePointer::new(address), ne, nb, dtype: number(shape.dtype), size: shape.size() as i32 }
    }
}

impl Tensor {
    const MISSING: Self = Self { data: DevicePointer::NULL, ne: [0; 4], nb: [0; 4], dtype: 0, size: 0 };

    /// Returns the tensor, or one without an address if there is none.
    pub(crate) fn optional(operand: Option<Operand>) -> Self {
        operand.map_or(Self::MISSING, Self::from)
    }
}

cuda_struct! {
    /// Where a kernel reports what data alone can show to be wrong, and the number of its node.
    AssertSite {
        word: DevicePointer<u64>,
        node: u64,
    }
}

/// The parameters of kernels that are called in one way. What a kernel gets is a [`KernelArgument`].
pub(crate) trait KernelParams: CudaValue {}

/// Parameters behind what all kernels get, as CUDA C declares them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelArgument<P> {
    pub(crate) asserts: AssertSite,
    pub(crate) params: P,
}

macro_rules! kernel_params {
    ($($(#[$doc:meta])* $name:ident { $($(#[$note:meta])* $member:ident: $type:ty,)* })*) => {
        $(
            cuda_struct! {
                $(#[$doc])*
                $name behind AssertSite { $($(#[$note])* $member: $type,)* }
            }

            impl KernelParams for $name {}

            const _: () = assert!(
                std::mem::offset_of!(KernelArgument<$name>, params) == size_of::<AssertSite>()
                    && align_of::<KernelArgument<$name>>() == align_of::<u64>()
            );
        )*
    };
}

// Elementwise.
kernel_params! {
    /// A function of each element. Dimensions are merged before, so that most tensors are one line.
    MapParams {
        /// The result and two sources; null for one that is missing.
        data: [DevicePointer<u8>; 3],
        nb: [[i64; 8]; 3],
        ne: [u64; 8],
        /// The product of all dimensions.
        count: u64,
        dims: i32,
        function: Function,
        dtypes: [i32; 3],
        /// One bit for each operand that has one number for a whole group of elements.
        splat: i32,
        /// What the function is told.
        numbers: [f32; 4],
    }

    /// Rows of `a`, to each of which the row of `b` is added that its id names.
    AddIdParams {
        result: Tensor,
        a: Tensor,
        b: Tensor,
        ids: Tensor,
    }
}

// Rows.
kernel_params! {
    NormParams {
        result: Tensor,
        source: Tensor,
        norm: Norm,
        epsilon: f32,
    }

    RmsNormBackParams {
        result: Tensor,
        /// The gradient of the norm.
        gradient: Tensor,
        /// What the norm was made of.
        source: Tensor,
        epsilon: f32,
    }

    GroupNormParams {
        result: Tensor,
        source: Tensor,
        /// The channels of a group; the last may have fewer.
        channels: i64,
        groups: i64,
        epsilon: f32,
    }

    SoftMaxParams {
        result: Tensor,
        scores: Tensor,
        /// May be missing.
        mask: Tensor,
        /// May be missing.
        sinks: Tensor,
        scale: f32,
        max_bias: f32,
    }

    SoftMaxBackParams {
        result: Tensor,
        /// The gradient of the soft-max.
        gradient: Tensor,
        /// The soft-max itself.
        output: Tensor,
        scale: f32,
    }

    DiagMaskParams {
        result: Tensor,
        source: Tensor,
        /// The column in which the diagonal starts.
        past: i64,
        /// The elements.
        count: u64,
        /// What is above the diagonal.
        value: f32,
    }

    RopeParams {
        result: Tensor,
        source: Tensor,
        positions: Tensor,
        /// May be missing.
        factors: Tensor,
        /// The pairs of each of the four parts of a position.
        sections: [i64; 4],
        /// The pairs of a row.
        pairs: i64,
        /// The pairs of a row, and the elements behind them.
        units: i64,
        /// The units of all rows.
        count: u64,
        pairing: Pairing,
        sharing: PositionSharing,
        freq_scale: f32,
        /// What the angle is multiplied by from pair to pair.
        theta_scale: f32,
        ext_factor: f32,
        magnitude: f32,
        /// The pairs between which the extension fades.
        ramp: [f32; 2],
        /// -1 for the rotation back.
        sign: f32,
    }

    SumParams {
        result: Tensor,
        source: Tensor,
        divisor: i64,
        /// The blocks that share a sum, and how many elements each of them adds up.
        parts: i64,
        part_length: i64,
        /// What the blocks of a sum have found: whole numbers, or doubles.
        partial: DevicePointer<u64>,
        /// Set if there is one sum of all elements.
        is_all: Flag,
    }

    OrderParams {
        result: Tensor,
        source: Tensor,
        /// The rows that are sorted at a time: the first, and how many.
        first_row: i64,
        rows: i64,
        /// The elements of a chunk, or of a sorted run.
        run: i64,
        from: DevicePointer<u64>,
        /// Null where ids are written instead.
        to: DevicePointer<u64>,
        /// Set if the largest come first.
        is_descending: Flag,
    }
}

// Movement.
kernel_params! {
    CopyParams {
        result: Tensor,
        source: Tensor,
        /// The elements, the blocks or the groups of four: one for each thread.
        count: u64,
    }

    TurnParams {
        result: Tensor,
        source: Tensor,
        planes: i64,
    }

    ConcatParams {
        result: Tensor,
        first: Tensor,
        second: Tensor,
        /// The blocks of the result.
        count: u64,
        dim: i64,
    }

    /// Rows that ids name are read, or written in the result.
    RowsParams {
        result: Tensor,
        rows: Tensor,
        ids: Tensor,
    }
}

// Images: across, then down.
kernel_params! {
    Im2colParams {
        result: Tensor,
        image: Tensor,
        /// The elements of the result.
        count: u64,
        kernel_size: [i64; 2],
        stride: [i64; 2],
        padding: [i64; 2],
        dilation: [i64; 2],
        image_size: [i64; 2],
        /// The bytes from element to element of the image: across, down, by channel, by image.
        image_steps: [i64; 4],
        /// Set if images are rows.
        is_flat: Flag,
    }

    PoolParams {
        result: Tensor,
        source: Tensor,
        /// The elements of the result.
        count: u64,
        size: [i64; 2],
        stride: [i64; 2],
        padding: [i64; 2],
        is_mean: Flag,
        /// Set if windows are more than one row high.
        goes_down: Flag,
    }

    UpscaleParams {
        result: Tensor,
        source: Tensor,
        /// The elements of the result.
        count: u64,
        /// How much larger each dimension becomes.
        factors: [f32; 4],
    }

    PadParams {
        result: Tensor,
        source: Tensor,
        /// The elements of the result.
        count: u64,
        /// The zeros before each dimension.
        before: [i64; 4],
    }
}

// Products of matrices.
kernel_params! {
    ProductParams {
        result: Tensor,
        weights: Tensor,
        inputs: Tensor,
        /// Missing if there are no experts.
        ids: Tensor,
        /// The planes of the inputs.
        planes: i64,
        /// How many neighbours share a plane, and a cube, of the weights.
        plane_repeats: i64,
        cube_repeats: i64,
        /// Set if several elements of the weights can be read at once.
        is_aligned: Flag,
    }

    ExpertParams {
        result: Tensor,
        weights: Tensor,
        /// Rounded to the type that is multiplied, rows without gaps.
        inputs: Tensor,
        ids: Tensor,
        /// The powers of two that rows of the inputs were divided by, if they were.
        powers: DevicePointer<f32>,
        /// What each expert gets.
        lists: DevicePointer<i32>,
        most_jobs: i64,
    }

    NarrowParams {
        result: Tensor,
        source: Tensor,
        /// The power of two that each row was divided by.
        powers: DevicePointer<f32>,
        /// Set if four elements of the source can be read at once.
        in_fours: Flag,
    }

    WidenParams {
        result: Tensor,
        /// What each row is multiplied by.
        powers: DevicePointer<f32>,
    }

    ZerosParams {
        result: Tensor,
        /// The elements.
        count: u64,
    }
}

cuda_struct! {
    /// What is known about a tile of keys and a block of queries.
    TileMask {
        /// One bit for each key that a query sees.
        seen: u64,
        /// Not zero if the mask is zero everywhere.
        zeros: u64,
    }
}

// Attention.
kernel_params! {
    AttentionParams {
        result: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        /// May be missing.
        mask: Tensor,
        /// May be missing.
        sinks: Tensor,
        /// The blocks that share the keys of a query.
        parts: i64,
        /// What each of them has found: the largest score, the sum of the weights, the weighted sums.
        partial: DevicePointer<f32>,
        /// The heads that share their keys.
        group: i64,
        /// The queries of all heads of a group.
        queries: i64,
        /// What `attend_look` has found, if there is a mask.
        tile_masks: DevicePointer<TileMask>,
        /// Set if four elements of the keys, and of the values, can be read at once.
        keys_in_fours: Flag,
        values_in_fours: Flag,
        scale: f32,
        softcap: f32,
        max_bias: f32,
    }

    /// What looks at the mask before attention by tensor cores.
    MaskParams {
        mask: Tensor,
        keys: i64,
        /// As in [`AttentionParams`].
        group: i64,
        queries: i64,
        tile_keys: i64,
        block_queries: i64,
        tiles: i64,
        tile_masks: DevicePointer<TileMask>,
    }
}
