//! Draws memory plans: width is lifetime, height is size, vertical position is offset.
//!
//! A proven plan becomes one [`PlanMap`]; one map, or two to compare, are a [`Picture`]; and a picture is drawn as
//!
//! | function | what |
//! |---|---|
//! | [`page()`] | one self-contained HTML page: zoom, pan, search, what is alive at each step, two plans side by side |
//! | [`svg()`] | a drawing for papers and READMEs, with a limit on its rectangles |
//! | [`terminal()`] | a map as wide as the terminal, in colours or in letters |
//! | [`header()`] | no picture but the same facts for a C compiler: arena sizes and an offset per tensor |
//!
//! ```text
//!   GraphPlan, Plan --PlanMap::of_...--> PlanMap --> Picture --page, svg, terminal, header--> String
//! ```
//!
//! ```
//! use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
//! use steeve_view::{PlanMap, Picture, TerminalStyle, page, svg, terminal};
//!
//! let graph: AssignedGraph = "x = input f32[64,32]; y = silu x; z = add y x !output".parse()?;
//! let plan = plan_graph(&graph, &PlanOptions::default())?;
//! let picture = Picture::of("tiny.graph", PlanMap::of_graph("steeve", &plan));
//!
//! print!("{}", terminal(&picture, &TerminalStyle::plain(60)));
//! assert!(svg(&picture, &Default::default()).starts_with("<svg "));
//! assert!(page(&picture, &Default::default()).starts_with("<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a picture shows is available as values too: [`MemoryMap::alive_at_peak`] and [`byte_sums()`] list what a peak
//! consists of, [`PlanMap::why_alive`] what needs a tensor last, and [`changes()`] what one plan takes compared with
//! another.
//!
//! Everything here is deterministic to the byte, and nothing is checked: a map shows what it is given.
#![forbid(unsafe_code)]

// What is drawn.
mod human_size;
mod text;
mod layer;
mod role;
mod purpose;
mod last_use;
mod live_curve;
mod map;
mod map_of_file;
mod byte_sums;
mod peak;
mod diff;
mod legend;

// How it is drawn.
mod page;
mod svg;
mod terminal;
mod header;

pub use byte_sums::{ByteSums, byte_sums};
pub use diff::{BytesChange, ChangeKind, KindChange, MemoryChange, TensorChange, TensorCount, TensorCounts, changes};
pub use header::{HeaderStyle, header};
pub use human_size::human_size;
pub use last_use::LastUse;
pub use layer::layer_of;
pub use legend::Colouring;
pub use map::{MemoryMap, NestedTensor, Picture, PlanMap, StepUnit, Tile};
pub use page::{PageStyle, page};
pub use role::Role;
pub use svg::{SvgStyle, Theme, svg};
pub use terminal::{ColourMode, SizeFormat, TerminalStyle, terminal};
pub use text::{printable, short_name};

/// The examples of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
