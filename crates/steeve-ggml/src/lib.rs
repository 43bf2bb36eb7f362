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
//! On other systems than Linux, where ggml's structures and the loader are not known, the library is empty.
//!
//! `unsafe` is denied but in the modules that are allowed it by name below: those that call ggml or the loader, follow pointers
//! into ggml's structures, or are called by C, and the two lock-free tables. What the callers of the C functions promise is that
//! handles, graphs and buffer types are ggml's and whole; what graphs *say* is not trusted.
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod drop_in_settings;
mod ggml_abi;
mod hash;
mod plan_folder;

// Lock-free tables.
#[allow(unsafe_code)]
mod address_registry;
#[allow(unsafe_code)]
mod growing_list;

// Calls of ggml, of the loader and of the C library.
#[allow(unsafe_code)]
mod abi_check;
#[allow(unsafe_code)]
mod buffer_types;
#[allow(unsafe_code)]
#[cfg(any(not(feature = "whole"), test))]
mod find_ggml;
#[allow(unsafe_code)]
mod function_tables;
#[allow(unsafe_code)]
mod ggml_instance;
#[allow(unsafe_code)]
#[cfg(any(not(feature = "whole"), test))]
mod interposable_calls;
#[allow(unsafe_code)]
mod loaded_object;
#[allow(unsafe_code)]
mod log;

// Graphs in ggml's structures.
#[allow(unsafe_code)]
mod fallback_history;
#[allow(unsafe_code)]
mod ggml_simulation;
#[allow(unsafe_code)]
mod graph_pattern;
#[allow(unsafe_code)]
mod planned_allocator;
#[allow(unsafe_code)]
mod read_graph;
#[allow(unsafe_code)]
mod record_graph;
#[allow(unsafe_code)]
#[cfg_attr(all(feature = "whole", not(test)), allow(dead_code))]
mod usage_report;

// The C interface.
#[allow(unsafe_code)]
#[cfg(any(not(feature = "whole"), test))]
mod forwarded_functions;
#[allow(unsafe_code)]
mod gallocr_exports;
#[allow(unsafe_code)]
mod gallocr_handle;
#[allow(unsafe_code)]
#[cfg(all(feature = "whole", not(test)))]
mod linked_exports;
