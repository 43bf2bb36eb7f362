//! A place for each block. Nobody has checked it: [`certify`](crate::certify) turns it into a [`Plan`](crate::Plan).

use crate::{BlockId, IdVec, Place};

/// A claim: where each block stands, in the order of the problem's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Placement {
    /// The places.
    pub places: IdVec<BlockId, Place>,
}

impl Placement {
    /// A claim that the blocks stand at `places`.
    pub fn new(places: impl Into<IdVec<BlockId, Place>>) -> Self {
        Self { places: places.into() }
    }
}
