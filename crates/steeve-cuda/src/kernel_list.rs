//! All kernels: the family that each is compiled with, and the parameters that it takes.
//!
//! A kernel is a constant of the type of its parameters, so that launching it with others does not compile.

use std::marker::PhantomData;

use crate::cuda_c::Declarations;
use crate::params::{
    AddIdParams, AttentionParams, ConcatParams, CopyParams, DiagMaskParams, ExpertParams, GroupNormParams,
    Im2colParams, KernelParams, MapParams, MaskParams, NarrowParams, NormParams, OrderParams, PadParams, PoolParams,
    ProductParams, RmsNormBackParams, RopeParams, RowsParams, SoftMaxBackParams, SoftMaxParams, SumParams, TurnParams,
    UpscaleParams, WidenParams, ZerosParams,
};

/// A kernel that takes such parameters.
#[derive(Debug)]
pub(crate) struct Kernel<P> {
    number: KernelNumber,
    params: PhantomData<fn(P)>,
}

impl<P> Clone for Kernel<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Kernel<P> {}

impl<P: KernelParams> Kernel<P> {
    pub(crate) fn number(self) -> KernelNumber {
        self.number
    }
}

/// The position of a kernel in [`KERNELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelNumber(u16);

impl KernelNumber {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn name(self) -> &'static str {
        KERNELS[self.index()].name
    }
}

/// Where a kernel is found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelEntry {
    pub(crate) family: &'static str,
    pub(crate) name: &'static str,
}

macro_rules! kernels {
    ($($family:literal { $($params:ident { $($kernel:ident)* })* })*) => {
        // Kernels have the names here that they have in CUDA C.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Number { $($($($kernel,)*)*)* }

        $($($(
            #[allow(non_upper_case_globals)]
            pub(crate) const $kernel: Kernel<$params> =
                Kernel { number: KernelNumber(Number::$kernel as u16), params: PhantomData };
        )*)*)*

        pub(crate) const KERNELS: &[KernelEntry] = &[$($($(
            KernelEntry { family: $family, name: concat!("steeve_", stringify!($kernel)) },
        )*)*)*];

        /// Declares the parameters of a family's kernels, and which kernel takes which: `params_norm` are those of `norm`.
        pub(crate) fn declare_params(family: &str, into: &mut Declarations) {
            match family {
                $($family => {$(
                    into.add::<$params>();
                    $(into.write_line(concat!("typedef ", stringify!($params), " params_", stringify!($kernel), ";"));)*
                )*})*
                _ => {}
            }
        }
    };
}

kernels! {
    "elementwise" {
        MapParams { map_1 map_4 map_4_f32 map_int }
        AddIdParams { add_id }
    }
    "rows" {
        NormParams { norm norm_1 norm_2 norm_4 norm_8 }
        RmsNormBackParams { rms_norm_back }
        GroupNormParams { group_norm }
        SoftMaxParams { soft_max soft_max_1 soft_max_4 soft_max_8 }
        SoftMaxBackParams { soft_max_back }
        DiagMaskParams { diag_mask }
        RopeParams { rope }
        SumParams { sum sum_parts }
        OrderParams { order_chunks order_runs }
    }
    "movement" {
        CopyParams { copy_blocks copy_floats copy_floats_4 copy_encode copy_cast repeat }
        TurnParams { turn_2 turn_4 }
        ConcatParams { concat }
        RowsParams { get_rows set_rows }
    }
    "image" {
        Im2colParams { im2col }
        PoolParams { pool }
        UpscaleParams { upscale_nearest upscale_bilinear }
        PadParams { pad }
    }
    "matrix" {
        ProductParams { few_columns_1 few_columns_2 few_columns_4 few_columns_8 few_columns_id tiles tiles_id }
        NarrowParams { narrow }
        WidenParams { widen }
        ZerosParams { zeros }
    }
    "experts" {
        ExpertParams { experts_sort experts_f16 experts_bf16 }
    }
    "attention" {
        AttentionParams {
            attend_4 attend_4_f16 attend_4_bf16 attend_4_q8_0
            attend_8 attend_8_f16 attend_8_bf16 attend_8_q8_0
            attend_16 attend_16_f16 attend_16_bf16 attend_16_q8_0
            attend_parts
            attend_tile attend_tile_f16 attend_tile_bf16
            attend_few_f16 attend_few_bf16
        }
        MaskParams { attend_look }
    }
    "many_f16" {
        AttentionParams { attend_many_64_f16 attend_many_96_f16 attend_many_128_f16 attend_many_256_f16 }
    }
    "many_bf16" {
        AttentionParams { attend_many_64_bf16 attend_many_96_bf16 attend_many_128_bf16 attend_many_256_bf16 }
    }
    "blocks" {
        ProductParams { few_columns_blocks_1 few_columns_blocks_4 few_columns_blocks_8 few_columns_blocks_id }
    }
}
