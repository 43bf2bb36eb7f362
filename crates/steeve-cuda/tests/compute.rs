//! Operations on each GPU there is: every node within tolerance of exact values, wherever its result is, and the same
//! bits in every plan, launched one by one and captured.
//!
//! `STEEVE_PROOF=10000` asks for more random graphs, and `--nocapture` shows what was in them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;
mod proof;

// What the tests share, and the tests.
#[path = "compute/frame.rs"]
mod frame;
#[path = "compute/products.rs"]
mod products;
#[path = "compute/blocks.rs"]
mod blocks;
#[path = "compute/rows.rs"]
mod rows;
#[path = "compute/orders.rs"]
mod orders;
#[path = "compute/attention.rs"]
mod attention;
#[path = "compute/empty.rs"]
mod empty;
#[path = "compute/random.rs"]
mod random;
use steeve_testkit::reference;
