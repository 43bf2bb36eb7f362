//! One file in, its plan out, whatever the file holds: what `plan` shows and writes, and `view` draws.

use std::ops::ControlFlow;

use steeve_graph::file::DROP_IN;
use steeve_graph::{GraphStrategy, PlanFile, PlanOptions, Reuse, plan_graph};
use steeve_plan::csv::Table;
use steeve_plan::{Bytes, SearchProgress, Strategy, Verdict};
use steeve_view::{Picture, PlanMap};

use crate::args::{LimitArgs, PlanningArgs, SearchArgs};
use crate::block_list::BlockList;
use crate::element_alignment;
use crate::error::Error;
use crate::graph::{self, GraphFile, LanguageNeeds, SolvedGraph};
use crate::input_file::InputFile;
use crate::input_source::InputSource;
use crate::output_file::{DrawingStyle, OutputFile, OutputFormat};
use crate::plan_figures::{ONLY_MEMORY, PlanFigures};
use crate::progress_display::{InterruptFlag, ProgressDisplay};
use crate::solve_blocks::{SolvedBlocks, solve_blocks};
use crate::verbosity::Verbosity;

/// A file with its plan.
pub(crate) enum PlannedFile {
    Blocks { list: BlockList, solved: Box<SolvedBlocks>, figures: Box<PlanFigures> },
    Graph { graph: Box<GraphFile>, solved: Box<SolvedGraph> },
}

/// Plans files as the command line says, with progress and Ctrl-C.
#[derive(Clone, Copy)]
pub(crate) struct FilePlanner<'a> {
    pub(crate) planning: &'a PlanningArgs,
    pub(crate) search: &'a SearchArgs,
    pub(crate) limits: &'a LimitArgs,
    /// What the plan is written as; nothing if it is shown only.
    pub(crate) format: Option<OutputFormat>,
    pub(crate) interrupt: &'a InterruptFlag,
    pub(crate) verbosity: Verbosity,
}

