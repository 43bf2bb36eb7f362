//! From a node to commands: what kernels are told about, and where they put their steps.

use std::sync::Arc;
use steeve_device::Shape;

use steeve_graph::{CallError, Graph, OpCall, TensorId};

use crate::blas::Product;
use crate::command::{Commands, Cut, ParameterWords};
use crate::cuda_c::DevicePointer;
use crate::custom::CustomFunction;
use crate::kernel_list::Kernel;
use crate::operand::{Operand, unsigned};
use crate::params::{AssertSite, KernelParams};

/// A node with everything located: a call whose operands fit together.
///
/// Kernels are chosen by types, strides and addresses. Shapes and parameters are trusted: [`Graph::call`] has checked them.
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
    /// Set if that is a copy, because the kernel would see the source change.
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

    /// Where an operand is located. Of a source in two slots that has a copy, the copy is read in both.
    pub(crate) fn operand(&self, tensor: TensorId) -> Result<Operand, String> {
        let of_it = || self.sources.iter().filter(|source| source.tensor == tensor);
        let source = of_it().find(|source| source.is_copy).or_else(|| of_it().next());
        source.map(|source| source.operand).ok_or_else(|| format!("no location of tensor {tensor}"))
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

pub(crate) const NO_KERNEL: &str = "no kernel for it";

pub(crate) fn floats<const N: usize>(operands: [Operand; N]) -> Result<(), String> {
    let all = operands.iter().all(|operand| operand.shape.dtype.is_float());
    if all { Ok(()) } else { Err("data type: expected f32, f16 or bf16".into()) }
}

/// What the machine is like, as far as it matters how work is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuProfile {
    pub(crate) processors: usize,
    pub(crate) has_blas: bool,
    /// What kernels are compiled for: 90 is that of compute capability 9.0.
    pub(crate) arch: i32,
}

/// Commands, and the scratch memory that they need.
#[derive(Debug)]
pub(crate) struct CommandList {
    pub(crate) machine: GpuProfile,
    pub(crate) commands: Commands,
    /// Where scratch memory starts, how much of it this node uses, and how much any did.
    base: u64,
    used: u64,
    pub(crate) most: u64,
    /// Where the kernels of this node report what is wrong.
    asserts: AssertSite,
}

/// Kernels that give an element to each thread have so many of them in a block.
const THREADS: usize = 256;

impl CommandList {
    /// Returns a list with room for the commands of so many nodes, whose kernels report to a word at `asserts`.
    pub(crate) fn new(machine: GpuProfile, nodes: usize, base: u64, asserts: u64) -> Self {
        let asserts = AssertSite { word: DevicePointer::new(asserts), node: 0 };
        Self { machine, commands: Commands::for_nodes(nodes), base, used: 0, most: 0, asserts }
    }

    /// Goes on with the node of this number. It may use the scratch memory of the node before.
    pub(crate) fn next_node(&mut self, number: u64) {
        (self.used, self.asserts.node) = (0, number);
    }

    /// Returns scratch memory for this node. It starts where `like` does within a line, so that kernels are chosen as for that.
    pub(crate) fn scratch(&mut self, bytes: usize, like: u64) -> u64 {
        let start = self.used + like % 256;
        // What passes the address space is refused later, as too much memory.
        let end = start.saturating_add(unsigned(bytes)).checked_next_multiple_of(256);
        self.used = end.unwrap_or(u64::MAX - 255);
        self.most = self.most.max(self.used);
        self.base.saturating_add(start)
    }

    /// Returns scratch memory for so many values.
    pub(crate) fn scratch_values<T>(&mut self, count: usize) -> DevicePointer<T> {
        DevicePointer::new(self.scratch(size_of::<T>() * count, 0))
    }

    /// Returns scratch memory for a tensor.
    pub(crate) fn scratch_tensor(&mut self, shape: Shape) -> Operand {
        Operand { address: self.scratch(shape.bytes, 0), shape }
    }

    pub(crate) fn copy(&mut self, to: u64, from: u64, size: usize) {
        self.commands.copy(to, from, unsigned(size));
    }

    pub(crate) fn product(&mut self, product: Product) {
        self.commands.product(product);
    }

    /// Launches a kernel of so many blocks in three directions, each of so many threads.
    pub(crate) fn launch<P: KernelParams>(
        &mut self,
        kernel: Kernel<P>,
        grid: [usize; 3],
        block: u32,
        params: P,
    ) -> Result<(), String> {
        self.launch_sharing(kernel, grid, block, 0, params)
    }

    /// Launches a kernel whose blocks share so many bytes among their threads.
    pub(crate) fn launch_sharing<P: KernelParams>(
        &mut self,
        kernel: Kernel<P>,
        grid: [usize; 3],
        block: u32,
        shared: u32,
        params: P,
    ) -> Result<(), String> {
        let grid = [grid_number(grid[0], ALONG)?, grid_number(grid[1], ACROSS)?, grid_number(grid[2], ACROSS)?];
        self.commands.launch(kernel, Cut { grid, block, shared }, self.asserts, params);
        Ok(())
    }

    /// Launches a kernel of the caller's in so many blocks along one direction.
    pub(crate) fn launch_custom(
        &mut self,
        function: Arc<CustomFunction>,
        blocks: usize,
        block: u32,
        fill: impl FnOnce(&mut ParameterWords<'_>),
    ) -> Result<(), String> {
        let grid = [grid_number(blocks, ALONG)?, 1, 1];
        self.commands.launch_custom(function, Cut { grid, block, shared: 0 }, self.asserts, fill);
        Ok(())
    }

    /// Launches a kernel that gives one of `count` pieces of work to each thread.
    pub(crate) fn launch_each<P: KernelParams>(
        &mut self,
        kernel: Kernel<P>,
        count: usize,
        params: P,
    ) -> Result<(), String> {
        self.launch(kernel, [count.div_ceil(THREADS), 1, 1], THREADS as u32, params)
    }
}

/// The most blocks of a launch in its first direction.
const ALONG: usize = i32::MAX as usize;

/// The most blocks of a launch in each other direction.
pub(crate) const ACROSS: usize = 65535;

/// Returns a number of blocks as CUDA takes it: there is at least one.
fn grid_number(count: usize, most: usize) -> Result<u32, String> {
    let refuse = || format!("too many blocks in one direction: expected at most {most}, got {count}");
    u32::try_from(count.max(1)).ok().filter(|_| count <= most).ok_or_else(refuse)
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
