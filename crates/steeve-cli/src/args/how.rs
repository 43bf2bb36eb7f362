//! How plans are made: strategy, reuse, unread, and whose rules.

use clap::{Args, ValueEnum};
use steeve_graph::{GraphStrategy, PlanOptions, Reuse, Unread};
use steeve_plan::Strategy;

use super::{SearchArgs, given};
use crate::error::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyName {
    /// Graphs: as ggml's allocator does it, byte for byte; implies --reuse ggml.
    Ggml,
    /// Block lists: blocks in the order of their births, as ggml's allocator places them.
    BestFit,
    /// Several quick passes and the best of them.
    Fast,
    /// The same, then a search.
    Best,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReuseName {
    /// Those that ggml chooses, exactly.
    Ggml,
    /// All that the operations allow, also through views.
    More,
    /// None: every tensor has bytes of its own while it lives.
    None,
}

impl From<ReuseName> for Reuse {
    fn from(name: ReuseName) -> Self {
        match name {
            ReuseName::Ggml => Self::Ggml,
            ReuseName::More => Self::Extended,
            ReuseName::None => Self::None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnreadName {
    /// To the end, as with ggml.
    Keep,
    /// To the end, but inputs that no node touches live before the run alone.
    FreeInputs,
    /// Only outputs live to the end.
    Free,
}

impl From<UnreadName> for Unread {
    fn from(name: UnreadName) -> Self {
        match name {
            UnreadName::Keep => Self::Keep,
            UnreadName::FreeInputs => Self::FreeInputs,
            UnreadName::Free => Self::Free,
        }
    }
}

/// How plans are made.
#[derive(Clone, Debug, Args)]
pub(crate) struct HowArgs {
    /// How to place tensors or blocks [default: fast].
    #[arg(long, value_enum)]
    pub(crate) strategy: Option<StrategyName>,

    /// Which nodes of a graph take over the bytes of a source that dies at them [default: more].
    #[arg(long, value_enum)]
    pub(crate) reuse: Option<ReuseName>,

    /// How long tensors of a graph live that no node reads [default: free-inputs].
    #[arg(long, value_enum)]
    pub(crate) unread: Option<UnreadName>,

    /// Plan as the drop-in for ggml does, on devices that check what they fuse [default of --reuse: ggml].
    #[arg(long = "as", value_enum, value_name = "WHAT")]
    pub(crate) planned_as: Option<PlannedAs>,
}

/// Whose rules a graph is planned by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlannedAs {
    /// The drop-in's: host memory node by node, and in others what backends need to fuse nodes.
    DropIn,
}

impl HowArgs {
    /// Which of these options are given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let (strategy, reuse, unread) = (self.strategy.is_some(), self.reuse.is_some(), self.unread.is_some());
        given([("--strategy", strategy), ("--reuse", reuse), ("--unread", unread), ("--as", self.planned_as.is_some())])
    }

    /// What can be said before any file is read: a budget is for `best` alone, and `ggml` has its own reuse.
    pub(crate) fn check(&self, search: &SearchArgs) -> Result<(), Error> {
        let name = match self.strategy {
            Some(StrategyName::Ggml) => "ggml",
            Some(StrategyName::BestFit) => "best-fit",
            Some(StrategyName::Fast) => "fast",
            Some(StrategyName::Best) | None => return Ok(()),
        };
        if search.is_given() {
            let why = format!("--budget and --threads are for --strategy best, not {name}; leave out one or the other");
            return Err(Error::Usage(why));
        }
        if self.strategy != Some(StrategyName::Ggml) {
            return Ok(());
        }
        let why = if self.planned_as.is_some() {
            "--strategy ggml makes ggml's own plan, whatever it is planned as; leave out --as, or use --strategy fast"
        } else if matches!(self.reuse, Some(ReuseName::More | ReuseName::None)) {
            "--strategy ggml makes ggml's own plan, which implies --reuse ggml; leave out --reuse, or use --strategy fast"
        } else if matches!(self.unread, Some(UnreadName::FreeInputs | UnreadName::Free)) {
            "--strategy ggml makes ggml's own plan, which implies --unread keep; leave out --unread, or use --strategy fast"
        } else {
            return Ok(());
        };
        Err(Error::Usage(why.to_owned()))
    }

    /// The strategy for a block list.
    pub(crate) fn for_blocks(&self, file: &str, search: &SearchArgs) -> Result<Strategy, Error> {
        if self.reuse.is_some() {
            let why = format!(
                "{file}: is a block list, in which nothing can be reused but what says so itself (column follows); leave out --reuse"
            );
            return Err(Error::Usage(why));
        }
        if self.planned_as.is_some() {
            let why = format!("{file}: is a block list, and the drop-in plans graphs; leave out --as");
            return Err(Error::Usage(why));
        }
        if self.unread.is_some() {
            let why =
                format!("{file}: is a block list, which says itself how long each block lives; leave out --unread");
            return Err(Error::Usage(why));
        }
        Ok(match self.strategy {
            Some(StrategyName::Ggml) => {
                let why = format!(
                    "{file}: is a block list, and --strategy ggml needs a graph; use --strategy best-fit, which places blocks as ggml does"
                );
                return Err(Error::Usage(why));
            }
            Some(StrategyName::BestFit) => Strategy::BestFit,
            Some(StrategyName::Fast) => Strategy::Fast,
            Some(StrategyName::Best) => Strategy::Best(search.best()),
            None if search.is_given() => Strategy::Best(search.best()),
            None => Strategy::default(),
        })
    }

    /// Strategy, reuse and unread for a graph.
    pub(crate) fn for_graph(&self, file: &str, search: &SearchArgs) -> Result<PlanOptions, Error> {
        let strategy = match self.strategy {
            Some(StrategyName::BestFit) => {
                let why = format!(
                    "{file}: is a graph, and --strategy best-fit is for block lists; use --strategy ggml, which is the same for graphs"
                );
                return Err(Error::Usage(why));
            }
            Some(StrategyName::Ggml) => {
                return Ok(PlanOptions::new(GraphStrategy::Ggml).with_reuse(Reuse::Ggml).with_unread(Unread::Keep));
            }
            Some(StrategyName::Fast) => GraphStrategy::Fast,
            Some(StrategyName::Best) => GraphStrategy::Best(search.best()),
            None if search.is_given() => GraphStrategy::Best(search.best()),
            None => GraphStrategy::default(),
        };
        let default = if self.planned_as.is_some() { Reuse::Ggml } else { Reuse::Extended };
        let (reuse, unread) = (self.reuse.map_or(default, Reuse::from), self.unread.map(Unread::from));
        Ok(PlanOptions::new(strategy).with_reuse(reuse).with_unread(unread.unwrap_or_default()))
    }
}
