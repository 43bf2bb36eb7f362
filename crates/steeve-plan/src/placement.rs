//! A place for each block, not yet checked: [`certify`](crate::certify) turns it into a [`Plan`](crate::Plan).

use crate::{BlockId, IdVec, Place};

/// A claim: a place for each block, in the order of the problem's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Placement {
    /// The places.
    pub places: IdVec<BlockId, Place>,
}

impl Placement {
    /// Creates the claim that the blocks are at `places`.
    pub fn new(places: impl Into<IdVec<BlockId, Place>>) -> Self {
        Self { places: places.into() }
    }
}
