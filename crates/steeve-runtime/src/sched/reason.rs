//! The reason for each assignment.

use steeve_graph::{Graph, IdVec, Named, TensorId};

use crate::sched::WorkerId;

/// The reason why a tensor was assigned to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AssignReason {
    /// The caller has pinned it.
    Pinned,
    /// It is written into a tensor that the caller has placed.
    Placed {
        /// That tensor.
        root: TensorId,
    },
    /// The caller writes it, and inputs are on the last worker.
    Input,
    /// Its weight is there.
    Weight {
        /// The weight.
        weight: TensorId,
    },
    /// The device wants it although its weight is in the memory of the host.
    Offloaded {
        /// The weight.
        weight: TensorId,
    },
    /// A node nearby is there.
    Neighbour {
        /// That node.
        node: TensorId,
    },
    /// More of its sources can be read there than elsewhere.
    Sources {
        /// How many can.
        readable: usize,
        /// How many there are.
        of: usize,
    },
    /// It was on another worker with the same memory, and this one comes first.
    Upgraded {
        /// The other worker.
        from: WorkerId,
    },
    /// It is cheap to compute and beside a boundary, and computing it on this side copies fewer bytes.
    Boundary {
        /// The worker on the other side.
        from: WorkerId,
    },
    /// The worker that owns its memory can't run it, and this one reaches that memory.
    Elsewhere {
        /// That worker.
        instead_of: WorkerId,
    },
    /// The node that reads it first is there.
    Reader {
        /// That node.
        node: TensorId,
    },
    /// No node reads it, and it must be somewhere.
    Unread,
}

impl AssignReason {
    /// Returns the reason in words.
    pub(crate) fn words(self, graph: &Graph, names: &IdVec<WorkerId, String>) -> String {
        let named = |tensor| Named::new(tensor, graph.names());
        let worker = |id| names.get(id).map_or("another", |name| name);
        match self {
            Self::Pinned => "pinned by the caller".into(),
            Self::Placed { root } => format!("writes into {}, which stands there", named(root)),
            Self::Input => "the caller writes it".into(),
            Self::Weight { weight } => format!("its weight {} is there", named(weight)),
            Self::Offloaded { weight } => {
                format!("worth the copy of its weight {} out of host memory", named(weight))
            }
            Self::Neighbour { node } => format!("next to {}", named(node)),
            Self::Sources { readable, of } => format!("can read {readable} of its {of} sources"),
            Self::Upgraded { from } => {
                format!("was {}'s, which has the same memory and comes later", worker(from))
            }
            Self::Boundary { from } => format!("fewer bytes are copied than if {} computed it", worker(from)),
            Self::Elsewhere { instead_of } => {
                format!("{} can't run it, and this one reaches its memory", worker(instead_of))
            }
            Self::Reader { node } => format!("{} reads it", named(node)),
            Self::Unread => "nobody reads it".into(),
        }
    }
}
