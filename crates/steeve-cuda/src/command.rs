//! What is enqueued: a kernel with its arguments, a copy, a product for the library.

use std::ptr::from_ref;

use crate::blas::{Blas, Product};
use crate::compile::CompiledKernels;
use crate::driver::{DriverError, Function, Module, Stream};
use crate::shape::{Args, Map};

/// One step of a node, with all addresses.
#[derive(Debug)]
pub(crate) enum Command {
    Launch { kernel: Kernel, grid: [u32; 3], block: u32, shared: u32, parameter: Parameter },
    Copy { to: u64, from: u64, size: u64 },
    Product(Product),
}

#[derive(Debug)]
pub(crate) enum Parameter {
    Args(Box<Args>),
    Map(Box<Map>),
}

macro_rules! kernels {
    ($($family:literal { $($variant:ident $name:literal,)* })*) => {
        /// A kernel by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kernel { $($($variant,)*)* }

        /// Which family has each of them, and what it is called there.
        pub(crate) const NAMES: &[(&str, &str)] = &[$($(($family, concat!("steeve_", $name)),)*)*];
    };
}

kernels! {
    "elementwise" {
        Map1 "map_1",
        Map4 "map_4",
        Map4F32 "map_4_f32",
        MapInt "map_int",
        AddId "add_id",
    }
    "rows" {
        Norm "norm",
        Norm1 "norm_1",
        Norm2 "norm_2",
        Norm4 "norm_4",
        Norm8 "norm_8",
        RmsNormBack "rms_norm_back",
        GroupNorm "group_norm",
        SoftMax "soft_max",
        SoftMax1 "soft_max_1",
        SoftMax4 "soft_max_4",
        SoftMax8 "soft_max_8",
        SoftMaxBack "soft_max_back",
        DiagMask "diag_mask",
        Rope "rope",
        Sum "sum",
        SumParts "sum_parts",
        OrderChunks "order_chunks",
        OrderRuns "order_runs",
    }
    "movement" {
        CopyBlocks "copy_blocks",
        Turn2 "turn_2",
        Turn4 "turn_4",
        CopyFloats "copy_floats",
        CopyFloats4 "copy_floats_4",
        CopyEncode "copy_encode",
        CopyCast "copy_cast",
        Concat "concat",
        Repeat "repeat",
        GetRows "get_rows",
        SetRows "set_rows",
    }
    "image" {
        Im2col "im2col",
        Pool "pool",
        UpscaleNearest "upscale_nearest",
        UpscaleBilinear "upscale_bilinear",
        Pad "pad",
    }
    "matrix" {
        FewColumns1 "few_columns_1",
        FewColumns2 "few_columns_2",
        FewColumns4 "few_columns_4",
        FewColumns8 "few_columns_8",
        FewColumnsId "few_columns_id",
        Tiles "tiles",
        TilesId "tiles_id",
        Narrow "narrow",
        Widen "widen",
        Zeros "zeros",
    }
    "attention" {
        Attend4 "attend_4",
        Attend4F16 "attend_4_f16",
        Attend4Bf16 "attend_4_bf16",
        Attend4Q8 "attend_4_q8_0",
        Attend8 "attend_8",
        Attend8F16 "attend_8_f16",
        Attend8Bf16 "attend_8_bf16",
        Attend8Q8 "attend_8_q8_0",
        Attend16 "attend_16",
        Attend16F16 "attend_16_f16",
        Attend16Bf16 "attend_16_bf16",
        Attend16Q8 "attend_16_q8_0",
        AttendParts "attend_parts",
        AttendTile "attend_tile",
        AttendTileF16 "attend_tile_f16",
        AttendTileBf16 "attend_tile_bf16",
        AttendFewF16 "attend_few_f16",
        AttendFewBf16 "attend_few_bf16",
        AttendLook "attend_look",
    }
    "many_f16" {
        AttendMany64F16 "attend_many_64_f16",
        AttendMany96F16 "attend_many_96_f16",
        AttendMany128F16 "attend_many_128_f16",
        AttendMany256F16 "attend_many_256_f16",
    }
    "many_bf16" {
        AttendMany64Bf16 "attend_many_64_bf16",
        AttendMany96Bf16 "attend_many_96_bf16",
        AttendMany128Bf16 "attend_many_128_bf16",
        AttendMany256Bf16 "attend_many_256_bf16",
    }
    "blocks" {
        FewColumnsBlocks1 "few_columns_blocks_1",
        FewColumnsBlocks4 "few_columns_blocks_4",
        FewColumnsBlocks8 "few_columns_blocks_8",
        FewColumnsBlocksId "few_columns_blocks_id",
    }
}

