//! What data alone can show to be wrong: kernels write the number of their node and the value, and the next wait reads it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use steeve_device::DeviceError;
use steeve_graph::{Graph, Named, Op, TensorId};

use crate::driver::{Context, DriverError, PinnedBytes, lock};

/// One word that kernels write, and the nodes that it may name.
#[derive(Debug)]
pub(crate) struct KernelAsserts {
    device: Arc<str>,
    word: PinnedBytes,
    address: u64,
    known: Mutex<NumberedNodes>,
}

#[derive(Debug)]
struct NumberedNodes {
    next: u64,
    /// Nodes by the number of the first.
    nodes: BTreeMap<u64, (Graph, Vec<TensorId>)>,
    /// Those that are no longer prepared. Their work may still be under way, so the latest stay until the next wait.
    gone: VecDeque<u64>,
}

/// So many that are no longer prepared can still be named.
const GONE: usize = 16;

impl NumberedNodes {
    /// Numbers for so many nodes that no others have. Half a word has room for them.
    fn numbers(&mut self, count: u64) -> u64 {
        let mut first = if self.next + count > u64::from(u32::MAX) { 1 } else { self.next };
        while let Some((start, (_, nodes))) = self.nodes.range(..first + count).next_back()
            && start + nodes.len() as u64 >= first
        {
            first = start + nodes.len() as u64 + 1;
        }
        self.next = first + count;
        first
    }

    fn forget(&mut self, keep: usize) {
        while self.gone.len() > keep {
            if let Some(first) = self.gone.pop_front() {
                self.nodes.remove(&first);
            }
        }
    }
}

impl KernelAsserts {
    pub(crate) fn new(device: Arc<str>, context: &Arc<Context>) -> Result<Self, DriverError> {
        let word = PinnedBytes::new(context, 64)?;
        let address = word.device_address()?;
        let known = NumberedNodes { next: 1, nodes: BTreeMap::new(), gone: VecDeque::new() };
        Ok(Self { device, word, address, known: Mutex::new(known) })
    }

    /// Where kernels write.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Numbers nodes whose kernels may report something.
    pub(crate) fn register(self: &Arc<Self>, graph: &Graph, nodes: &[TensorId]) -> NodeRegistration {
        let mut known = lock(&self.known);
        // One more, so that nodes that are none do not share the number of others.
        let first = known.numbers(nodes.len() as u64 + 1);
        known.nodes.insert(first, (graph.clone(), nodes.to_vec()));
        NodeRegistration { asserts: Arc::clone(self), first }
    }

    /// Returns what was reported since this was last asked, as an error. All work is done.
    pub(crate) fn take(&self) -> Result<(), DeviceError> {
        let found = self.look();
        self.word.set_word(0);
        lock(&self.known).forget(0);
        found
    }

    /// Returns what was reported, as an error, and keeps it.
    pub(crate) fn look(&self) -> Result<(), DeviceError> {
        let word = self.word.word();
        if word == 0 {
            return Ok(());
        }
        let (number, value) = (word >> 32, (word as u32).cast_signed());
        let known = lock(&self.known);
        let owner = known.nodes.range(..=number).next_back();
        let node = owner.and_then(|(first, (graph, nodes))| Some((graph, *nodes.get((number - first) as usize)?)));
        let why = match node {
            Some((graph, node)) => {
                let (name, op) = (Named::new(node, graph.names()), graph.tensor(node).op);
                // What ids name: rows of the result, of the second source, or of the first.
                let of = match op {
                    Op::SetRows => Some(node),
                    Op::AddId => graph.sources(node).get(1).copied().flatten(),
                    _ => graph.sources(node).first().copied().flatten(),
                };
                let count = |dim: usize| of.map_or(0, |of| graph.tensor(of).layout.ne()[dim]);
                // Kernels have no room for more.
                let beyond = if value == i32::MAX || value == i32::MIN { " or beyond" } else { "" };
                match op {
                    Op::Other(_) => format!("{name}: {} reports {value}", graph.tensors().op_name(op)),
                    Op::Div => format!("{name}: division by zero: {value}"),
                    Op::MulMatId => {
                        format!("{name}: no such expert: expected an id below {}, got {value}{beyond}", count(2))
                    }
                    _ => format!("{name}: no such row: expected an id below {}, got {value}{beyond}", count(1)),
                }
            }
            None => format!("a node that was prepared long ago: invalid value: {value}"),
        };
        Err(DeviceError::Failed { device: self.device.to_string(), why })
    }
}

/// Nodes that errors can name for as long as this exists.
#[derive(Debug)]
pub(crate) struct NodeRegistration {
    asserts: Arc<KernelAsserts>,
    pub(crate) first: u64,
}

impl NodeRegistration {
    /// Returns whether their kernels report there.
    pub(crate) fn is_of(&self, asserts: &Arc<KernelAsserts>) -> bool {
        Arc::ptr_eq(&self.asserts, asserts)
    }

    /// Returns the name of one of them.
    pub(crate) fn name(&self, index: usize) -> Option<String> {
        let known = lock(&self.asserts.known);
        let (graph, nodes) = known.nodes.get(&self.first)?;
        Some(Named::new(*nodes.get(index)?, graph.names()).to_string())
    }
}

impl Drop for NodeRegistration {
    fn drop(&mut self) {
        let mut known = lock(&self.asserts.known);
        known.gone.push_back(self.first);
        known.forget(GONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(next: u64, nodes: &[(u64, usize)]) -> NumberedNodes {
        let mut context = steeve_graph::Context::new();
        let x = context.input(steeve_graph::DataType::F32, &[1]).unwrap();
        let y = context.sqr(x).unwrap();
        let graph = Graph::from_outputs(&context, &[y]).unwrap();
        let nodes = nodes.iter().map(|(first, count)| (*first, (graph.clone(), vec![y; *count])));
        NumberedNodes { next, nodes: nodes.collect(), gone: VecDeque::new() }
    }

    #[test]
    fn numbers_that_start_over_do_not_meet_those_that_are_in_use() {
        let last = u64::from(u32::MAX);
        assert_eq!(known(7, &[]).numbers(3), 7);
        assert_eq!(known(last - 2, &[]).numbers(3), 1);
        assert_eq!(known(last - 2, &[(1, 4), (9, 2)]).numbers(3), 6);
        assert_eq!(known(last - 2, &[(1, 4), (7, 2)]).numbers(3), 10);
        assert_eq!(known(last - 2, &[(2, 0), (3, 1)]).numbers(3), 5);
    }
}
