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
//! | `find`, `functions`, `ggml`, `handshake` | which ggml a call came from, its functions, and whether we know its structures |
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
mod ggml;
#[cfg(not(feature = "whole"))]
mod find;
mod settings;
mod read;
mod pattern;
mod record;
mod galloc;
mod handle;
mod exports;
#[cfg(feature = "whole")]
mod whole;

/// One line on stderr that begins with `steeve`. Failing to say something is no failure.
macro_rules! say {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "steeve: {}", format_args!($($what)*));
    }};
}
use say;

