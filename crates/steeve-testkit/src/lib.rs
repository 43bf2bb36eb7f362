//! Helpers that the tests and benchmarks of several crates share. Not published.
//!
//! [`mod@reference`] evaluates graphs in f64 and judges what backends make of them; [`language_model`] and [`transformer`] build models;
//! [`mod@random_chains`] picks chains of nodes to be done in parts;
//! [`formats`] decodes block formats element by element; [`test_devices`] has devices that compute asynchronously under a tracer, and
//! [`device_set`] random sets of them; [`timing`] takes the medians that benchmarks print.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "helpers of tests, read where they are used")]
#![allow(clippy::new_without_default, clippy::should_implement_trait, reason = "only tests make these")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub mod formats;
pub mod language_model;
pub mod random_chains;
pub mod reference;
pub mod device_set;
pub mod timing;
pub mod transformer;
pub mod test_devices;