impl FilePlanner<'_> {
    /// Plans what a file holds, and says where that does not fit.
    pub(crate) fn make(&self, source: &InputSource, input: InputFile) -> Result<PlannedFile, Error> {
        let (name, file) = (source.short_name(), source.to_string());
        match input {
            InputFile::Blocks(table) => self.blocks(&name, BlockList::new(file, table, self.limits)?),
            InputFile::Graph(graph) => {
                let graph = graph.sized(&self.planning.language)?;
                let mut limits = self.limits.clone();
                if self.format == Some(OutputFormat::Header) {
                    limits.align = limits.align.or_else(|| Some(element_alignment::largest_element_align(&graph)));
                }
                self.graph(&name, graph.limited(&limits)?)
            }
            InputFile::Plan(_) => Err(Error::PlanOfGraph { file }),
        }
    }

    fn blocks(&self, name: &str, list: BlockList) -> Result<PlannedFile, Error> {
        let strategy = self.planning.for_blocks(&list.file, self.search)?;
        self.verbosity.detail(|| format!("{}: a list of {} blocks", list.file, list.problem.blocks().len()));
        self.interrupt.listen(&strategy);
        let solved = self.watched(name, &strategy, |watch| solve_blocks(&list, &strategy, watch))?;
        self.note_interrupted(&list.file, solved.verdict);
        if let Some(why) = solved.capacity_error(&list, &strategy) {
            self.verbosity.error(format!("{}: {why}", list.file));
        }
        let figures = Box::new(solved.figures(&strategy));
        Ok(PlannedFile::Blocks { list, solved: Box::new(solved), figures })
    }

    fn graph(&self, name: &str, graph: GraphFile) -> Result<PlannedFile, Error> {
        let graph = graph.planned_as(self.planning)?;
        let options = self.planning.for_graph(&graph.file, self.search, graph.unread())?;
        self.verbosity.detail(|| {
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
            self.watched(name, &strategy, |watch| graph::solve_graph_watched(&graph, &options, capacities, watch))?;
        self.note_interrupted(&graph.file, solved.figures.verdict());
        for why in graph::capacity_errors(&graph, &solved, capacities) {
            self.verbosity.error(format!("{}: {why}", graph.file));
        }
        Ok(PlannedFile::Graph { graph: Box::new(graph), solved: Box::new(solved) })
    }

    fn watched<T>(
        &self,
        name: &str,
        strategy: &Strategy,
        act: impl FnOnce(&mut dyn FnMut(&SearchProgress) -> ControlFlow<()>) -> T,
    ) -> T {
        let mut watcher = ProgressDisplay::new(name, strategy, self.interrupt, self.verbosity);
        act(&mut |progress| watcher.on_progress(progress))
    }

    fn note_interrupted(&self, file: &str, verdict: Verdict) {
        if self.interrupt.is_set() && verdict != Verdict::Optimal {
            self.verbosity.note(format!("{file}: stopped by Ctrl-C; shown is the best plan so far"));
        }
    }
}

impl PlannedFile {
    pub(crate) fn figures(&self) -> &PlanFigures {
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

    /// Returns what a language model takes of each device, with the compute memory of this plan; `None` for all others.
    pub(crate) fn language_needs(&self) -> Option<LanguageNeeds> {
        let Self::Graph { graph, solved } = self else { return None };
        let mut needs = graph.language_model()?.needs();
        for device in &mut needs.devices {
            let planned = solved.figures.memories.iter().find(|memory| memory.name == device.name);
            device.compute = planned.map_or(Bytes::ZERO, |memory| memory.peak);
        }
        Some(needs)
    }

    /// Returns what another order of the nodes would save, see [`graph::other_order`].
    pub(crate) fn other_order(&self) -> Option<graph::OtherOrder> {
        let Self::Graph { graph, solved } = self else { return None };
        graph::other_order(graph, solved)
    }

    /// Returns the plan as a map to draw, under a name.
    pub(crate) fn map(&self, name: &str) -> PlanMap {
        match self {
            Self::Blocks { list, solved, .. } => PlanMap::of_blocks(name, ONLY_MEMORY, &solved.plan, &list.ids),
            Self::Graph { graph, solved } => {
                let mut map = PlanMap::of_graph(name, &solved.plan);
                if let Some(model) = graph.model() {
                    model.describe(&mut map);
                }
                if let Some(model) = graph.onnx() {
                    model.describe(&mut map);
                }
                map
            }
        }
    }

    /// Returns the engine's own plan of this graph; `None` if this is it, or if that overwrites live bytes.
    pub(crate) fn engine_map(&self) -> Option<PlanMap> {
        match self {
            Self::Graph { graph, .. } if graph.model().is_some() => graph.model()?.tflm_map(),
            Self::Graph { graph, .. } if graph.onnx().is_some() => None,
            Self::Graph { graph, solved } if solved.figures.strategy != "ggml" => {
                let options = PlanOptions::new(GraphStrategy::Ggml).with_reuse(Reuse::Ggml);
                plan_graph(&graph.assigned, &options).ok().map(|plan| PlanMap::of_graph("ggml", &plan))
            }
            _ => None,
        }
    }

    /// Returns the name of the planner in a word or two.
    pub(crate) fn maker(&self) -> &'static str {
        match self.figures().strategy {
            "ggml" => "ggml",
            "best-fit" => "best-fit",
            "best" => "steeve (best)",
            _ => "steeve",
        }
    }

    /// Writes the plan. Where it has no such form, no file is touched.
    pub(crate) fn write(&self, out: &OutputFile, drawing: &DrawingStyle, verbosity: Verbosity) -> Result<(), Error> {
        match out.format {
            OutputFormat::Csv => out.write_text(self.csv()?),
            OutputFormat::Json => out.write_text(self.plan_file().to_json() + "\n"),
            OutputFormat::Tflite => self.write_model(out, verbosity),
            OutputFormat::Graph => match self {
                Self::Graph { graph, .. } => out.write_text(graph.assigned.to_string()),
                Self::Blocks { list, .. } => Err(Error::Usage(format!("{}: a block list has no graph", list.file))),
            },
            OutputFormat::Header if self.figures().moved.is_some() => {
                let why = "a C header has no order of the nodes: plan with --order keep";
                Err(Error::Usage(format!("{}: {why}", self.file())))
            }
            OutputFormat::Header | OutputFormat::Page | OutputFormat::Svg => {
                out.write_picture(&self.picture(), self.file(), drawing)
            }
        }
    }

    /// Writes the model with the record of its plan, and says what the runtime makes of it.
    fn write_model(&self, out: &OutputFile, verbosity: Verbosity) -> Result<(), Error> {
        let not_a_model = || Error::NotAModel { file: self.file().to_owned(), out: out.name() };
        let Self::Graph { graph, solved } = self else { return Err(not_a_model()) };
        let model = graph.model().ok_or_else(not_a_model)?;
        let head = model.head_plan(&solved.plan)?;
        out.write_bytes(&model.with_record(&head.record)?)?;
        verbosity.note(format!("{}: written: {}", out.name(), graph::describe_head(&head)));
        Ok(())
    }

    /// Formats the plan as CSV, one block per line.
    fn csv(&self) -> Result<String, Error> {
        match self {
            Self::Blocks { list, solved, .. } => {
                let table = Table::of_plan(&solved.plan, list.ids.clone());
                table.map(|table| table.to_string()).map_err(|source| Error::Table { file: list.file.clone(), source })
            }
            Self::Graph { graph, solved } => graph::graph_csv(graph, solved),
        }
    }

    /// Returns the plan as a plan file.
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

    /// Returns the picture of a graph with the engine's own plan of it, or of a block list alone.
    fn picture(&self) -> Picture {
        let title = InputSource::new(self.file().as_ref()).short_name();
        let ours = self.map(self.maker());
        match self.engine_map() {
            Some(engine) => Picture::of_two(title, engine, ours),
            None => Picture::of(title, ours),
        }
    }
}
