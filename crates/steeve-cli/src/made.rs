//! One file in, its plan out, whatever the file holds: what `plan` shows and writes, and `view` draws.

use std::ops::ControlFlow;

use steeve_graph::file::DROP_IN;
use steeve_graph::{GraphStrategy, PlanFile, PlanOptions, Reuse, plan_graph};
use steeve_plan::csv::Table;
use steeve_plan::{SearchProgress, Strategy, Verdict};
use steeve_view::{Picture, PlanMap};

use crate::answer::Voice;
use crate::args::{HowArgs, LimitArgs, SearchArgs};
use crate::block_list::BlockList;
use crate::element;
use crate::error::Error;
use crate::figures::{Figures, ONLY_MEMORY};
use crate::graph::{self, GraphFile, SolvedGraph};
use crate::input::Input;
use crate::out::{Drawing, Form, OutFile};
use crate::progress::{Interrupt, Watcher};
use crate::solve::{Solved, solve};
use crate::source::Source;

/// A file with its plan.
pub(crate) enum Made {
    Blocks { list: BlockList, solved: Box<Solved>, figures: Figures },
    Graph { graph: Box<GraphFile>, solved: Box<SolvedGraph> },
}

/// How plans are made, and who looks on.
#[derive(Clone, Copy)]
pub(crate) struct Making<'a> {
    pub(crate) how: &'a HowArgs,
    pub(crate) search: &'a SearchArgs,
    pub(crate) limits: &'a LimitArgs,
    /// What the plan is written as; nothing if it is shown only.
    pub(crate) form: Option<Form>,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) voice: Voice,
}

impl Making<'_> {
    /// Plans what a file holds, and says where that does not fit.
    pub(crate) fn make(&self, source: &Source, input: Input) -> Result<Made, Error> {
        let (name, file) = (source.short_name(), source.to_string());
        match input {
            Input::Blocks(table) => self.blocks(&name, BlockList::new(file, table, self.limits)?),
            Input::Graph(graph) => {
                let mut limits = self.limits.clone();
                if self.form == Some(Form::Header) {
                    limits.align = limits.align.or_else(|| Some(element::largest(&graph)));
                }
                self.graph(&name, graph.limited(&limits)?)
            }
            Input::Plan(_) => Err(Error::PlanOfGraph { file }),
        }
    }

    fn blocks(&self, name: &str, list: BlockList) -> Result<Made, Error> {
        let strategy = self.how.for_blocks(&list.file, self.search)?;
        self.voice.detail(|| format!("{}: a list of {} blocks", list.file, list.problem.blocks().len()));
        self.interrupt.listen(&strategy);
        let solved = self.watched(name, &strategy, |watch| solve(&list, &strategy, watch))?;
        self.say_stopped(&list.file, solved.verdict);
        if let Some(why) = solved.refusal(&list, &strategy) {
            self.voice.error(format!("{}: {why}", list.file));
        }
        let figures = solved.figures(&strategy);
        Ok(Made::Blocks { list, solved: Box::new(solved), figures })
    }

    fn graph(&self, name: &str, graph: GraphFile) -> Result<Made, Error> {
        let graph = graph.planned_as(self.how)?;
        let options = self.how.for_graph(&graph.file, self.search)?;
        self.voice.detail(|| {
            let it = graph.assigned.graph();
            let memories = graph.owners().map(|memory| graph.memory_name(memory)).collect::<Vec<_>>().join(", ");
            let (nodes, tensors) = (it.nodes().len(), it.tensors().len());
            format!("{}: a graph of {nodes} nodes and {tensors} tensors in {memories}", graph.file)
        });
        let strategy = match options.strategy {
            GraphStrategy::Best(best) => Strategy::Best(best),
            _ => Strategy::Fast,
        };
        self.interrupt.listen(&strategy);
        let capacities = self.limits.capacities()?;
        let solved =
            self.watched(name, &strategy, |watch| graph::solve_watched(&graph, &options, capacities, watch))?;
        self.say_stopped(&graph.file, solved.figures.verdict());
        for why in graph::refusals(&graph, &solved, capacities) {
            self.voice.error(format!("{}: {why}", graph.file));
        }
        Ok(Made::Graph { graph: Box::new(graph), solved: Box::new(solved) })
    }

    fn watched<T>(
        &self,
        name: &str,
        strategy: &Strategy,
        act: impl FnOnce(&mut dyn FnMut(&SearchProgress) -> ControlFlow<()>) -> T,
    ) -> T {
        let mut watcher = Watcher::new(name, strategy, self.interrupt, self.voice);
        act(&mut |progress| watcher.look(progress))
    }

    fn say_stopped(&self, file: &str, verdict: Verdict) {
        if self.interrupt.is_pressed() && verdict != Verdict::Optimal {
            self.voice.note(format!("{file}: stopped by Ctrl-C; this is the best plan so far"));
        }
    }
}

