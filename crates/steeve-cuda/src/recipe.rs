//! From a node to acts: what kernels are told about, and where they put their steps.

use steeve_graph::{Op, Param};

use crate::act::{Act, Kernel, Parameter};
use crate::blas::Product;
use crate::shape::{Args, Map, Operand, Shape, is_float};

/// A node, with everything where it stands.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) op: Op,
    pub(crate) params: &'a [Param],
    pub(crate) result: Operand,
    pub(crate) sources: &'a [Option<Operand>],
}

impl Ask<'_> {
    /// A source that must be there.
    pub(crate) fn source(&self, slot: usize) -> Result<Operand, String> {
        self.optional(slot).ok_or_else(|| format!("source {slot} is missing"))
    }

    /// A source that may be missing.
    pub(crate) fn optional(&self, slot: usize) -> Option<Operand> {
        self.sources.get(slot).copied().flatten()
    }

    /// A source that must have the shape of the result.
    pub(crate) fn like_result(&self, slot: usize) -> Result<Operand, String> {
        let source = self.source(slot)?;
        let same = source.shape.ne == self.result.shape.ne;
        if same { Ok(source) } else { Err(format!("source {slot} has another shape than the result")) }
    }

    /// A real parameter that must be there.
    pub(crate) fn float(&self, index: usize) -> Result<f32, String> {
        self.params.get(index).map(|it| it.float()).ok_or_else(|| format!("parameter {index} is missing"))
    }

    /// A whole parameter that must be there.
    pub(crate) fn int(&self, index: usize) -> Result<i64, String> {
        self.params.get(index).and_then(|it| it.int()).ok_or_else(|| format!("parameter {index} is no whole number"))
    }

    /// A parameter that counts, and is small enough for sums and products of a few of them.
    pub(crate) fn count(&self, index: usize) -> Result<i64, String> {
        match self.int(index)? {
            count @ 0..=0x7fff_ffff => Ok(count),
            other => Err(format!("parameter {index}, {other}, makes no sense")),
        }
    }
}

pub(crate) fn floats<const N: usize>(operands: [Operand; N]) -> Result<(), String> {
    let all = operands.iter().all(|operand| is_float(operand.shape.dtype));
    if all { Ok(()) } else { Err("only f32, f16 and bf16".into()) }
}

/// What the machine is like, as far as it matters how work is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) processors: u32,
    pub(crate) has_blas: bool,
    /// What kernels are compiled for: 90 is that of compute capability 9.0.
    pub(crate) arch: i32,
}

/// Acts, and the scratch memory that they need.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) machine: Machine,
    pub(crate) acts: Vec<Act>,
    /// Where scratch memory starts, how much of it this node uses, and how much any did.
    base: u64,
    used: u64,
    pub(crate) most: u64,
    /// Where kernels complain, and as whom.
    flag: u64,
    pub(crate) number: u64,
}

/// Kernels that give an element to each thread have so many of them in a block.
const THREADS: u64 = 256;

impl Recipe {
    pub(crate) fn new(machine: Machine, base: u64, flag: u64) -> Self {
        Self { machine, acts: Vec::new(), base, used: 0, most: 0, flag, number: 0 }
    }

    /// The scratch memory of the node before may be used again.
    pub(crate) fn next_node(&mut self, number: u64) {
        (self.used, self.number) = (0, number);
    }

    /// Scratch memory for this node. It starts where `like` does within a line, so that kernels are chosen as for that.
    pub(crate) fn scratch(&mut self, bytes: u64, like: u64) -> u64 {
        let start = self.used + like % 256;
        self.used = (start + bytes).next_multiple_of(256);
        self.most = self.most.max(self.used);
        self.base + start
    }

    /// Scratch memory for a tensor.
    pub(crate) fn scratch_tensor(&mut self, shape: Shape) -> Operand {
        Operand { address: self.scratch(shape.bytes, 0), shape }
    }

    pub(crate) fn copy(&mut self, to: u64, from: u64, size: u64) {
        self.acts.push(Act::Copy { to, from, size });
    }

    pub(crate) fn product(&mut self, product: Product) {
        self.acts.push(Act::Product(product));
    }

    /// A kernel of blocks.
    pub(crate) fn launch(&mut self, kernel: Kernel, grid: [u64; 3], block: u32, args: Args) -> Result<(), String> {
        self.launch_sharing(kernel, grid, block, args, 0)
    }

    /// The same with so many bytes that the threads of a block share.
    pub(crate) fn launch_sharing(
        &mut self,
        kernel: Kernel,
        grid: [u64; 3],
        block: u32,
        args: Args,
        shared: u32,
    ) -> Result<(), String> {
        let grid =
            [grid_number(grid[0], i32::MAX as u64)?, grid_number(grid[1], ACROSS)?, grid_number(grid[2], ACROSS)?];
        assert!(!kernel.takes_map(), "{kernel:?} is given what another kernel takes");
        let args = Args { flag: self.flag, number: self.number, ..args };
        self.acts.push(Act::Launch { kernel, grid, block, shared, parameter: Parameter::Args(Box::new(args)) });
        Ok(())
    }

    /// A kernel that gives one of so many pieces of work to each thread, and is told how many there are in `i[0]`.
    pub(crate) fn launch_each(&mut self, kernel: Kernel, count: u64, mut args: Args) -> Result<(), String> {
        args.i[0] = count.cast_signed();
        self.launch(kernel, [count.div_ceil(THREADS), 1, 1], THREADS as u32, args)
    }

    /// An elementwise kernel, whose threads do `each` of its groups.
    pub(crate) fn launch_map(&mut self, kernel: Kernel, each: u64, map: Map) -> Result<(), String> {
        assert!(kernel.takes_map(), "{kernel:?} is given what another kernel takes");
        let blocks = grid_number(map.n.div_ceil(THREADS * each), i32::MAX as u64)?;
        let map = Map { flag: self.flag, number: self.number, ..map };
        let (grid, block, parameter) = ([blocks, 1, 1], THREADS as u32, Parameter::Map(Box::new(map)));
        self.acts.push(Act::Launch { kernel, grid, block, shared: 0, parameter });
        Ok(())
    }
}

/// So many blocks fit into a launch across, and ever so many along.
pub(crate) const ACROSS: u64 = 65535;

fn grid_number(count: u64, most: u64) -> Result<u32, String> {
    let refuse = || format!("it would take {count} blocks in one direction, and a launch has at most {most}");
    if count <= most { Ok(count.max(1) as u32) } else { Err(refuse()) }
}

/// Arguments with a result and some sources.
pub(crate) fn args(result: Operand, sources: &[Option<Operand>]) -> Args {
    let mut args = Args { r: result.into(), ..Args::default() };
    for (slot, source) in args.s.iter_mut().zip(sources) {
        if let Some(source) = source {
            *slot = (*source).into();
        }
    }
    args
}
