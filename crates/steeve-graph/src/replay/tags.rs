//! Bytes with the tag of what wrote them last.

use crate::{IntervalMap, TensorId};

/// What wrote a byte last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterTag {
    Caller(TensorId),
    Node(usize),
}

/// The tag of each byte that has been written.
pub(super) type WriterTags = IntervalMap<WriterTag>;