impl Kernel {
    /// Whether its parameter is a `Map`; that of all others is an `Args`.
    pub(crate) fn takes_map(self) -> bool {
        matches!(self, Self::Map1 | Self::Map4 | Self::Map4F32 | Self::MapInt)
    }
}

/// All kernels, loaded.
#[derive(Debug)]
pub(crate) struct LoadedKernels {
    functions: Vec<Function>,
    /// What they are compiled for: 90 is that of compute capability 9.0.
    pub(crate) arch: i32,
    /// Functions are of modules that are loaded.
    _modules: Vec<(&'static str, Module)>,
}

impl LoadedKernels {
    pub(crate) fn new(loaded: CompiledKernels<Module>) -> Result<Self, DriverError> {
        let find = |(family, name): &(&str, &str)| {
            let module = loaded.families.iter().find(|(known, _)| known == family);
            module.ok_or_else(DriverError::missing)?.1.function(name)
        };
        let functions = NAMES.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { functions, arch: loaded.arch, _modules: loaded.families })
    }
}

/// Where commands go.
pub(crate) struct CommandQueue<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) kernels: &'a LoadedKernels,
    /// Only where there are products for it, and with its work on `stream`.
    pub(crate) blas: Option<&'a Blas>,
    /// Whether kernels may be started before the one ahead of them is done, if they can wait by themselves.
    pub(crate) early: bool,
}

/// The command that could not be enqueued, and why.
#[derive(Debug)]
pub(crate) struct EnqueueError {
    /// None if it is not an command's fault.
    pub(crate) command: Option<usize>,
    pub(crate) why: String,
}

impl CommandQueue<'_> {
    /// Enqueues some commands, in order.
    ///
    /// # Safety
    /// All addresses in them are of memory that exists and is large enough, and it stays until they are done.
    pub(crate) unsafe fn enqueue(&self, commands: &[Command]) -> Result<(), EnqueueError> {
        let _entered =
            self.stream.context().enter().map_err(|fault| EnqueueError { command: None, why: fault.to_string() })?;
        for (command, it) in commands.iter().enumerate() {
            // SAFETY: as promised, and the context is current.
            unsafe { self.enqueue_one(it) }.map_err(|why| EnqueueError { command: Some(command), why })?;
        }
        Ok(())
    }

    /// # Safety
    /// As above, and the context is current.
    unsafe fn enqueue_one(&self, command: &Command) -> Result<(), String> {
        match command {
            Command::Launch { kernel, grid, block, shared, parameter } => {
                let parameter = match parameter {
                    Parameter::Args(args) => from_ref(&**args).cast(),
                    Parameter::Map(map) => from_ref(&**map).cast(),
                };
                let function = self.kernels.functions[*kernel as usize];
                // `take_over` in `common.cu` says the same.
                let early = self.early && self.kernels.arch >= 90;
                // SAFETY: as promised; `kernels` keeps the modules, and `commands` gives each kernel its structure.
                let done = unsafe { self.stream.launch(function, *grid, *block, *shared, parameter, early) };
                done.map_err(|fault| format!("{fault} ({})", NAMES[*kernel as usize].1))
            }
            // SAFETY: as promised.
            Command::Copy { to, from, size } => Ok(unsafe { self.stream.copy(*to, *from, *size) }?),
            Command::Product(product) => {
                let Some(blas) = self.blas else { return Err("cuBLAS is missing".into()) };
                // SAFETY: as promised.
                unsafe { blas.enqueue(product) }
            }
        }
    }
}
