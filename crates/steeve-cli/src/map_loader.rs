//! Any file in, its plan as a [`PlanMap`] out: the one that is in the file, right or wrong, or one made now.
//!
//! ```text
//!   graph, block list --Making--> Made --.
//!   plan, block list with offsets ------> LoadedMap --> view, show, diff
//! ```

use steeve_graph::TensorId;
use steeve_plan::Id;
use steeve_view::{PlanMap, Tile};

use crate::error::Error;
use crate::existing_plan::ExistingPlan;
use crate::exit_status::ExitStatus;
use crate::input_file::{self, InputFile, ReadOptions};
use crate::input_source::InputSource;
use crate::planned_file::{FilePlanner, PlannedFile};
use crate::verbosity::Verbosity;

/// How files are read and, where they hold no plan, planned.
#[derive(Clone, Copy)]
pub(crate) struct MapLoader<'a> {
    pub(crate) planner: FilePlanner<'a>,
    pub(crate) options: ReadOptions<'a>,
}

/// The plan of one file.
pub(crate) struct LoadedMap {
    pub(crate) file: String,
    pub(crate) map: PlanMap,
    /// What was planned now; nothing where the plan is in the file.
    pub(crate) planned: Option<PlannedFile>,
    /// What is wrong with the plan in the file, in one sentence.
    pub(crate) wrong: Option<String>,
    /// Whether nodes run in another order than the graph's own.
    pub(crate) is_reordered: bool,
    /// How a plan in the file can be planned again.
    advice: &'static str,
}

impl MapLoader<'_> {
    /// Reads a file, and plans it unless it is a plan. The map is called `name`, or else after what made the plan.
    pub(crate) fn load(&self, source: &InputSource, name: Option<&str>) -> Result<LoadedMap, Error> {
        let input = input_file::read(source, self.options)?;
        let file = source.to_string();
        // Whoever names a strategy wants a block list planned anew; the plan of a graph is all there is.
        let replans = self.planner.planning.strategy.is_some() || self.planner.search.is_given();
        let is_reordered = matches!(&input, InputFile::Plan(plan) if plan.order.is_some());
        let (existing, advice) = match &input {
            InputFile::Plan(plan) => (ExistingPlan::of_file(name.unwrap_or("plan"), plan), ""),
            InputFile::Blocks(table)
                if !replans && !table.places().is_empty() && table.places().iter().all(Option::is_some) =>
            {
                let existing = ExistingPlan::of_blocks(&file, name.unwrap_or("plan"), table)?;
                (existing, ", or plan it again with --strategy")
            }
            InputFile::Graph(graph) if !replans && self.planner.planning.kernels.given().is_empty() => {
                let recorded = graph.model().map(|model| model.recorded_plan(name.unwrap_or("record"))).transpose()?;
                match recorded.flatten() {
                    Some(existing) => (existing, ", or plan it again with --strategy"),
                    None => return self.plan(source, input, name),
                }
            }
            _ => return self.plan(source, input, name),
        };
        Ok(LoadedMap { file, map: existing.map, planned: None, wrong: existing.wrong, is_reordered, advice })
    }

    /// Plans what a file holds.
    fn plan(&self, source: &InputSource, input: InputFile, name: Option<&str>) -> Result<LoadedMap, Error> {
        let file = source.to_string();
        let planned = self.planner.make(source, input)?;
        let map = planned.map(name.unwrap_or(planned.maker()));
        self.planner.limits.capacities()?.check_names(planned.figures().memory_names())?;
        let is_reordered = planned.figures().moved.is_some();
        Ok(LoadedMap { file, map, planned: Some(planned), wrong: None, is_reordered, advice: "" })
    }
}

impl LoadedMap {
    /// Returns the id of a tile's tensor in the file: that of the record, or else its number in the graph.
    pub(crate) fn tensor_id(&self, tile: &Tile) -> Option<u64> {
        let id = tile.id?;
        match &self.planned {
            Some(PlannedFile::Graph { graph, .. }) => graph.id(TensorId::from_index(id as usize)?),
            _ => Some(u64::from(id)),
        }
    }

    /// Refuses options for planning if nothing was planned.
    pub(crate) fn check_options(&self, planner: &FilePlanner<'_>) -> Result<(), Error> {
        let given = [planner.planning.given(), planner.search.given(), planner.limits.given()].concat();
        if self.planned.is_some() || given.is_empty() {
            return Ok(());
        }
        let (file, options, advice) = (&self.file, given.join(" and "), self.advice);
        Err(Error::Usage(format!("{file}: is a plan already: leave out {options}{advice}")))
    }

    /// Reports what is wrong with the plan, if anything is; `done` is what is done with it all the same, such as `drawn`. The
    /// answer is no where it does not hold or does not fit.
    pub(crate) fn report_faults(&self, done: &str, verbosity: Verbosity) -> ExitStatus {
        if let Some(wrong) = &self.wrong {
            verbosity.error(format!("{}: the plan does not hold: {wrong}; {done} all the same", self.file));
        }
        let fits = self.planned.as_ref().is_none_or(|planned| planned.figures().fits());
        if self.wrong.is_none() && fits { ExitStatus::Success } else { ExitStatus::Negative }
    }
}
