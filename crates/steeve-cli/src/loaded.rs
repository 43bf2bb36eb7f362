//! Any file in, its plan as a [`Map`] out: the one that is in the file, right or wrong, or one made now.
//!
//! ```text
//!   graph, block list --Making--> Made --.
//!   plan, block list with offsets ------> LoadedMap --> view, show, diff
//! ```

use steeve_graph::TensorId;
use steeve_plan::{Id, InputLimit};
use steeve_view::{PlanMap, Tile};

use crate::answer::{Answer, Voice};
use crate::error::Error;
use crate::existing_plan::ExistingPlan;
use crate::input::{self, Input};
use crate::made::{Made, Making};
use crate::source::Source;

/// How files are read and, where they hold no plan, planned.
#[derive(Clone, Copy)]
pub(crate) struct MapLoader<'a> {
    pub(crate) making: Making<'a>,
    pub(crate) limit: InputLimit,
}

/// The plan of one file.
pub(crate) struct LoadedMap {
    pub(crate) file: String,
    pub(crate) map: PlanMap,
    /// What was planned now; nothing where the plan is in the file.
    pub(crate) made: Option<Made>,
    /// What is wrong with the plan in the file, in one sentence.
    pub(crate) wrong: Option<String>,
    /// How a plan in the file can be planned again.
    advice: &'static str,
}

impl MapLoader<'_> {
    /// Reads a file, and plans it unless it is a plan. The map is called `name`, or else after what made the plan.
    pub(crate) fn load(&self, source: &Source, name: Option<&str>) -> Result<LoadedMap, Error> {
        let input = input::read(source, self.limit)?;
        let file = source.to_string();
        // Whoever names a strategy wants a block list planned anew; the plan of a graph is all there is.
        let planned = self.making.how.strategy.is_some() || self.making.search.is_given();
        let (existing, advice) = match &input {
            Input::Plan(plan) => (ExistingPlan::of_file(name.unwrap_or("plan"), plan), ""),
            Input::Blocks(table)
                if !planned && !table.places().is_empty() && table.places().iter().all(Option::is_some) =>
            {
                let existing = ExistingPlan::of_blocks(&file, name.unwrap_or("plan"), table)?;
                (existing, ", or plan it anew with --strategy")
            }
            _ => {
                let made = self.making.make(source, input)?;
                let map = made.map(name.unwrap_or(made.maker()));
                self.making.limits.capacities()?.check_names(made.figures().memory_names())?;
                return Ok(LoadedMap { file, map, made: Some(made), wrong: None, advice: "" });
            }
        };
        Ok(LoadedMap { file, map: existing.map, made: None, wrong: existing.wrong, advice })
    }
}

impl LoadedMap {
    /// The id of a tile's tensor in the file: that of the record, or else its number in the graph.
    pub(crate) fn tensor_id(&self, tile: &Tile) -> Option<u64> {
        let id = tile.id?;
        match &self.made {
            Some(Made::Graph { graph, .. }) => graph.id(TensorId::from_index(id as usize)?),
            _ => Some(u64::from(id)),
        }
    }

    /// Refuses options for planning if nothing was planned.
    pub(crate) fn check_options(&self, making: &Making<'_>) -> Result<(), Error> {
        let given = [making.how.given(), making.search.given(), making.limits.given()].concat();
        if self.made.is_some() || given.is_empty() {
            return Ok(());
        }
        let (file, options, advice) = (&self.file, given.join(" and "), self.advice);
        Err(Error::Usage(format!("{file}: is a plan already, whatever made it; leave out {options}{advice}")))
    }

    /// Says what is wrong with the plan, if anything is; `done` is what becomes of it all the same, such as `drawn`. The
    /// answer is no where it does not hold or does not fit.
    pub(crate) fn say_wrong(&self, done: &str, voice: Voice) -> Answer {
        if let Some(wrong) = &self.wrong {
            voice.error(format!("{}: the plan does not hold: {wrong}; it is {done} as it stands", self.file));
        }
        let fits = self.made.as_ref().is_none_or(|made| made.figures().fits());
        if self.wrong.is_none() && fits { Answer::Yes } else { Answer::No }
    }
}
