//! `steeve show`: what is alive where a memory is fullest, largest first: why is it this large?

use std::io::Write;

use comfy_table::{Cell, CellAlignment};
use serde::Serialize;
use steeve_plan::Bytes;
use steeve_view::{ByteSums, MemoryMap, PlanMap, StepUnit, Tile, byte_sums, printable};

use crate::args::{SearchArgs, ShowArgs};
use crate::byte_size::SizeStyle;
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::graph::OtherOrder;
use crate::input_file::ReadOptions;
use crate::input_source::InputSource;
use crate::json_lines::{JSON_VERSION, print_line};
use crate::map_loader::{LoadedMap, MapLoader};
use crate::peak_step::{LiveAtPeak, PeakStep, step_phrase};
use crate::plan_figures::{memory_phrase, sum};
use crate::planned_file::{FilePlanner, PlannedFile};
use crate::progress_display::InterruptFlag;
use crate::text_table::{self, OmittedRest, OmittedTotal, SizeRatio};
use crate::verbosity::Verbosity;

/// Plans the file as `steeve plan` would, unless it is a plan, and shows the fullest step of each memory.
pub(crate) fn run(args: &ShowArgs, verbosity: Verbosity, stdout: &mut dyn Write) -> Result<ExitStatus, Error> {
    let search = SearchArgs::default();
    args.planning.check(&search)?;
    let interrupt = InterruptFlag::default();
    let planner = FilePlanner {
        planning: &args.planning,
        search: &search,
        limits: &args.limits,
        format: None,
        interrupt: &interrupt,
        verbosity,
    };
    let dims = args.dims.single()?;
    let options = ReadOptions { limit: args.input.limit(), dims: &dims };
    let loaded = MapLoader { planner, options }.load(&InputSource::new(&args.file), None)?;
    dims.check_names()?;
    loaded.check_options(&planner)?;
    let status = loaded.report_faults("shown", verbosity);
    let peaks: Vec<PeakReport<'_>> =
        loaded.map.memories.iter().map(|memory| PeakReport::new(&loaded.map, memory)).collect();
    let other = loaded.planned.as_ref().and_then(PlannedFile::other_order);
    if args.output.json {
        let memories = peaks.iter().map(|peak| peak.entry(&loaded, args.top)).collect();
        print_line(
            stdout,
            &ShowOutput {
                version: JSON_VERSION,
                file: &loaded.file,
                other_order: other.map(OtherOrderEntry::from),
                memories,
            },
        )?;
        return Ok(status);
    }
    for (index, peak) in peaks.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        write!(stdout, "{gap}{}", peak.text(&loaded.file, args.top, args.output.sizes())).map_err(Error::Output)?;
    }
    if let Some(OtherOrder { own, best, moved }) = other {
        let size = |bytes| args.output.sizes().show(bytes);
        let ratio = SizeRatio::new(best, own);
        let line = format!(
            "\nanother order of the nodes needs {}, {ratio} of {}: {moved} run elsewhere (steeve plan --order best)\n",
            size(best),
            size(own)
        );
        stdout.write_all(line.as_bytes()).map_err(Error::Output)?;
    }
    Ok(status)
}

/// What `--json` prints.
#[derive(Serialize)]
struct ShowOutput<'a> {
    version: u32,
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_order: Option<OtherOrderEntry>,
    memories: Vec<PeakEntry<'a>>,
}

/// What another order of the nodes would save, for programs.
#[derive(Serialize)]
struct OtherOrderEntry {
    /// What all memories need together in that order.
    peak: Bytes,
    /// How many nodes run elsewhere.
    moved: usize,
}

impl From<OtherOrder> for OtherOrderEntry {
    fn from(OtherOrder { best, moved, .. }: OtherOrder) -> Self {
        Self { peak: best, moved }
    }
}

/// The fullest step of one memory, for programs.
#[derive(Serialize)]
struct PeakEntry<'a> {
    name: &'a str,
    /// What the plan needs.
    peak: Bytes,
    /// What is alive at the fullest step, each tensor rounded up to its alignment.
    live: Bytes,
    /// The bytes of these that a result and its source have at once.
    #[serde(skip_serializing_if = "is_zero")]
    shared: Bytes,
    #[serde(flatten)]
    step: PeakStep,
    by_role: Vec<KindEntry>,
    by_operation: Vec<KindEntry>,
    by_layer: Vec<KindEntry>,
    /// How many are alive.
    count: usize,
    /// The largest of them.
    alive: Vec<LiveAtPeak>,
    /// Those that are not listed.
    more: OmittedRest,
}

fn is_zero(bytes: &Bytes) -> bool {
    bytes.0 == 0
}

/// The live bytes of all tensors of a kind.
#[derive(Serialize)]
struct KindEntry {
    name: String,
    bytes: Bytes,
}

/// The fullest step of one memory.
struct PeakReport<'a> {
    map: &'a PlanMap,
    memory: &'a MemoryMap,
    /// What is alive then, the largest first.
    alive: Vec<&'a Tile>,
    sums: ByteSums,
}

impl<'a> PeakReport<'a> {
    fn new(map: &'a PlanMap, memory: &'a MemoryMap) -> Self {
        let alive = memory.alive_at_peak();
        // Of the blocks of a list, neither role nor operation nor layer is known.
        let sums = if map.unit == StepUnit::Node { byte_sums(&alive) } else { ByteSums::default() };
        Self { map, memory, alive, sums }
    }

