//! What data alone can show to be wrong: kernels write down who and which number, and whoever waits next reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use steeve_device::DeviceError;
use steeve_graph::{Graph, Named, Op, TensorId};

use crate::driver::{Context, Fault, PinnedBytes};

/// One word that kernels can write, and who they may mean.
#[derive(Debug)]
pub(crate) struct Complaints {
    device: Arc<str>,
    word: PinnedBytes,
    address: u64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    next: u64,
    /// Nodes by the number of the first.
    nodes: BTreeMap<u64, (Graph, Vec<TensorId>)>,
}

impl Complaints {
    pub(crate) fn new(device: Arc<str>, context: &Arc<Context>) -> Result<Self, Fault> {
        let word = PinnedBytes::new(context, 64)?;
        let address = word.device_address()?;
        Ok(Self { device, word, address, known: Mutex::new(Known { next: 1, ..Known::default() }) })
    }

    /// Where kernels write.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Nodes that may complain, numbered from the first on.
    pub(crate) fn register(self: &Arc<Self>, graph: &Graph, nodes: &[TensorId]) -> Registered {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Half a word has room for them.
        let count = nodes.len() as u64 + 1;
        if known.next + count > u64::from(u32::MAX) {
            known.next = 1;
        }
        let first = known.next;
        known.next += count;
        known.nodes.insert(first, (graph.clone(), nodes.to_vec()));
        Registered { complaints: Arc::clone(self), first }
    }

    /// What was complained about since this was last asked.
    pub(crate) fn take(&self) -> Result<(), DeviceError> {
        let found = self.look();
        self.word.set_word(0, 0);
        found
    }

    /// The same, and it stays.
    pub(crate) fn look(&self) -> Result<(), DeviceError> {
        let word = self.word.word(0);
        if word == 0 {
            return Ok(());
        }
        let (number, value) = (word >> 32, (word as u32).cast_signed());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = known.nodes.range(..=number).next_back();
        let node = owner.and_then(|(first, (graph, nodes))| Some((graph, *nodes.get((number - first) as usize)?)));
        let why = match node {
            Some((graph, node)) => {
                let name = Named::new(node, graph.names());
                match graph.tensor(node).op {
                    Op::Div => format!("{name}: {value} is divided by zero"),
                    Op::MulMatId => format!("{name}: id {value} names none of the experts"),
                    _ => format!("{name}: id {value} names none of the rows"),
                }
            }
            None => format!("a node that is no longer prepared was given {value}, which makes no sense"),
        };
        Err(DeviceError::Failed { device: self.device.to_string(), why })
    }
}

/// Nodes that may complain for as long as this exists.
#[derive(Debug)]
pub(crate) struct Registered {
    complaints: Arc<Complaints>,
    pub(crate) first: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.complaints.known.lock().unwrap_or_else(PoisonError::into_inner).nodes.remove(&self.first);
    }
}
