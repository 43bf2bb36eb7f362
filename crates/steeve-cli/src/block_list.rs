//! A block list under the limits of the command line: the problem to solve.

use steeve_plan::csv::Table;
use steeve_plan::{Block, BlockId, IdVec, Problem};

use crate::args::LimitArgs;
use crate::error::Error;
use crate::fault_text;
use crate::plan_figures::ONLY_MEMORY;

/// What is to be placed for one file, and what the file calls the blocks.
#[derive(Debug)]
pub(crate) struct BlockList {
    /// The file as the user named it.
    pub(crate) file: String,
    pub(crate) problem: Problem,
    pub(crate) ids: IdVec<BlockId, String>,
}

impl BlockList {
    pub(crate) fn new(file: String, table: Table, limits: &LimitArgs) -> Result<Self, Error> {
        let problem = problem(&file, &table, limits)?;
        Ok(Self { file, problem, ids: table.into_ids() })
    }
}

/// Returns the blocks of a table as a problem, under the limits of the command line.
pub(crate) fn problem(file: &str, table: &Table, limits: &LimitArgs) -> Result<Problem, Error> {
    let made = if limits.pinned { table.pinned_problem() } else { table.problem() };
    let made = made.and_then(|problem| match limits.align {
        None => Ok(problem),
        Some(align) => {
            let aligned = |block: &Block| Block { align: block.align.max(align), ..*block };
            Problem::new(problem.blocks().iter().map(aligned).collect::<IdVec<_, _>>())
        }
    });
    let mut problem = made.map_err(|error| {
        let why = fault_text::problem_error(&error, table.ids());
        Error::Block { file: file.to_owned(), why }
    })?;
    if let Some(capacity) = limits.capacities()?.of(ONLY_MEMORY) {
        problem = problem.with_capacity(capacity);
    }
    if let Some(limit) = limits.max_buffer {
        problem = problem.with_max_buffer(limit);
    }
    Ok(problem)
}