    /// Returns the bytes that all live tensors occupy together.
    fn live(&self) -> Bytes {
        sum(self.alive.iter().map(|tile| tile.occupied))
    }

    /// Splits off the largest `top` tensors, and sums up the rest.
    fn split(&self, top: usize) -> (&[&'a Tile], OmittedRest) {
        let (listed, rest) = self.alive.split_at(top.min(self.alive.len()));
        (
            listed,
            OmittedRest { count: rest.len(), sum: OmittedTotal::Bytes(sum(rest.iter().map(|tile| tile.occupied))) },
        )
    }

    fn entry(&self, loaded: &LoadedMap, top: usize) -> PeakEntry<'a> {
        let kinds = |sums: &[(String, Bytes)]| {
            sums.iter().map(|(name, bytes)| KindEntry { name: name.clone(), bytes: *bytes }).collect()
        };
        let (listed, more) = self.split(top);
        let alive = |tile: &&Tile| LiveAtPeak::new(self.map.unit, tile, loaded.tensor_id(tile));
        PeakEntry {
            name: &self.memory.name,
            peak: self.memory.peak(),
            live: self.live(),
            shared: self.memory.shared_at_peak(),
            step: PeakStep::new(self.map.unit, self.memory.fullest),
            by_role: kinds(&self.sums.by_role),
            by_operation: kinds(&self.sums.by_operation),
            by_layer: kinds(&self.sums.by_layer),
            count: self.alive.len(),
            alive: listed.iter().map(alive).collect(),
            more,
        }
    }

    /// Formats the peak: a sentence, the sums, a table, and what the table leaves out.
    fn text(&self, file: &str, top: usize, sizes: SizeStyle) -> String {
        let size = |bytes| sizes.show(bytes);
        let (file, memory) = (printable(file), printable(&memory_phrase(&self.memory.name)));
        let Some(when) = self.memory.fullest.map(|step| step_phrase(self.map, step)) else {
            return format!("{file}: nothing is ever alive in {memory}\n");
        };
        let (peak, live, shared) = (self.memory.peak(), self.live(), self.memory.shared_at_peak());
        let overlap = match shared.0 {
            0 => String::new(),
            _ => format!(", {} of them twice because a result overlaps its source", size(shared)),
        };
        let lost = match peak.0.saturating_add(shared.0).saturating_sub(live.0) {
            0 => overlap,
            lost => format!("{overlap}, {} more are lost to gaps between them or between buffers", size(Bytes(lost))),
        };
        let head = format!("{file}: {memory} needs {}: {} are alive {when}{lost}\n", size(peak), size(live));
        let (listed, more) = self.split(top);
        let list = if listed.is_empty() { String::new() } else { format!("{}\n", self.rows(listed, sizes).trim_fmt()) };
        let more = more.line(sizes);
        let sums = self.sums_table(sizes).map_or_else(String::new, |sums| format!("{}\n\n", sums.trim_fmt()));
        format!("{head}{sums}{list}{more}")
    }

    /// Returns the sums by role, operation and layer side by side; `None` for a block list.
    fn sums_table(&self, sizes: SizeStyle) -> Option<comfy_table::Table> {
        let ByteSums { by_role, by_operation, by_layer, .. } = &self.sums;
        (self.map.unit == StepUnit::Node).then(|| {
            let cell = |(name, bytes): &(String, Bytes)| [text_table::name_cell(name), Cell::new(sizes.show(*bytes))];
            let add = |a: Bytes, b: Bytes| sum([a, b].into_iter());
            let cells =
                |kinds: &[(String, Bytes)]| text_table::fold_tail(kinds.to_vec(), add).iter().map(cell).collect();
            let kinds = [by_role, by_operation, by_layer].map(|kinds| cells(kinds));
            text_table::side_by_side([["role", "bytes"], ["operation", "bytes"], ["layer", "bytes"]], kinds)
        })
    }

    fn rows(&self, alive: &[&Tile], sizes: SizeStyle) -> comfy_table::Table {
        let is_graph = self.map.unit == StepUnit::Node;
        let knows_use = alive.iter().any(|tile| !self.map.why_alive(tile).is_empty());
        let mut header = match is_graph {
            true => vec!["tensor", "bytes", "role", "operation", "type", "nodes"],
            false => vec!["block", "bytes", "lifetime"],
        };
        header.extend(knows_use.then_some("last use"));
        let last = header.len() - 1;
        let mut shown = text_table::new_table(header.into_iter().map(str::to_owned));
        for tile in alive {
            let (start, end) = (tile.life.start(), tile.life.end());
            let mut cells = vec![text_table::short_name_cell(&tile.name), Cell::new(sizes.show(tile.occupied))];
            if is_graph {
                cells.extend([
                    text_table::name_cell(tile.role.title()),
                    text_table::name_cell(tile.maker()),
                    text_table::name_cell(&tile.layout),
                ]);
                let (first, last) = (i128::from(start.0) - 1, i128::from(end.0) - 2);
                cells.push(Cell::new(format!("{first} to {last}")));
            } else {
                cells.push(Cell::new(format!("[{start}, {end})")));
            }
            cells.extend(knows_use.then(|| Cell::new(self.map.why_alive(tile))));
            shown.add_row(cells);
        }
        if let Some(column) = shown.column_mut(last).filter(|_| knows_use) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        shown
    }
}
