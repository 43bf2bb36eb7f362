//! From a node to commands: what kernels are told about, and where they put their steps.

use steeve_graph::{CallError, Graph, OpCall, TensorId};

use crate::blas::Product;
use crate::command::{Command, Kernel, Parameter};
use crate::shape::{Args, Map, Operand, Shape, is_float};

/// A node with everything located: a call whose operands fit together.
///
/// LoadedKernels are chosen by types, strides and addresses. Shapes and parameters are trusted: [`Graph::call`] has checked them.
#[derive(Debug)]
pub(crate) struct NodeCall<'a> {
    pub(crate) call: OpCall,
    pub(crate) result: Operand,
    sources: &'a [Source],
}

/// A source of a node, where its kernel reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) tensor: TensorId,
    pub(crate) slot: usize,
    pub(crate) operand: Operand,
    /// Whether that is a copy, because the kernel would see the source change.
    pub(crate) is_copy: bool,
}

impl<'a> NodeCall<'a> {
    /// The error says what is missing or does not fit together.
    pub(crate) fn new(graph: &Graph, node: TensorId, result: Operand, sources: &'a [Source]) -> Result<Self, String> {
        let call = graph.call(node).map_err(|error| match error {
            CallError::NoRule { .. } => NO_KERNEL.to_owned(),
            error => error.to_string(),
        })?;
        Ok(Self { call, result, sources })
    }

    pub(crate) fn sources(&self) -> &[Source] {
        self.sources
    }

    /// Where an operand is located. Of a source in two slots that has a copy, the copy is read in both.
    pub(crate) fn operand(&self, tensor: TensorId) -> Result<Operand, String> {
        let of_it = || self.sources.iter().filter(|source| source.tensor == tensor);
        let source = of_it().find(|source| source.is_copy).or_else(|| of_it().next());
        source.map(|source| source.operand).ok_or_else(|| format!("tensor {tensor} is not located"))
    }

    pub(crate) fn operands<const N: usize>(&self, tensors: [TensorId; N]) -> Result<[Operand; N], String> {
        let mut operands = [self.result; N];
        for (operand, tensor) in operands.iter_mut().zip(tensors) {
            *operand = self.operand(tensor)?;
        }
        Ok(operands)
    }

    /// Where an operand that may be missing is located.
    pub(crate) fn optional(&self, tensor: Option<TensorId>) -> Result<Option<Operand>, String> {
        tensor.map(|tensor| self.operand(tensor)).transpose()
    }
}

pub(crate) const NO_KERNEL: &str = "there is no kernel for it";

pub(crate) fn floats<const N: usize>(operands: [Operand; N]) -> Result<(), String> {
    let all = operands.iter().all(|operand| is_float(operand.shape.dtype));
    if all { Ok(()) } else { Err("only f32, f16 and bf16".into()) }
}

/// What the machine is like, as far as it matters how work is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuProfile {
    pub(crate) processors: u32,
    pub(crate) has_blas: bool,
    /// What kernels are compiled for: 90 is that of compute capability 9.0.
    pub(crate) arch: i32,
}

/// Acts, and the scratch memory that they need.
#[derive(Debug)]
pub(crate) struct CommandList {
    pub(crate) machine: GpuProfile,
    pub(crate) commands: Vec<Command>,
    /// Where scratch memory starts, how much of it this node uses, and how much any did.
    base: u64,
    used: u64,
    pub(crate) most: u64,
    /// Where kernels complain, and as whom.
    flag: u64,
    pub(crate) number: u64,
}

/// LoadedKernels that give an element to each thread have so many of them in a block.
const THREADS: u64 = 256;

impl CommandList {
    pub(crate) fn new(machine: GpuProfile, base: u64, flag: u64) -> Self {
        Self { machine, commands: Vec::new(), base, used: 0, most: 0, flag, number: 0 }
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
        self.commands.push(Command::Copy { to, from, size });
    }

    pub(crate) fn product(&mut self, product: Product) {
        self.commands.push(Command::Product(product));
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
        self.commands.push(Command::Launch { kernel, grid, block, shared, parameter: Parameter::Args(Box::new(args)) });
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
        self.commands.push(Command::Launch { kernel, grid, block, shared: 0, parameter });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_source_in_two_slots_the_copy_is_read() {
        let graph: Graph = "x = input f32[4]; y = rms_norm_back(0.5) x x".parse().unwrap();
        let (tensor, node) = (graph.leafs()[0], graph.nodes()[0]);
        let shape = Shape::new(&graph.tensor(tensor).layout).unwrap();
        let source = |slot, address, is_copy| Source { tensor, slot, operand: Operand { address, shape }, is_copy };
        for sources in [[source(0, 64, true), source(1, 0, false)], [source(0, 0, false), source(1, 64, true)]] {
            let call = NodeCall::new(&graph, node, Operand { address: 0, shape }, &sources).unwrap();
            assert_eq!(call.operand(tensor).unwrap().address, 64);
            assert!(call.operand(node).is_err());
        }
    }
}
