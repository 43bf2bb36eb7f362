//! Ending a run early, and how long its nodes took.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steeve_graph::TensorId;

/// Ends runs from another thread. Clones are the same.
///
/// ```
/// use steeve_cpu::{Cancel, CpuBackend};
/// let backend = CpuBackend::new(1);
/// let cancel: Cancel = backend.cancel();
/// std::thread::spawn(move || cancel.cancel()).join().unwrap();
/// assert!(backend.cancel().is_cancelled()); // every run ends soon, until `reset`
/// backend.cancel().reset();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Every run ends before its next unit of work, and says so.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Runs go on again.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether runs are ended.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long one node took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTime {
    /// The node.
    pub node: TensorId,
    /// The name of its operation.
    pub op: Cow<'static, str>,
    /// How long it took.
    pub time: Duration,
}

/// How long the nodes of the last run took, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timings(pub Vec<NodeTime>);

impl Timings {
    /// All nodes together.
    pub fn total(&self) -> Duration {
        self.0.iter().map(|node| node.time).sum()
    }

    /// Operations with how many nodes they had and how long those took, the longest first.
    pub fn by_op(&self) -> Vec<(&str, usize, Duration)> {
        let mut ops: Vec<(&str, usize, Duration)> = Vec::new();
        for node in &self.0 {
            match ops.iter_mut().find(|(op, ..)| *op == node.op) {
                Some((_, count, time)) => (*count, *time) = (*count + 1, *time + node.time),
                None => ops.push((&node.op, 1, node.time)),
            }
        }
        ops.sort_by_key(|(op, _, time)| (std::cmp::Reverse(*time), *op));
        ops
    }
}

/// A table of the operations, the longest first.
impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total().as_secs_f64().max(f64::MIN_POSITIVE);
        writeln!(f, "{:<16} {:>6} {:>12} {:>6}", "operation", "nodes", "ms", "%")?;
        for (op, nodes, time) in self.by_op() {
            let time = time.as_secs_f64();
            writeln!(f, "{op:<16} {nodes:>6} {:>12.3} {:>6.1}", time * 1e3, 100.0 * time / total)?;
        }
        write!(f, "{:<16} {:>6} {:>12.3}", "all", self.0.len(), total * 1e3)
    }
}
