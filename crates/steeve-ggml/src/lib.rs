//! ggml's graph allocator with smaller buffers: the functions `ggml_gallocr_*` under ggml's own names, planned by steeve.
//!
//! ```text
//!   LD_PRELOAD=libsteeve_ggml.so STEEVE_LOG=1 any-program-with-ggml ...
//! ```
//!
//! | file | what |
//! |---|---|
//! | `gallocr_exports` | the C functions |
//! | `gallocr_handle`, `address_registry` | what their handle points to: our allocator, and ggml's own for graphs that ours can't plan; which of the two a handle belongs to |
//! | `fallback_history` | when ours may plan again after such a graph |
//! | `find_ggml`, `loaded_object`, `function_tables`, `ggml_instance`, `abi_check` | which ggml a call came from, its functions, and whether its structures are the known ones |
//! | `interposable_calls` | whether ggml's own calls can be taken over, or are bound inside |
//! | `ggml_abi`, `read_graph` | ggml's structures, and the caller's graph as one of ours |
//! | `buffer_types` | ggml's buffer types as memories: which is plain CPU memory, and what the backends of the others need |
//! | `planned_allocator` (`buffer_set`, `small_plans`), `graph_pattern` (`number_binding`) | plans and buffers; whether a graph is the planned one |
//! | `plan_folder` | plans as files, so that a search is not made twice |
//! | `drop_in_settings`, `record_graph`, `log` | the environment variables; graphs as files; messages, and where they go |
//! | `usage_report`, `forwarded_functions` | what a program allocates, as lines in a file; functions that are forwarded to ggml so that this is known |
//! | `ggml_simulation` | what ggml's own allocator would need for a graph |
//! | `growing_list`, `hash` | lock-free lists that only grow and values that are made once; a hash |
//! | `linked_exports` | the rest of ggml's allocator, for programs that link the static library |
//!
//! `unsafe` is everywhere here, because C is. What the callers of the C functions promise is that handles, graphs and buffer
//! types are ggml's and whole; what graphs *say* is not trusted.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod ggml_abi;
mod log;
mod growing_list;
mod hash;
mod function_tables;
mod abi_check;
mod loaded_object;
#[cfg(any(not(feature = "whole"), test))]
mod interposable_calls;
mod ggml_instance;
#[cfg(any(not(feature = "whole"), test))]
mod find_ggml;
mod drop_in_settings;
mod read_graph;
mod graph_pattern;
mod record_graph;
mod plan_folder;
mod planned_allocator;
mod fallback_history;
mod address_registry;
mod gallocr_handle;
mod buffer_types;
mod ggml_simulation;
#[cfg_attr(all(feature = "whole", not(test)), allow(dead_code))]
mod usage_report;
#[cfg(any(not(feature = "whole"), test))]
mod forwarded_functions;
mod gallocr_exports;
#[cfg(all(feature = "whole", not(test)))]
mod linked_exports;
