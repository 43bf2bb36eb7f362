//! The figures of a plan, of a block list or of a graph: what tables and JSON show.

use std::time::Duration;

use steeve_models::onnx::Weights;
use steeve_plan::{Bytes, Clipped, Verdict};

/// The planner that a graph's own engine has: what our plans are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EnginePlanner {
    /// ggml's allocator.
    #[default]
    Ggml,
    /// The greedy planner of TensorFlow Lite Micro.
    Tflm,
    /// None: a plan of ours in which nothing is computed in place.
    NotInPlace,
}

impl EnginePlanner {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ggml => "ggml",
            Self::Tflm => "tflm",
            Self::NotInPlace => "not in place",
        }
    }

    /// Returns the header above ratios to its bytes.
    pub(crate) fn ratio_header(self) -> &'static str {
        match self {
            Self::Ggml => "of ggml",
            Self::Tflm => "of tflm",
            Self::NotInPlace => "of not in place",
        }
    }
}

/// The figures of one file with one strategy.
#[derive(Clone, Debug)]
pub(crate) struct PlanFigures {
    pub(crate) strategy: &'static str,
    /// Whose plans those of [`MemoryFigures::engine`] are.
    pub(crate) engine: EnginePlanner,
    /// Which nodes are computed in place; of graphs alone.
    pub(crate) reuse: Option<&'static str>,
    /// What becomes of tensors that no node reads; of graphs alone.
    pub(crate) unread: Option<&'static str>,
    /// How many nodes run elsewhere than in the graph's own order; `None` where that is kept, or was not asked for.
    pub(crate) moved: Option<usize>,
    /// What planning took, all memories together.
    pub(crate) time: Duration,
    /// At least one; a block list has exactly one.
    pub(crate) memories: Vec<MemoryFigures>,
    /// Of ONNX models alone.
    pub(crate) model: Option<Box<ModelFigures>>,
}

/// What is said of an ONNX model beside its plan.
#[derive(Clone, Debug)]
pub(crate) struct ModelFigures {
    pub(crate) weights: Weights,
    /// The sizes that were given for its free dimensions.
    pub(crate) dims: Vec<(String, u64)>,
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
    /// What the engine's own plan needs; unknown for a block list.
    pub(crate) engine: Option<Bytes>,
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
        let engine = self.memories.iter().map(|it| it.engine).collect::<Option<Vec<_>>>();
        Some(MemoryFigures {
            name: "total".to_owned(),
            blocks: self.memories.iter().map(|it| it.blocks).sum(),
            peak: sum(self.memories.iter().map(|it| it.peak)),
            at_least: sum(self.memories.iter().map(|it| it.at_least)),
            verdict: self.verdict(),
            chunks: self.memories.iter().flat_map(|it| it.chunks.iter().copied()).collect(),
            engine: engine.map(|engine| sum(engine.into_iter())),
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
