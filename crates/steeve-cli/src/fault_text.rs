//! Errors of the planner in the words of the file: blocks by the ids that the user gave them.

use std::fmt;

use steeve_plan::file::FileFault;
use steeve_plan::{BlockId, Clipped, IdVec, Place, ProblemError, Violation, Violations};

type BlockNames = IdVec<BlockId, String>;

/// Describes a violation in one sentence, with the ids of the file.
pub(crate) fn violation(violation: &Violation, ids: &BlockNames) -> String {
    let name = |block: &BlockId| BlockName(ids, *block);
    match violation {
        Violation::BufferIndexTooLarge { block, buffer, blocks } => {
            format!("block {} is in buffer {buffer}, but {blocks} blocks fill at most {blocks} buffers", name(block))
        }
        Violation::Misaligned { block, offset, align } => {
            format!("block {} is at offset {offset}, which is not a multiple of its alignment {align}", name(block))
        }
        Violation::OutOfRange { block, offset, size } => {
            format!("block {} of {size} bytes at offset {offset} passes the end of the address space", name(block))
        }
        Violation::NotAtPin { block, pinned, place } => {
            format!("block {} is pinned to {} but is at {}", name(block), PlaceText(*pinned), PlaceText(*place))
        }
        Violation::NotAtPredecessor { block, follows, place, expected } => {
            let (block, follows) = (name(block), name(follows));
            format!(
                "block {block} follows block {follows} but is at {} instead of {}",
                PlaceText(*place),
                PlaceText(*expected)
            )
        }
        Violation::Overlap { block, other, buffer, offset, step } => {
            let (block, other) = (name(block), name(other));
            format!("blocks {block} and {other} share byte {offset} of buffer {buffer} at step {step}")
        }
        Violation::OverlapTooClose { block, overlaps, start, overlapped, distance } => {
            let (block, overlaps) = (name(block), name(overlaps));
            format!(
                "block {block} at offset {start} overlaps block {overlaps} at {overlapped} and may not be so close: expected at least {distance} bytes below it"
            )
        }
        // These speak of no block.
        other => other.to_string(),
    }
}

/// Describes a fault of one memory of a plan file in one sentence.
pub(crate) fn file_fault(fault: &FileFault, ids: &BlockNames) -> String {
    let name = |block: &BlockId| BlockName(ids, *block);
    match fault {
        FileFault::Problem(error) => problem_error(error, ids),
        FileFault::Violation(it) => violation(it, ids),
        FileFault::Outside { block, size, offset, buffer, room } => format!(
            "block {} of {size} bytes at offset {offset} passes the end of buffer {buffer}, which has {room} bytes",
            name(block)
        ),
        FileFault::NoBuffer { block, buffer, buffers } => {
            format!("block {} is in buffer {buffer}, and there are {buffers}", name(block))
        }
        // These speak of no block.
        other => other.to_string(),
    }
}

/// Describes several violations in one line.
pub(crate) fn violations(wrong: &Violations, ids: &BlockNames) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = wrong.list().iter().take(SHOWN).map(|it| violation(it, ids)).collect();
    match wrong.list().len().saturating_sub(SHOWN) {
        0 => shown.join("; "),
        more => format!("{}; and {more} more", shown.join("; ")),
    }
}

/// Describes why blocks are not a valid problem.
pub(crate) fn problem_error(error: &ProblemError, ids: &BlockNames) -> String {
    let name = |block: &BlockId| BlockName(ids, *block);
    match error {
        ProblemError::TooLarge { block, size } => {
            format!("the blocks up to block {} (of {size} bytes) add up to 2^64 bytes or more", name(block))
        }
        ProblemError::TooMuchPadding { block, widest, align } => format!(
            "the blocks up to block {} add up to 2^64 bytes or more with the padding between them; block {} is \
             aligned to {align}",
            name(block),
            name(widest)
        ),
        ProblemError::FollowsTwice { block, other, follows } => {
            let (block, other, follows) = (name(block), name(other), name(follows));
            format!("blocks {block} and {other} both follow block {follows}; only one can take over its bytes")
        }
        ProblemError::FollowsAtAnotherStep { block, start, follows, end } => {
            let (block, follows) = (name(block), name(follows));
            format!("block {block} starts at step {start} but follows block {follows}, which ends at step {end}")
        }
        ProblemError::FollowsSmaller { block, size, follows, room } => {
            let (block, follows) = (name(block), name(follows));
            format!(
                "block {block} of {size} bytes does not fit into the {room} bytes of block {follows}, which it follows"
            )
        }
        ProblemError::FollowsElsewhere { block, head } => {
            let (block, head) = (name(block), name(head));
            format!(
                "block {block} is pinned, but block {head}, whose bytes it takes over, is not pinned to the same place"
            )
        }
        ProblemError::PinnedUnaligned { block, offset, align } => {
            format!(
                "block {} is pinned to offset {offset}, which is not a multiple of its alignment {align}",
                name(block)
            )
        }
        ProblemError::PinnedBufferTooLarge { block, buffer, blocks } => {
            format!(
                "block {} is pinned to buffer {buffer}, but {blocks} blocks fill at most {blocks} buffers",
                name(block)
            )
        }
        // These speak of no block that the file could name.
        other => other.to_string(),
    }
}

/// A block as the file calls it; in quotes where the name would run into the sentence.
pub(crate) struct BlockName<'a>(pub(crate) &'a BlockNames, pub(crate) BlockId);

impl fmt::Display for BlockName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(self.1) {
            None => self.1.fmt(f),
            Some(id) if id.contains(|letter: char| letter.is_whitespace() || letter.is_control() || letter == '"') => {
                write!(f, "{:?}", Clipped(id))
            }
            Some(id) => Clipped(id).fmt(f),
        }
    }
}

struct PlaceText(Place);

impl fmt::Display for PlaceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {} of buffer {}", self.0.offset, self.0.buffer)
    }
}
