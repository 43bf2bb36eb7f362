//! Plans that are in a file already: drawn as they are, right or wrong.

use steeve_graph::PlanFile;
use steeve_plan::csv::Table;
use steeve_plan::{BlockId, IdVec};
use steeve_view::PlanMap;

use crate::error::Error;
use crate::fault_text;

/// What a file claims, and what is wrong with it.
pub(crate) struct ExistingPlan {
    pub(crate) map: PlanMap,
    /// One sentence, if the plan does not hold.
    pub(crate) wrong: Option<String>,
}

impl ExistingPlan {
    /// Takes the plan of a block list in which every block has an offset.
    pub(crate) fn of_blocks(file: &str, name: &str, table: &Table) -> Result<Self, Error> {
        let plan = PlanFile::of_table(table).map_err(|source| Error::Table { file: file.to_owned(), source })?;
        Ok(Self::of_file(name, &plan))
    }

    /// Takes the plan of a plan file.
    pub(crate) fn of_file(name: &str, plan: &PlanFile) -> Self {
        let map = PlanMap::of_file(name, plan);
        let faults: Vec<String> = plan
            .memories
            .iter()
            .flat_map(|memory| {
                let names: IdVec<BlockId, String> = memory.blocks.iter().map(|block| block.name.clone()).collect();
                memory.faults().iter().map(|fault| fault_text::file_fault(fault, &names)).collect::<Vec<_>>()
            })
            .collect();
        Self { map, wrong: Self::sentence(faults) }
    }

    /// Puts the first faults into one sentence; `None` if there are none.
    pub(crate) fn sentence(faults: impl IntoIterator<Item = String>) -> Option<String> {
        const SHOWN: usize = 5;
        let mut faults = faults.into_iter();
        let shown: Vec<String> = faults.by_ref().take(SHOWN).collect();
        let more = match faults.count() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        if shown.is_empty() { None } else { Some(shown.join("; ") + &more) }
    }
}
