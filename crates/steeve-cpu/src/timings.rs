//! How long the nodes of a run took.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use steeve_graph::TensorId;

/// The time that one node took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTime {
    /// The node.
    pub node: TensorId,
    /// The name of its operation.
    pub op: Cow<'static, str>,
    /// The time.
    pub time: Duration,
}

/// The times of the nodes of the last run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timings(pub Vec<NodeTime>);

impl Timings {
    /// Returns the time of all nodes together.
    pub fn total(&self) -> Duration {
        self.0.iter().map(|node| node.time).sum()
    }

    /// Returns operations with their numbers of nodes and their times, the longest first.
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
