//! `steeve show`: what is alive where a memory is fullest, largest first: why is it this large?

use std::cmp::Reverse;
use std::io::Write;

use comfy_table::Cell;
use serde::Serialize;
use steeve_graph::MemoryPlan;
use steeve_plan::{BlockId, Bytes, Plan, Step};
use steeve_view::printable;

use crate::answer::Answer;
use crate::args::{SearchArgs, ShowPeakArgs};
use crate::block_list::BlockList;
use crate::error::Error;
use crate::figures::{ONLY_MEMORY, memory_called, sum};
use crate::graph::{self, GraphFile};
use crate::input::{self, Input};
use crate::json::{VERSION, print_line};
use crate::size::SizeStyle;
use crate::solve::solve;
use crate::source::Source;
use crate::table;

/// Plans the file as `steeve plan` would, and shows the fullest moment of each memory.
pub(crate) fn run(args: &ShowPeakArgs, stdout: &mut dyn Write) -> Result<Answer, Error> {
    args.how.check(&SearchArgs::default())?;
    let source = Source::new(&args.file);
    let file = source.to_string();
    let peaks = match input::read(&source, args.input.limit())? {
        Input::Blocks(table) => block_peaks(&BlockList::new(file.clone(), table, &args.limits)?, args)?,
        Input::Graph(graph) => graph_peaks(&graph.limited(&args.limits)?.planned_as(&args.how)?, args)?,
        Input::Tensors(_) => return Err(Error::PlanOfGraph { file }),
    };
    if args.show.json {
        print_line(stdout, &Shown { version: VERSION, file: &file, memories: &peaks })?;
        return Ok(Answer::Yes);
    }
    for (index, peak) in peaks.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        write!(stdout, "{gap}{}", text(&file, peak, args.show.sizes())).map_err(Error::Output)?;
    }
    Ok(Answer::Yes)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    version: u32,
    file: &'a str,
    memories: &'a [Peak],
}

/// The fullest moment of one memory.
#[derive(Serialize)]
struct Peak {
    name: String,
    /// What the plan needs.
    peak: Bytes,
    /// What is alive at the fullest moment, each tensor rounded up to its alignment.
    live: Bytes,
    #[serde(flatten)]
    moment: Moment,
    /// How many are alive.
    count: usize,
    /// The largest of them.
    alive: Vec<Alive>,
    /// Those that are not listed.
    more: More,
}

/// When a memory is fullest: nodes of a graph, steps of a block list. Nothing where nothing is ever alive.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Moment {
    Node(Option<i64>),
    Step(Option<u64>),
}

/// What did not make it into the list.
#[derive(Serialize)]
struct More {
    count: usize,
    bytes: Bytes,
}

