//! The native part of the Python package `steeve`: what Python asks for, in the words of the Rust crates.
//!
//! ```text
//!   lower, upper, size --numbers--> Problem --solve--> Plan     \
//!   path --read--> Blocks, Graph, PlanFile  --plan---> Plan      > PyPlan: figures, places, pictures, files
//!   tensors, nodes --GraphBuilder--> Graph  --plan---> GraphPlan/
//! ```
//!
//! Arguments are converted once, and the interpreter's lock is given back while something is planned, proven or read. Every error is
//! an exception that names the argument. A panic where the crates below read, plan, prove, draw or write is a bug of this library, and
//! an exception too (`InternalError`).
#![forbid(unsafe_code)]

mod error;
mod numbers;
mod text;
mod search;

mod blocks;
mod graph;
mod builder;
mod plan;
mod plan_file;
mod fit;
mod compare;
mod read;
mod copies;

use pyo3::prelude::*;

/// The native part of `steeve`. Import `steeve` instead.
#[pymodule]
mod _steeve {
    #[pymodule_export]
    use crate::blocks::{PyBlocks, PyViolation, check, plan};
    #[pymodule_export]
    use crate::builder::PyGraphBuilder;
    #[pymodule_export]
    use crate::compare::{Comparison, PyChange};
    #[pymodule_export]
    use crate::copies::restore;
    #[pymodule_export]
    use crate::fit::{PyFitStep, PyFitted};
    #[pymodule_export]
    use crate::graph::{PyFault, PyGraph, PyTensor};
    #[pymodule_export]
    use crate::plan::{PyAlive, PyMemoryPlan, PyPlace, PyPlan};
    #[pymodule_export]
    use crate::plan_file::PyPlanFile;
    #[pymodule_export]
    use crate::read::read;
    #[pymodule_export]
    use crate::search::Progress;

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name that Python programs expect")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
