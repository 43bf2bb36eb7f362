//! The figures of a plan, of a block list or of a graph: what tables and JSON show.

use std::time::Duration;

use steeve_plan::{Bytes, Clipped, Verdict};

/// The figures of one file with one strategy.
#[derive(Clone, Debug)]
pub(crate) struct PlanFigures {
    pub(crate) strategy: &'static str,
    /// Which nodes are computed in place; of graphs alone.
    pub(crate) reuse: Option<&'static str>,
    /// What becomes of tensors that no node reads; of graphs alone.
    pub(crate) unread: Option<&'static str>,
    /// What planning took, all memories together.
    pub(crate) time: Duration,
    /// At least one; a block list has exactly one.
    pub(crate) memories: Vec<MemoryFigures>,
}

/// The figures of one memory.
#[derive(Clone, Debug)]
pub(crate) struct MemoryFigures {
    pub(crate) name: String,
    pub(crate) blocks: usize,
    /// The sum of its buffers' sizes.
    pub(crate) peak: Bytes,
    /// No plan is smaller than this.
    pub(crate) at_least: Bytes,
    pub(crate) verdict: Verdict,
    /// The size of each buffer.
    pub(crate) chunks: Vec<Bytes>,
    /// What ggml's own plan needs; unknown for a block list.
    pub(crate) ggml: Option<Bytes>,
}

impl MemoryFigures {
    pub(crate) fn is_optimal(&self) -> bool {
        self.peak == self.at_least
    }
}

impl PlanFigures {
    /// Returns the names of its memories.
    pub(crate) fn memory_names(&self) -> impl Iterator<Item = &str> {
        self.memories.iter().map(|it| it.name.as_str())
    }

    pub(crate) fn fits(&self) -> bool {
        self.memories.iter().all(|it| it.verdict.fits())
    }

    /// Returns the worst verdict of all memories.
    pub(crate) fn verdict(&self) -> Verdict {
        let any = |verdict| self.memories.iter().any(|it| it.verdict == verdict);
        if any(Verdict::CannotFit) {
            Verdict::CannotFit
        } else if any(Verdict::NotFound) {
            Verdict::NotFound
        } else if self.memories.iter().all(|it| it.verdict == Verdict::Optimal) {
            Verdict::Optimal
        } else {
            Verdict::Fits
        }
    }

    /// Returns the verdict as one word for programs.
    pub(crate) fn status(&self) -> &'static str {
        match self.verdict() {
            Verdict::CannotFit => "cannot-fit",
            Verdict::NotFound => "not-found",
            Verdict::Optimal => "optimal",
            _ => "fits",
        }
    }

    /// Sums up several memories as one; `None` for a single one.
    pub(crate) fn total(&self) -> Option<MemoryFigures> {
        if self.memories.len() < 2 {
            return None;
        }
        let ggml = self.memories.iter().map(|it| it.ggml).collect::<Option<Vec<_>>>();
        Some(MemoryFigures {
            name: "total".to_owned(),
            blocks: self.memories.iter().map(|it| it.blocks).sum(),
            peak: sum(self.memories.iter().map(|it| it.peak)),
            at_least: sum(self.memories.iter().map(|it| it.at_least)),
            verdict: self.verdict(),
            chunks: self.memories.iter().flat_map(|it| it.chunks.iter().copied()).collect(),
            ggml: ggml.map(|ggml| sum(ggml.into_iter())),
        })
    }
}

/// The name of the only memory of a block list.
pub(crate) const ONLY_MEMORY: &str = "memory";

/// Names a memory in a sentence: `memory CUDA0`, or `the memory` for one that is just called memory.
pub(crate) fn memory_phrase(name: &str) -> String {
    if name == ONLY_MEMORY { "the memory".to_owned() } else { format!("memory {}", Clipped(name)) }
}

/// Sums up bytes, saturating.
pub(crate) fn sum(bytes: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(bytes.fold(0u64, |sum, it| sum.saturating_add(it.0)))
}