/// Something that is alive then.
#[derive(Serialize)]
#[serde(untagged)]
enum Alive {
    Tensor { id: Option<u64>, name: String, op: String, r#type: String, bytes: Bytes, first: i64, last: i64 },
    Block { id: String, bytes: Bytes, lower: u64, upper: u64 },
}

impl Alive {
    fn bytes(&self) -> Bytes {
        match self {
            Self::Tensor { bytes, .. } | Self::Block { bytes, .. } => *bytes,
        }
    }
}

fn block_peaks(list: &BlockList, args: &ShowPeakArgs) -> Result<Vec<Peak>, Error> {
    let strategy = args.how.for_blocks(&list.file, &SearchArgs::default())?;
    let solved = solve(list, &strategy, &mut |_| std::ops::ControlFlow::Continue(()))?;
    let alive = |id: BlockId| {
        let block = &solved.plan.problem().blocks()[id];
        let (lower, upper) = (block.life.start().0, block.life.end().0);
        Alive::Block { id: list.ids[id].clone(), bytes: block.size, lower, upper }
    };
    let moment = |step: Option<Step>| Moment::Step(step.map(|step| step.0));
    Ok(vec![peak(ONLY_MEMORY, &solved.plan, args.top, moment, alive)])
}

fn graph_peaks(graph: &GraphFile, args: &ShowPeakArgs) -> Result<Vec<Peak>, Error> {
    let options = args.how.for_graph(&graph.file, &SearchArgs::default())?;
    let solved = graph::solve(graph, &options, None)?;
    let of_memory = |memory: &MemoryPlan| {
        let alive = |id: BlockId| {
            let tensor = memory.tensors[id];
            let block = &memory.plan.problem().blocks()[id];
            let (first, last) = graph::nodes_of(block.life);
            let it = graph.assigned.graph();
            Alive::Tensor {
                id: graph.id(tensor),
                name: match solved.plan.is_own_block(memory, id) {
                    true => graph.label(tensor),
                    false => format!("{} (kept for fusion)", graph.label(tensor)),
                },
                op: graph.operation(tensor),
                r#type: it.tensor(tensor).layout.to_string(),
                bytes: block.size,
                first,
                last,
            }
        };
        let moment = |step: Option<Step>| Moment::Node(step.map(graph::node_of));
        peak(graph.memory_name(memory.memory), &memory.plan, args.top, moment, alive)
    };
    Ok(solved.plan.memories().iter().map(of_memory).collect())
}

/// The largest `top` of what is alive at the first step at which the most bytes are.
fn peak(
    name: &str,
    plan: &Plan,
    top: usize,
    moment: impl Fn(Option<Step>) -> Moment,
    alive: impl Fn(BlockId) -> Alive,
) -> Peak {
    let bound = plan.bound();
    let blocks = plan.problem().blocks();
    let mut ids = bound.step.map(|step| plan.problem().alive_at(step)).unwrap_or_default();
    ids.sort_by_key(|id| (Reverse(blocks[*id].size), *id));
    let rest = ids.get(top..).unwrap_or_default();
    Peak {
        name: name.to_owned(),
        peak: plan.peak(),
        live: bound.live,
        moment: moment(bound.step),
        count: ids.len(),
        alive: ids.iter().take(top).map(|id| alive(*id)).collect(),
        more: More { count: rest.len(), bytes: sum(rest.iter().map(|id| blocks[*id].size)) },
    }
}

/// A sentence, a table, and what the table leaves out.
fn text(file: &str, peak: &Peak, sizes: SizeStyle) -> String {
    let size = |bytes| sizes.show(bytes);
    let when = match peak.moment {
        Moment::Node(Some(-1)) => "before the run".to_owned(),
        Moment::Node(Some(node)) => format!("at node {node}"),
        Moment::Step(Some(step)) => format!("at step {step}"),
        Moment::Node(None) | Moment::Step(None) => {
            return format!("{file}: nothing is ever alive in {}\n", memory_called(&peak.name));
        }
    };
    let lost = match peak.peak.0.saturating_sub(peak.live.0) {
        0 => String::new(),
        lost => format!(", {} more are lost to gaps between them or between buffers", size(Bytes(lost))),
    };
    let head = format!(
        "{}: {} needs {}: {} are alive {when}{lost}",
        printable(file),
        printable(&memory_called(&peak.name)),
        size(peak.peak),
        size(peak.live)
    );
    let more = match peak.more.count {
        0 => String::new(),
        count => format!("and {count} more with {} together\n", size(peak.more.bytes)),
    };
    let rows = if peak.alive.is_empty() { String::new() } else { format!("{}\n", rows(&peak.alive, sizes).trim_fmt()) };
    format!("{head}\n{rows}{more}")
}

fn rows(alive: &[Alive], sizes: SizeStyle) -> comfy_table::Table {
    let header: &[&str] = match alive.first() {
        Some(Alive::Tensor { .. }) => &["tensor", "bytes", "operation", "type", "nodes"],
        _ => &["block", "bytes", "lifetime"],
    };
    let mut shown = table::table(header.iter().map(|it| (*it).to_owned()));
    for it in alive {
        let bytes = Cell::new(sizes.show(it.bytes()));
        match it {
            Alive::Tensor { name, op, r#type, first, last, .. } => {
                let nodes = format!("{first} to {last}");
                shown.add_row([table::short_text(name), bytes, table::text(op), Cell::new(r#type), Cell::new(nodes)]);
            }
            Alive::Block { id, lower, upper, .. } => {
                shown.add_row([table::short_text(id), bytes, Cell::new(format!("[{lower}, {upper})"))]);
            }
        };
    }
    shown
}
