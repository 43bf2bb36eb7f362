//! The fields of a record, as in the file.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::GgmlTimes;
use crate::Fusion;

/// The schema of recorded graphs.
pub const SCHEMA: &str = "galloc-dump-1";

/// A source that is a tensor outside of the record.
pub(super) const OUTSIDE: i64 = -2;
/// A source slot without a source.
pub(super) const EMPTY: i64 = -1;

#[derive(Deserialize, Serialize)]
pub(super) struct GraphRecord<'a> {
    #[serde(borrow)]
    pub(super) schema: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) tag: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) no_alloc: Option<bool>,
    #[serde(default)]
    pub(super) n_nodes: usize,
    #[serde(default)]
    pub(super) n_leafs: usize,
    #[serde(default)]
    pub(super) n_tensors: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) time_us: Option<GgmlTimes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_free_blocks: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) n_view_inplace: Option<u64>,
    #[serde(borrow)]
    pub(super) buffers: Vec<BufferRecord<'a>>,
    pub(super) leafs: Vec<(i64, i64)>,
    pub(super) nodes: Vec<(i64, i64)>,
    #[serde(borrow)]
    pub(super) tensors: Vec<TensorRecord<'a>>,
}

#[derive(Deserialize, Serialize)]
pub(super) struct BufferRecord<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    pub(super) alignment: u64,
    pub(super) max_size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shared_with: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fusion: Option<Fusion>,
    #[serde(default)]
    pub(super) chunks: Vec<u64>,
}

#[derive(Deserialize, Serialize)]
pub(super) struct TensorRecord<'a> {
    pub(super) id: u64,
    #[serde(borrow, default)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) op: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) desc: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    pub(super) dtype: Cow<'a, str>,
    pub(super) ne: [u64; 4],
    pub(super) nb: [u64; 4],
    #[serde(default)]
    pub(super) flags: u64,
    pub(super) nbytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) view_src: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) view_offs: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) src: Vec<i64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) pre: u8,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) pre_buft: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) alloc_size: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) res: Option<PlaceRecord>,
}

/// A tensor that ggml never placed may have negative numbers here.
#[derive(Clone, Copy, Deserialize, Serialize)]
pub(super) struct PlaceRecord {
    pub(super) buffer_id: i64,
    pub(super) chunk: i64,
    pub(super) offset: u64,
    pub(super) size_max: u64,
}

// By reference, because serde hands it over like that.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(bits: &u8) -> bool {
    *bits == 0
}
