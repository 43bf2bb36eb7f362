//! The file of a saved plan.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use steeve_plan::{Align, Best, Block, BlockId, BufferId, Bytes, Id, Offset, Place, Verdict};

use super::GRAPH_PLAN_VERSION;
use crate::plan::Given;
use crate::{Fusion, GraphPlan, GraphStrategy, Memory, MemoryPlan, PlanOptions, Reuse, TensorId, Unread};

/// All that is known of a file of another version.
#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) version: u32,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    pub(super) version: u32,
    pub(super) fingerprint: String,
    pub(super) strategy: StrategyWord,
    #[serde(with = "ReuseWord")]
    pub(super) reuse: Reuse,
    #[serde(with = "UnreadWord")]
    pub(super) unread: Unread,
    pub(super) memories: Vec<SavedMemory>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedMemory {
    pub(super) name: String,
    pub(super) align: Align,
    pub(super) max_buffer: Option<Bytes>,
    pub(super) hold: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) fusion: Fusion,
    /// Whether the plan keeps to `hold` and `fusion`; ggml's own layout does not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) keeps_hold: KeepsHold,
    pub(super) verdict: VerdictWord,
    pub(super) at_least: Bytes,
    pub(super) blocks: Vec<Row>,
}

/// True where a file does not say.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct KeepsHold(pub(super) bool);

impl Default for KeepsHold {
    fn default() -> Self {
        Self(true)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A block: its tensor, the memory that was asked for, its bytes, its steps, whom it follows, where it stands.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Row(
    pub(super) u32,
    pub(super) u32,
    pub(super) Bytes,
    pub(super) (u64, u64),
    pub(super) Option<BlockId>,
    pub(super) BufferId,
    pub(super) Offset,
);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StrategyWord {
    Ggml,
    Fast,
    Best,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Reuse", rename_all = "lowercase")]
pub(super) enum ReuseWord {
    Ggml,
    More,
    None,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Unread", rename_all = "kebab-case")]
pub(super) enum UnreadWord {
    Keep,
    FreeInputs,
    Free,
}

/// Without a capacity there are no other verdicts.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum VerdictWord {
    Optimal,
    Fits,
}

impl Saved {
    pub(super) fn of(plan: &GraphPlan) -> Self {
        let strategy = match plan.options.strategy {
            GraphStrategy::Ggml => StrategyWord::Ggml,
            GraphStrategy::Fast => StrategyWord::Fast,
            GraphStrategy::Best(_) => StrategyWord::Best,
        };
        let mut memories: Vec<SavedMemory> = plan.memories.iter().map(|it| SavedMemory::of(plan, it)).collect();
        for Given { part, block, asked, .. } in plan.given.iter().copied().flatten() {
            memories[part as usize].blocks[block.index()].1 = asked.index() as u32;
        }
        let PlanOptions { reuse, unread, .. } = plan.options;
        let fingerprint = plan.assigned.fingerprint().to_string();
        Self { version: GRAPH_PLAN_VERSION, fingerprint, strategy, reuse, unread, memories }
    }

    pub(super) fn options(&self) -> PlanOptions {
        let (strategy, reuse) = match self.strategy {
            StrategyWord::Ggml => (GraphStrategy::Ggml, Reuse::Ggml),
            StrategyWord::Fast => (GraphStrategy::Fast, self.reuse),
            StrategyWord::Best => (GraphStrategy::Best(Best::default()), self.reuse),
        };
        PlanOptions { strategy, reuse, unread: self.unread }
    }
}

impl SavedMemory {
    pub(super) fn of(plan: &GraphPlan, it: &MemoryPlan) -> Self {
        let Memory { name, align, max_buffer, hold, fusion, .. } = plan.assigned.memories()[it.memory].clone();
        let verdict = if it.verdict == Verdict::Optimal { VerdictWord::Optimal } else { VerdictWord::Fits };
        let row = |((block, place), tensor): ((&Block, &Place), &TensorId)| {
            let asked = it.memory.index() as u32;
            let tensor = tensor.index() as u32;
            Row(tensor, asked, block.size, block.life.into(), block.follows, place.buffer, place.offset)
        };
        // Of a plan as ggml makes it, that is said by its strategy.
        let keeps_hold = KeepsHold(it.keeps_hold || plan.options.strategy == GraphStrategy::Ggml);
        // Prefixes that outlive their block are derived again.
        let own = it.tensors.ids().take_while(|block| plan.is_own_block(it, *block)).count();
        let blocks =
            it.plan.problem().blocks().iter().zip(it.plan.places()).zip(&it.tensors).take(own).map(row).collect();
        Self { name, align, max_buffer, hold, fusion, keeps_hold, verdict, at_least: it.at_least, blocks }
    }
}
