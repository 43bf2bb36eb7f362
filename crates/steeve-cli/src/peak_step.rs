//! The fullest step of a memory as programs and sentences have it, and what is alive there.

use serde::Serialize;
use steeve_plan::{Bytes, Step};
use steeve_view::{LastUse, PlanMap, StepUnit, Tile};

/// When a memory is fullest: nodes of a graph, of which -1 is before the run; steps of a block list. Nothing where nothing
/// is ever alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PeakStep {
    Node(Option<i64>),
    Step(Option<u64>),
}

impl PeakStep {
    pub(crate) fn new(unit: StepUnit, step: Option<Step>) -> Self {
        match unit {
            StepUnit::Node => Self::Node(step.and_then(|step| i64::try_from(unit.number(step)).ok())),
            _ => Self::Step(step.map(|step| step.0)),
        }
    }
}

/// Names a step in a sentence: `before the run`, `at node 3 (kq-0)`, `at step 4`.
pub(crate) fn step_phrase(map: &PlanMap, step: Step) -> String {
    match (map.unit, step) {
        (StepUnit::Node, Step(0)) => map.step_called(step),
        _ => format!("at {}", map.step_called(step)),
    }
}

/// Something that is alive at the fullest step, for programs. Its bytes are those that it occupies, rounded up to its
/// alignment, so that all of them add up to the live bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum LiveAtPeak {
    Tensor {
        /// The id in the file; none for stand-ins for what a record does not describe.
        id: Option<u64>,
        name: String,
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        layer: Option<u32>,
        op: String,
        r#type: String,
        bytes: Bytes,
        first: i64,
        last: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_use: Option<&'static str>,
        /// The node that reads it last.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_read_by: Option<usize>,
    },
    Block {
        id: String,
        bytes: Bytes,
        lower: u64,
        upper: u64,
    },
}

impl LiveAtPeak {
    pub(crate) fn new(unit: StepUnit, tile: &Tile, id: Option<u64>) -> Self {
        let (start, end) = (tile.life.start(), tile.life.end());
        if unit != StepUnit::Node {
            return Self::Block { id: tile.name.clone(), bytes: tile.occupied, lower: start.0, upper: end.0 };
        }
        let node = |step: u64| i64::try_from(step).map_or(i64::MAX, |step| step - 1);
        let (last_use, last_read_by) = match tile.last_use {
            LastUse::Read { node } => (Some("read"), Some(node)),
            LastUse::Output => (Some("output"), None),
            LastUse::Unread => (Some("unread"), None),
            LastUse::Fusion => (Some("fusion"), None),
            _ => (None, None),
        };
        Self::Tensor {
            id,
            name: tile.name.clone(),
            role: tile.role.title(),
            layer: tile.layer,
            op: tile.maker().to_owned(),
            r#type: tile.layout.clone(),
            bytes: tile.occupied,
            first: node(start.0),
            last: node(end.0.saturating_sub(1)),
            last_use,
            last_read_by,
        }
    }
}
