//! ggml's graph allocator with smaller buffers: the functions `ggml_gallocr_*` under ggml's own names, planned by steeve.
//!
//! ```text
//!   LD_PRELOAD=libsteeve_ggml.so STEEVE_LOG=1 any-program-with-ggml ...
//! ```
//!
//! | file | what |
//! |---|---|
//! | `exports` | the C functions |
//! | `handle`, `registry` | what their handle is: our allocator, and ggml's own for graphs that ours can't plan; whose each is |
//! | `fallback` | when ours may plan again after such a graph |
//! | `find`, `object`, `functions`, `ggml`, `handshake` | which ggml a call came from, its functions, and whether we know its structures |
//! | `interposable` | whether its own calls come by, or are bound inside |
//! | `abi`, `read` | its structures, and the caller's graph as one of ours |
//! | `devices` | its buffer types as memories: which is plain CPU memory, and what the backends of the others need |
//! | `galloc`, `pattern` | plans and buffers; whether a graph is the planned one |
//! | `plan_folder` | plans as files, so that a search is not made twice |
//! | `settings`, `record`, `log` | the environment; graphs as files; what is said, and where |
//! | `report`, `passed` | what a program takes, as lines in a file; functions that are passed on to ggml so that this is known |
//! | `simulation` | what ggml's own allocator would need for a graph |
//! | `growing_list`, `hash` | lists that only grow and values that are made once, without a lock; a hash |
//! | `whole` | the rest of ggml's allocator, for those who link |
//!
//! `unsafe` is everywhere here, because C is. What the callers of the C functions promise is that handles, graphs and buffer
//! types are ggml's and whole; what graphs *say* is not trusted.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod abi;
mod log;
mod growing_list;
mod hash;
mod functions;
mod handshake;
mod object;
#[cfg(any(not(feature = "whole"), test))]
mod interposable;
mod ggml;
#[cfg(any(not(feature = "whole"), test))]
mod find;
mod settings;
mod read;
mod pattern;
mod record;
mod plan_folder;
mod galloc;
mod fallback;
mod registry;
mod handle;
mod devices;
mod simulation;
#[cfg_attr(all(feature = "whole", not(test)), allow(dead_code))]
mod report;
#[cfg(any(not(feature = "whole"), test))]
mod passed;
mod exports;
#[cfg(all(feature = "whole", not(test)))]
mod whole;
