//! What is enqueued: kernels with their parameters, copies, and products for the library.
//!
//! ```text
//!   commands    | launch | copy | launch | product | ..
//!                    |             |
//!   parameters  | a a a a a a | b b b b | ..              words, one launch behind another
//! ```

use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::blas::{Blas, Product};
use crate::compile::CompiledKernels;
use crate::custom::CustomFunction;
use crate::driver::{DriverError, Function, Module, Stream};
use crate::kernel_list::{KERNELS, Kernel, KernelEntry, KernelNumber};
use crate::params::{AssertSite, KernelArgument, KernelParams};

/// One step of a node, with all addresses.
#[derive(Debug)]
enum Command {
    Launch(Launch),
    Copy { to: u64, from: u64, size: u64 },
    Product(Product),
}

#[derive(Debug)]
struct Launch {
    kernel: LaunchedKernel,
    cut: Cut,
    /// The first word of its parameters.
    parameters: usize,
}

/// A kernel of the list, or one of the caller's.
#[derive(Clone, Copy, Debug)]
enum LaunchedKernel {
    Listed(KernelNumber),
    /// The position among the functions of callers.
    Custom(usize),
}

/// How the work of a kernel is cut: blocks in three directions, the threads of a block, and the bytes that they share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared: u32,
}

/// Commands in order, and the parameters of the kernels among them.
///
/// Only [`launch`](Self::launch) and [`launch_custom`](Self::launch_custom) add launches, so each has the parameters that its
/// kernel takes.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    list: Vec<Command>,
    parameters: Vec<MaybeUninit<u64>>,
    /// The functions of callers that are launched.
    custom: Vec<Arc<CustomFunction>>,
    has_products: bool,
}

/// The words that most launches need for their parameters.
const WORDS: usize = 32;

impl Commands {
    /// Returns no commands, with room for those of so many nodes.
    pub(crate) fn for_nodes(nodes: usize) -> Self {
        Self {
            list: Vec::with_capacity(nodes),
            parameters: Vec::with_capacity(nodes.saturating_mul(WORDS)),
            custom: Vec::new(),
            has_products: false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether some of them are for the library.
    pub(crate) fn has_products(&self) -> bool {
        self.has_products
    }

    pub(crate) fn copy(&mut self, to: u64, from: u64, size: u64) {
        self.list.push(Command::Copy { to, from, size });
    }

    pub(crate) fn product(&mut self, product: Product) {
        self.has_products = true;
        self.list.push(Command::Product(product));
    }

    pub(crate) fn launch<P: KernelParams>(&mut self, kernel: Kernel<P>, cut: Cut, asserts: AssertSite, params: P) {
        let parameters = self.parameters.len();
        ParameterWords(&mut self.parameters).push(KernelArgument { asserts, params });
        let kernel = LaunchedKernel::Listed(kernel.number());
        self.list.push(Command::Launch(Launch { kernel, cut, parameters }));
    }

    /// Launches a kernel of the caller's, whose parameters `fill` adds behind the site of its reports.
    pub(crate) fn launch_custom(
        &mut self,
        function: Arc<CustomFunction>,
        cut: Cut,
        asserts: AssertSite,
        fill: impl FnOnce(&mut ParameterWords<'_>),
    ) {
        let parameters = self.parameters.len();
        let mut words = ParameterWords(&mut self.parameters);
        words.push(asserts);
        fill(&mut words);
        let kernel = LaunchedKernel::Custom(self.custom.len());
        self.custom.push(function);
        self.list.push(Command::Launch(Launch { kernel, cut, parameters }));
    }
}

/// Adds the parameters of one launch, one value behind another.
pub(crate) struct ParameterWords<'a>(&'a mut Vec<MaybeUninit<u64>>);

impl ParameterWords<'_> {
    pub(crate) fn push<T: Copy>(&mut self, value: T) {
        const { assert!(align_of::<T>() == align_of::<u64>() && size_of::<T>().is_multiple_of(size_of::<u64>())) };
        let start = self.0.len();
        self.0.resize(start + size_of::<T>() / size_of::<u64>(), MaybeUninit::uninit());
        // SAFETY: there are so many words from `start` on, and words are aligned for it.
        unsafe { self.0[start..].as_mut_ptr().cast::<T>().write(value) };
    }
}

/// All kernels, loaded.
#[derive(Debug)]
pub(crate) struct LoadedKernels {
    /// In the order of [`KERNELS`].
    functions: Vec<Function>,
    /// What they are compiled for: 90 is that of compute capability 9.0.
    pub(crate) arch: i32,
    /// Functions are of modules that are loaded.
    _modules: Vec<(&'static str, Module)>,
}

impl LoadedKernels {
    pub(crate) fn new(compiled: CompiledKernels<Module>) -> Result<Self, DriverError> {
        let find = |KernelEntry { family, name }: &KernelEntry| {
            let module = compiled.families.iter().find(|(known, _)| known == family);
            module.ok_or_else(DriverError::missing)?.1.function(name)
        };
        let functions = KERNELS.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { functions, arch: compiled.arch, _modules: compiled.families })
    }
}

/// Where commands go.
pub(crate) struct CommandQueue<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) kernels: &'a LoadedKernels,
    /// Only where there are products for it, and with its work on `stream`.
    pub(crate) blas: Option<&'a Blas>,
    /// Set if kernels may be started before the one ahead of them is done, if they can wait by themselves.
    pub(crate) early: bool,
}

