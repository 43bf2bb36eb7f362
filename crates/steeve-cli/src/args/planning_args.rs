//! The options that say how plans are made: strategy, reuse, unread, and `--as`.

use clap::{Args, ValueEnum};
use steeve_graph::{GraphStrategy, Order, PlanOptions, Reuse, Unread};
use steeve_plan::{Bytes, Strategy};

use super::{SearchArgs, given};
use crate::byte_size::parse_bytes;
use crate::error::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyName {
    /// Graphs: ggml's own plan, byte for byte; implies --reuse ggml.
    Ggml,
    /// Block lists: best fit in the order of first use, as ggml's allocator places blocks.
    BestFit,
    /// The best of several greedy passes.
    Fast,
    /// As fast, then a search within --budget.
    Best,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReuseName {
    /// In place exactly where ggml computes in place.
    Ggml,
    /// In place wherever the operation allows it, also through views.
    More,
    /// Never in place: every tensor has bytes of its own while it is alive.
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
    /// All to the end, as with ggml.
    Keep,
    /// All to the end but inputs, which are freed before the first node.
    FreeInputs,
    /// Only outputs to the end.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderName {
    /// In the graph's own.
    Keep,
    /// In another one, where that is found to save more than 1%.
    Best,
}

impl From<OrderName> for Order {
    fn from(name: OrderName) -> Self {
        match name {
            OrderName::Keep => Self::Keep,
            OrderName::Best => Self::Best,
        }
    }
}

/// How plans are made.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlanningArgs {
    /// How to place tensors or blocks [default: fast].
    #[arg(long, value_enum)]
    pub(crate) strategy: Option<StrategyName>,

    /// Which nodes of a graph are computed in place, over a source that no later node reads [default: more].
    #[arg(long, value_enum)]
    pub(crate) reuse: Option<ReuseName>,

    /// How long tensors that no node reads keep their memory [default: free-inputs].
    #[arg(long, value_enum)]
    pub(crate) unread: Option<UnreadName>,

    /// In which order the nodes of a graph run: the plan says so, and whoever runs it must keep to that [default: keep].
    #[arg(long, value_enum)]
    pub(crate) order: Option<OrderName>,

    /// Plan as the drop-in for ggml does, for backends that check what they fuse; --reuse is then ggml by default.
    #[arg(long = "as", value_enum, value_name = "WHAT")]
    pub(crate) planned_as: Option<PlannedAs>,

    #[command(flatten)]
    pub(crate) kernels: KernelArgs,

    #[command(flatten)]
    pub(crate) language: LanguageArgs,
}

/// How large a text a language model is planned for, and where its layers are.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "GGUF models")]
pub(crate) struct LanguageArgs {
    /// The longest text, in tokens [default: 4096, or what the model was trained with, if that is less].
    #[arg(long, value_name = "TOKENS")]
    pub(crate) context: Option<u64>,

    /// The tokens of a prompt that are computed at a time [default: 512].
    #[arg(long, value_name = "TOKENS")]
    pub(crate) batch: Option<u64>,

    /// How many of the last layers are on a GPU [default: 0].
    #[arg(long, value_name = "LAYERS")]
    pub(crate) layers_on_gpu: Option<u64>,
}

impl LanguageArgs {
    /// Returns the names of those of these options that are given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        given([
            ("--context", self.context.is_some()),
            ("--batch", self.batch.is_some()),
            ("--layers-on-gpu", self.layers_on_gpu.is_some()),
        ])
    }

    /// Refuses these options for anything but a language model. `kind` is what the file is.
    pub(crate) fn reject_for(&self, file: &str, kind: &str) -> Result<(), Error> {
        match self.given().first() {
            Some(option) => Err(Error::Usage(format!("{file}: {option} is for GGUF models: got {kind}"))),
            None => Ok(()),
        }
    }
}

/// What the kernels are like that a TFLite model runs with.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "TFLite models")]
pub(crate) struct KernelArgs {
    /// Compute in place where these kernels allow it; else only where no byte moves (RESHAPE and its kin).
    #[arg(long, value_enum, value_name = "KERNELS")]
    pub(crate) in_place: Option<KernelSetName>,

    /// Let results overlap sources as far as these kernels read ahead of what they write; implies --in-place.
    #[arg(long, value_enum, value_name = "KERNELS")]
    pub(crate) overlap: Option<KernelSetName>,

    /// Leave this many bytes more free while each operator runs, for buffers that optimised kernels ask for.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) scratch: Option<Bytes>,
}

/// Kernels of which it is known how they read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelSetName {
    /// The portable kernels of TensorFlow Lite Micro, and no others.
    TflmReference,
}

impl KernelArgs {
    /// Returns the names of those of these options that are given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        given([
            ("--in-place", self.in_place.is_some()),
            ("--overlap", self.overlap.is_some()),
            ("--scratch", self.scratch.is_some()),
        ])
    }

    /// Refuses these options for anything but a model. `kind` is what the file is.
    pub(crate) fn reject_for(&self, file: &str, kind: &str) -> Result<(), Error> {
        match self.given().first() {
            Some(option) => Err(Error::Usage(format!("{file}: {option} is for TFLite models: got {kind}"))),
            None => Ok(()),
        }
    }
}

