//! What is wrong with one memory of a plan file, whatever it is the plan of.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{FileBlock, FileMemory};
use crate::{BlockId, BufferId, Bytes, Id, Offset, Placement, Plan, Problem, ProblemError, Violation, certify};

/// One thing that is wrong with a memory of a file, whatever it is the plan of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// The blocks can't be those of any plan.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// Blocks overlap, or one is misaligned.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A block passes the end of its buffer.
    #[error("block {block}: exceeds buffer {buffer} of {room} bytes: {size} bytes at offset {offset}")]
    Outside {
        /// The block.
        block: BlockId,
        /// Its bytes.
        size: Bytes,
        /// Its offset.
        offset: Offset,
        /// Its buffer.
        buffer: BufferId,
        /// The buffer's bytes.
        room: Bytes,
    },
    /// A block in a buffer that does not exist.
    #[error("block {block}: no buffer {buffer}: there are {buffers}")]
    NoBuffer {
        /// The block.
        block: BlockId,
        /// Its buffer.
        buffer: BufferId,
        /// How many there are.
        buffers: usize,
    },
    /// A figure does not agree with the blocks.
    #[error("{field}: does not match the blocks: expected {computed}, got {found}")]
    Figure {
        /// Which field.
        field: &'static str,
        /// What the file says.
        found: String,
        /// What follows from the blocks.
        computed: String,
    },
}

/// Everything that is wrong with a memory of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFaults(Vec<FileFault>);

impl FileFaults {
    /// Returns each of them.
    pub fn list(&self) -> &[FileFault] {
        &self.0
    }
}

impl core::fmt::Display for FileFaults {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            write!(f, "{}{fault}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl core::error::Error for FileFaults {}

impl FileMemory {
    /// Returns the proven plan, or everything that is wrong with the claim.
    pub fn certify(&self) -> Result<Plan, FileFaults> {
        let mut faults = self.own_faults();
        let problem = match Problem::new(self.problem_blocks()) {
            Ok(problem) => problem,
            Err(error) => {
                faults.push(error.into());
                return Err(FileFaults(faults));
            }
        };
        let problem = match self.max_buffer {
            // ggml's last chunk ignores the limit, and that is its answer all the same.
            Some(limit) if !self.ggml_layout => problem.with_max_buffer(limit),
            _ => problem,
        };
        match certify(problem, Placement::new(self.places())) {
            Ok(plan) if faults.is_empty() => Ok(plan),
            Ok(_) => Err(FileFaults(faults)),
            Err(wrong) => {
                faults.extend(wrong.list().iter().cloned().map(FileFault::from));
                Err(FileFaults(faults))
            }
        }
    }

    /// Returns everything that is wrong with the claim.
    pub fn faults(&self) -> Vec<FileFault> {
        self.certify().err().map(|faults| faults.0).unwrap_or_default()
    }

    /// Returns the blocks that are not within their buffer, and the figures that do not agree with the blocks.
    pub fn own_faults(&self) -> Vec<FileFault> {
        let outside = self.outside();
        if outside.is_empty() { self.figure_faults() } else { outside }
    }

    /// Returns the figures that do not agree with the blocks.
    pub fn figure_faults(&self) -> Vec<FileFault> {
        let wrong = |field, found: String, computed: String| FileFault::Figure { field, found, computed };
        let numbers = |sizes: &[Bytes]| format!("{:?}", sizes.iter().map(|size| size.0).collect::<Vec<_>>());
        let (used, mut faults) = (self.used_sizes(), Vec::new());
        if self.buffers != used {
            faults.push(wrong("buffers", numbers(&self.buffers), numbers(&used)));
        }
        let sum = self.buffers.iter().fold(0, |sum: u64, size| sum.saturating_add(size.0));
        if self.peak.0 != sum {
            faults.push(wrong("peak", format!("{}", self.peak), format!("{sum}")));
        }
        // A lower one is true, too.
        if self.lower_bound.0 > sum {
            faults.push(wrong("lower_bound", format!("{}", self.lower_bound), format!("at most {sum}")));
        }
        faults
    }

    /// Finds the blocks that are not within their buffer.
    fn outside(&self) -> Vec<FileFault> {
        let fault = |(index, it): (usize, &FileBlock)| {
            let FileBlock { size, offset, buffer, .. } = *it;
            let block = BlockId::from_index(index)?;
            match (self.buffers.get(buffer.index()).copied(), offset.0.checked_add(size.0)) {
                // What has no bytes needs no buffer.
                (None, _) if size == Bytes::ZERO => None,
                (None, _) => Some(FileFault::NoBuffer { block, buffer, buffers: self.buffers.len() }),
                (Some(room), Some(end)) if end <= room.0 => None,
                (Some(room), _) => Some(FileFault::Outside { block, size, offset, buffer, room }),
            }
        };
        self.blocks.iter().enumerate().filter_map(fault).collect()
    }
}