/// The command that could not be enqueued, and why.
#[derive(Debug)]
pub(crate) struct EnqueueError {
    /// None if it is not a command's fault.
    pub(crate) command: Option<usize>,
    pub(crate) why: String,
}

impl CommandQueue<'_> {
    /// Enqueues commands, in order.
    ///
    /// # Safety
    /// All addresses in them are of memory that exists and is large enough, and it stays until they are done.
    pub(crate) unsafe fn enqueue(&self, commands: &Commands) -> Result<(), EnqueueError> {
        let entered = self.stream.context().enter();
        let _entered = entered.map_err(|fault| EnqueueError { command: None, why: fault.to_string() })?;
        for (index, command) in commands.list.iter().enumerate() {
            // SAFETY: as promised, and the context is current.
            let enqueued = unsafe { self.enqueue_one(command, commands) };
            enqueued.map_err(|why| EnqueueError { command: Some(index), why })?;
        }
        Ok(())
    }

    /// # Safety
    /// As above, the context is current, and the command is one of `commands`.
    unsafe fn enqueue_one(&self, command: &Command, commands: &Commands) -> Result<(), String> {
        match command {
            Command::Launch(Launch { kernel, cut: Cut { grid, block, shared }, parameters: start }) => {
                let parameter = commands.parameters[*start..].as_ptr().cast();
                let (function, name) = match kernel {
                    LaunchedKernel::Listed(number) => (self.kernels.functions[number.index()], number.name()),
                    LaunchedKernel::Custom(index) => (commands.custom[*index].function, "a kernel of the caller's"),
                };
                // `take_over` in `common.cu` says the same.
                let early = self.early && self.kernels.arch >= 90;
                // SAFETY: as promised; `kernels` and `commands` keep the modules, and `launch` and `launch_custom` have written what
                // their kernels take.
                let done = unsafe { self.stream.launch(function, *grid, *block, *shared, parameter, early) };
                done.map_err(|fault| format!("{fault} ({name})"))
            }
            // SAFETY: as promised.
            Command::Copy { to, from, size } => Ok(unsafe { self.stream.copy(*to, *from, *size) }?),
            Command::Product(product) => {
                let Some(blas) = self.blas else { return Err("no cuBLAS".into()) };
                // SAFETY: as promised.
                unsafe { blas.enqueue(product) }
            }
        }
    }
}