/// The rules that a graph is planned by, other than those of `steeve plan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlannedAs {
    /// As the drop-in: outside of host memory, keep what backends need to fuse nodes.
    DropIn,
}

impl PlanningArgs {
    /// Returns the names of those of these options that are given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let (strategy, reuse, unread) = (self.strategy.is_some(), self.reuse.is_some(), self.unread.is_some());
        let own = [
            ("--strategy", strategy),
            ("--reuse", reuse),
            ("--unread", unread),
            ("--order", self.order.is_some()),
            ("--as", self.planned_as.is_some()),
        ];
        [given(own), self.kernels.given(), self.language.given()].concat()
    }

    /// Refuses options that contradict each other: a budget is for `best` alone, and `ggml` has its own reuse. Reads no file.
    pub(crate) fn check(&self, search: &SearchArgs) -> Result<(), Error> {
        if self.order == Some(OrderName::Best) && self.planned_as.is_some() {
            let why = "--as drop-in implies --order keep: the order belongs to the program; leave out one of them";
            return Err(Error::Usage(why.to_owned()));
        }
        let name = match self.strategy {
            Some(StrategyName::Ggml) => "ggml",
            Some(StrategyName::BestFit) => "best-fit",
            Some(StrategyName::Fast) => "fast",
            Some(StrategyName::Best) | None => return Ok(()),
        };
        if search.is_given() {
            let why = format!("--budget and --threads: for --strategy best, got --strategy {name}");
            return Err(Error::Usage(why));
        }
        if self.strategy != Some(StrategyName::Ggml) {
            return Ok(());
        }
        let why = if self.planned_as.is_some() {
            "--as: not used with --strategy ggml, which makes ggml's own plan; leave out one of them"
        } else if matches!(self.reuse, Some(ReuseName::More | ReuseName::None)) {
            "--strategy ggml implies --reuse ggml; leave out --reuse, or use --strategy fast"
        } else if self.order == Some(OrderName::Best) {
            "--strategy ggml implies --order keep; leave out --order, or use --strategy fast"
        } else if matches!(self.unread, Some(UnreadName::FreeInputs | UnreadName::Free)) {
            "--strategy ggml implies --unread keep; leave out --unread, or use --strategy fast"
        } else {
            return Ok(());
        };
        Err(Error::Usage(why.to_owned()))
    }

    /// Returns the strategy for a block list. Fails if an option is given that is for graphs alone.
    pub(crate) fn for_blocks(&self, file: &str, search: &SearchArgs) -> Result<Strategy, Error> {
        self.kernels.reject_for(file, "a block list")?;
        self.language.reject_for(file, "a block list")?;
        if self.reuse.is_some() {
            let why =
                format!("{file}: --reuse is for graphs: got a block list (its column follows says what is reused)");
            return Err(Error::Usage(why));
        }
        if self.planned_as.is_some() {
            let why = format!("{file}: --as is for graphs: got a block list");
            return Err(Error::Usage(why));
        }
        if self.unread.is_some() {
            let why = format!("{file}: --unread is for graphs: got a block list");
            return Err(Error::Usage(why));
        }
        if self.order.is_some() {
            return Err(Error::Usage(format!("{file}: --order is for graphs: got a block list")));
        }
        Ok(match self.strategy {
            Some(StrategyName::Ggml) => {
                let why = format!(
                    "{file}: --strategy ggml is for graphs: got a block list; use --strategy best-fit, which places blocks as ggml does"
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

    /// Refuses options that are about ggml for a model of another engine.
    pub(crate) fn reject_for_model(&self, file: &str, kind: &str) -> Result<(), Error> {
        if self.order == Some(OrderName::Best) && kind == "a TFLite model" {
            return Err(Error::Usage(format!(
                "{file}: --order best is for graphs: {kind} runs in the order of its file"
            )));
        }
        let given = match (self.strategy, self.reuse, self.planned_as) {
            (Some(StrategyName::Ggml), ..) => "--strategy ggml",
            (_, Some(ReuseName::Ggml), _) => "--reuse ggml",
            (.., Some(_)) => "--as",
            _ => return Ok(()),
        };
        Err(Error::Usage(format!("{file}: {given} is for graphs of ggml: got {kind}")))
    }

    /// Returns strategy, reuse and unread for a graph, with what becomes of unread tensors by default. Fails if the strategy is
    /// for block lists alone.
    pub(crate) fn for_graph(&self, file: &str, search: &SearchArgs, default: Unread) -> Result<PlanOptions, Error> {
        let strategy = match self.strategy {
            Some(StrategyName::BestFit) => {
                let why = format!(
                    "{file}: --strategy best-fit is for block lists: got a graph; use --strategy ggml, the same for graphs"
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
        let usual = if self.planned_as.is_some() { Reuse::Ggml } else { Reuse::Extended };
        let (reuse, unread) = (self.reuse.map_or(usual, Reuse::from), self.unread.map_or(default, Unread::from));
        let order = self.order.map_or(Order::Keep, Order::from);
        Ok(PlanOptions::new(strategy).with_reuse(reuse).with_unread(unread).with_order(order))
    }
}