impl Made {
    pub(crate) fn figures(&self) -> &Figures {
        match self {
            Self::Blocks { figures, .. } => figures,
            Self::Graph { solved, .. } => &solved.figures,
        }
    }

    pub(crate) fn file(&self) -> &str {
        match self {
            Self::Blocks { list, .. } => &list.file,
            Self::Graph { graph, .. } => &graph.file,
        }
    }

    /// The plan to be drawn, under a name.
    pub(crate) fn map(&self, name: &str) -> PlanMap {
        match self {
            Self::Blocks { list, solved, .. } => PlanMap::of_blocks(name, ONLY_MEMORY, &solved.plan, &list.ids),
            Self::Graph { solved, .. } => PlanMap::of_graph(name, &solved.plan),
        }
    }

    /// ggml's own plan of the same graph, unless this is it, or it overwrites live bytes.
    pub(crate) fn ggml(&self) -> Option<PlanMap> {
        match self {
            Self::Graph { graph, solved } if solved.figures.strategy != "ggml" => {
                let options = PlanOptions::new(GraphStrategy::Ggml).with_reuse(Reuse::Ggml);
                plan_graph(&graph.assigned, &options).ok().map(|plan| PlanMap::of_graph("ggml", &plan))
            }
            _ => None,
        }
    }

    /// Who made the plan, in a word or two.
    pub(crate) fn maker(&self) -> &'static str {
        match self.figures().strategy {
            "ggml" => "ggml",
            "best-fit" => "best-fit",
            "best" => "steeve (best)",
            _ => "steeve",
        }
    }

    /// Writes the plan. Where it has no such form, no file is touched.
    pub(crate) fn write(&self, out: &OutFile, drawing: &Drawing) -> Result<(), Error> {
        match out.form {
            Form::Csv => out.write_text(self.csv()?),
            Form::Json => out.write_text(self.plan_file().to_json() + "\n"),
            Form::Header | Form::Page | Form::Svg => out.write_picture(&self.picture(), self.file(), drawing),
        }
    }

    /// One block per line.
    fn csv(&self) -> Result<String, Error> {
        match self {
            Self::Blocks { list, solved, .. } => {
                let table = Table::of_plan(&solved.plan, list.ids.clone());
                table.map(|table| table.to_string()).map_err(|source| Error::Table { file: list.file.clone(), source })
            }
            Self::Graph { graph, solved } => graph::csv(graph, solved),
        }
    }

    /// The plan as a file.
    pub(crate) fn plan_file(&self) -> PlanFile {
        let mut file = match self {
            Self::Blocks { list, solved, figures } => {
                PlanFile::of_blocks(figures.strategy, &solved.plan, &list.ids, solved.at_least)
            }
            Self::Graph { solved, .. } => solved.plan.to_file(),
        };
        file.source = Some(self.file().to_owned());
        self.map("").describe(&mut file);
        if let Self::Graph { graph, .. } = self
            && graph.as_drop_in
        {
            file.planned_as = Some(DROP_IN.to_owned());
        }
        file
    }

    /// A graph beside ggml's plan of it, a block list alone.
    fn picture(&self) -> Picture {
        let title = Source::new(self.file().as_ref()).short_name();
        let ours = self.map(self.maker());
        match self.ggml() {
            Some(ggml) => Picture::of_two(title, ggml, ours),
            None => Picture::of(title, ours),
        }
    }
}
