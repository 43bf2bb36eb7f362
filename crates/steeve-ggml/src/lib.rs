//! ggml's graph allocator with smaller buffers: the functions `ggml_gallocr_*` under ggml's own names, planned by steeve.
//!
//! ```text
//!   LD_PRELOAD=libsteeve_ggml.so STEEVE_LOG=1 any-program-with-ggml ...
//! ```
//!
//! | file | what |
//! |---|---|
//! | `exports` | the C functions |
//! | `handle` | what their handle is: our allocator, and ggml's own for when ours gives up |
//! | `find`, `object`, `functions`, `ggml`, `handshake` | which ggml a call came from, its functions, and whether we know its structures |
//! | `interposable` | whether its own calls come by, or are bound inside |
//! | `abi`, `read` | its structures, and the caller's graph as one of ours |
//! | `galloc`, `pattern` | plans and buffers; whether a graph is the planned one |
//! | `settings`, `record` | the environment; graphs as files |
//! | `whole` | the rest of ggml's allocator, for those who link |
//!
//! `unsafe` is everywhere here, because C is. What the callers of the C functions promise is that handles, graphs and buffer
//! types are ggml's and whole; what graphs *say* is not trusted.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod abi;
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
mod galloc;
mod handle;
mod exports;
#[cfg(all(feature = "whole", not(test)))]
mod whole;

/// One line on stderr that begins with `steeve`. Failing to say something is no failure.
macro_rules! say {
    ($($what:tt)*) => { $crate::say_line(format_args!($($what)*)) };
}
use say;

fn say_line(what: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    // In one piece, or the lines of several threads are mixed.
    let _ = std::io::stderr().write_all(format!("steeve: {what}\n").as_bytes());
}
