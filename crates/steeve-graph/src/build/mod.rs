//! The functions of a [`Context`](crate::Context) that are named after operations, by topic.
//!
//! Each one hands its sources and parameters to the rule in the table of operations; what a rule demands is in
//! [`shape`](crate::shape).

mod attention;
mod elementwise;
mod image;
mod matrix;
mod view;

pub use attention::{FlashAttention, Rope, RopeMode, SoftMax};
pub use image::{Convolution, Interpolation, Pool, Window};
pub use matrix::SortOrder;
