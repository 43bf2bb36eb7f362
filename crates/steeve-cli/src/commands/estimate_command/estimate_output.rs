//! The figures of each device in, a table or JSON out. What is not known is a dash, or left out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;

use comfy_table::Cell;
use serde::Serialize;
use steeve_plan::Bytes;

use super::model_header::ModelHeader;
use super::report_reader::ContextContents;
use super::usage_ledger::{ByteOrigin, DeviceUse, MemoryUse, UsageLedger};
use super::watched_program::ProgramEnd;
use crate::byte_size::SizeStyle;
use crate::capacity::Capacities;
use crate::error::Error;
use crate::json_lines::{JSON_VERSION, print_line};
use crate::text_table::{self, engine_ratio_cell};

/// What a program takes, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Estimate {
    version: u32,
    program: Vec<String>,
    /// Whether memory was really reserved, or only asked the size of.
    run: RunKind,
    ended: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ggml_version: Option<String>,
    devices: Vec<DevicePurposes>,
    total: TotalBytes,
    /// What the headers of models say that are named on the command line.
    models: Vec<ModelHeader>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum RunKind {
    Dry,
    Real,
}

/// One device.
#[derive(Debug, Serialize)]
struct DevicePurposes {
    device: String,
    #[serde(flatten)]
    figures: PurposeBytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<Bytes>,
    /// Whether the total with steeve's compute fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    fits: Option<bool>,
    /// Whether the total with ggml's compute fits, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    fits_with_ggml: Option<bool>,
    memories: Vec<MemoryPurposes>,
}

/// One memory of a device.
#[derive(Debug, Serialize)]
struct MemoryPurposes {
    memory: String,
    #[serde(flatten)]
    figures: PurposeBytes,
}

/// Bytes by what they are for.
#[derive(Clone, Debug, Default, Serialize)]
struct PurposeBytes {
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<AmountByOrigin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caches: Option<AmountByOrigin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<AmountByOrigin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compute: Option<ComputeBytes>,
    total: TotalBytes,
}

/// A number of bytes, and how much of it is known from where.
#[derive(Clone, Debug, Default, Serialize)]
struct AmountByOrigin {
    bytes: u64,
    from: BTreeMap<&'static str, u64>,
}

/// What the buffers for graphs take.
#[derive(Clone, Copy, Debug, Serialize)]
struct ComputeBytes {
    #[serde(skip_serializing_if = "Option::is_none")]
    ggml: Option<u64>,
    steeve: u64,
    from: &'static str,
}

/// All that is known together.
#[derive(Clone, Copy, Debug, Serialize)]
struct TotalBytes {
    #[serde(skip_serializing_if = "Option::is_none")]
    ggml: Option<u64>,
    steeve: u64,
}

impl Default for TotalBytes {
    fn default() -> Self {
        Self { ggml: Some(0), steeve: 0 }
    }
}

impl ByteOrigin {
    fn name(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Sized => "sized",
            Self::Mapped => "mapped",
        }
    }

    fn explained(self) -> &'static str {
        match self {
            Self::Allocated => "buffers that the program has allocated through ggml",
            Self::Sized => "sizes that the program has asked ggml for",
            Self::Mapped => "files that the program has mapped into a buffer of ggml's",
        }
    }
}

impl RunKind {
    fn explained(self) -> &'static str {
        match self {
            Self::Dry => "plans of the graphs that the program has asked the sizes of (a dry run)",
            Self::Real => "buffers of the graphs that the program has reserved; ggml's by its own rules",
        }
    }
}

impl Estimate {
    /// Sums up what a program has taken, and compares each device with its capacity.
    pub(super) fn new(
        program: &[OsString],
        end: ProgramEnd,
        ledger: &UsageLedger,
        models: Vec<ModelHeader>,
        capacities: Capacities<'_>,
    ) -> Self {
        let run = if ledger.is_real { RunKind::Real } else { RunKind::Dry };
        let known = ledger.figures();
        let device = |(device, memories): (&super::report_reader::DeviceName, &DeviceUse)| {
            let mut figures = DevicePurposes::new(&device.name, memories, run);
            figures.figures.total.steeve = ledger.peak_with_steeve(device);
            figures.compare_with_capacity(capacities.of(&device.name));
            figures
        };
        let devices: Vec<DevicePurposes> = known.iter().map(device).collect();
        let total = devices.iter().fold(TotalBytes::default(), |sum, device| sum.and(device.figures.total));
        Self {
            version: JSON_VERSION,
            program: program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            run,
            ended: if matches!(end, ProgramEnd::Itself(_)) { "by itself" } else { "by steeve" },
            ggml_version: ledger.ggml_version.clone(),
            devices,
            total,
            models,
        }
    }

    /// Returns the names of its devices.
    pub(super) fn device_names(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|device| device.device.as_str())
    }

    pub(super) fn fits(&self) -> bool {
        self.devices.iter().all(|device| device.fits != Some(false))
    }

    /// Returns a sentence for each device that is too small.
    pub(super) fn capacity_errors(&self, sizes: SizeStyle) -> Vec<String> {
        let too_small = self.devices.iter().filter(|device| device.fits == Some(false));
        let sentence = |device: &DevicePurposes| {
            let (needed, capacity) = (Bytes(device.figures.total.steeve), device.capacity.unwrap_or(Bytes::ZERO));
            let (name, more) = (&device.device, Bytes(needed.0.saturating_sub(capacity.0)));
            let [needed, capacity, more] = [needed, capacity, more].map(|bytes| sizes.show(bytes));
            format!("{name}: does not fit: capacity {capacity}, at least {needed} needed, {more} too much")
        };
        too_small.map(sentence).collect()
    }

    pub(super) fn print_json(&self, out: &mut dyn Write) -> Result<(), Error> {
        print_line(out, self)
    }

    /// Prints a row for each device, a total where there are several, and where the figures come from.
    pub(super) fn print_table(&self, sizes: SizeStyle, out: &mut dyn Write) -> Result<(), Error> {
        let columns = EstimateColumns::of(self);
        let mut shown = text_table::new_table(columns.header().into_iter().map(str::to_owned));
        for device in &self.devices {
            shown.add_row(columns.cells(&device.device, &device.figures, Some(device), sizes));
        }
        if self.devices.len() > 1 {
            let mut sum = PurposeBytes { total: self.total, ..PurposeBytes::default() };
            self.devices.iter().for_each(|device| sum.add(&device.figures));
            shown.add_row(columns.cells("total", &sum, None, sizes));
        }
        writeln!(out, "{}", shown.trim_fmt()).map_err(Error::Output)?;
        for line in self.origins(sizes) {
            writeln!(out, "{line}").map_err(Error::Output)?;
        }
        Ok(())
    }

    /// Lists where the figures come from: a line for each kind and origin, with the memories.
    fn origins(&self, sizes: SizeStyle) -> Vec<String> {
        let memories = || self.devices.iter().flat_map(|device| &device.memories);
        let mut lines = vec![format!("compute: {}", self.run.explained())];
        let kinds: [(&str, AmountOf); 3] =
            [("weights", |it| &it.weights), ("caches", |it| &it.caches), ("other", |it| &it.other)];
        for (kind, of) in kinds {
            for origin in [ByteOrigin::Allocated, ByteOrigin::Sized, ByteOrigin::Mapped] {
                let amount = |it: &MemoryPurposes| {
                    let bytes = *of(&it.figures).as_ref()?.from.get(origin.name())?;
                    Some(format!("{} {}", steeve_view::printable(&it.memory), sizes.show(Bytes(bytes))))
                };
                let amounts: Vec<String> = memories().filter_map(amount).collect();
                if !amounts.is_empty() {
                    lines.push(format!("{kind}: {} ({})", origin.explained(), amounts.join(", ")));
                }
            }
            if kind != "other" && memories().all(|it| of(&it.figures).is_none()) {
                lines.push(format!("{kind}: not known"));
            }
        }
        for model in &self.models {
            let (file, bytes) = (steeve_view::printable(&model.file), sizes.show(Bytes(model.weights)));
            let plural = if model.tensors == 1 { "" } else { "s" };
            lines.push(format!("{file}: {} tensor{plural}, {bytes} by its header", model.tensors));
        }
        lines
    }
}

/// One of the amounts of some figures.
type AmountOf = fn(&PurposeBytes) -> &Option<AmountByOrigin>;

impl DevicePurposes {
    fn new(device: &str, memories: &DeviceUse, run: RunKind) -> Self {
        let memory = |(name, it): (&String, &MemoryUse)| MemoryPurposes {
            memory: name.clone(),
            figures: PurposeBytes::new(it, run),
        };
        let memories: Vec<MemoryPurposes> = memories.iter().map(memory).collect();
        let mut figures = PurposeBytes::default();
        memories.iter().for_each(|memory| figures.add(&memory.figures));
        figures.total = memories.iter().fold(TotalBytes::default(), |sum, memory| sum.and(memory.figures.total));
        Self { device: device.to_owned(), figures, capacity: None, fits: None, fits_with_ggml: None, memories }
    }

    /// Compares the totals with a capacity.
    fn compare_with_capacity(&mut self, capacity: Option<Bytes>) {
        let fits = |total: u64| capacity.map(|capacity| total <= capacity.0);
        self.capacity = capacity;
        self.fits = fits(self.figures.total.steeve);
        self.fits_with_ggml = self.figures.total.ggml.and_then(fits);
    }
}

impl PurposeBytes {
    fn new(memory: &MemoryUse, run: RunKind) -> Self {
        let amount = |contents: ContextContents| {
            let from = memory.contents.get(&contents)?;
            let from: BTreeMap<&'static str, u64> =
                from.iter().map(|(origin, bytes)| (origin.name(), *bytes)).collect();
            Some(AmountByOrigin { bytes: from.values().sum(), from })
        };
        let from = match run {
            RunKind::Dry => "sized",
            RunKind::Real => "allocated",
        };
        let compute = memory.compute.map(|it| ComputeBytes { ggml: it.ggml, steeve: it.steeve, from });
        let (weights, caches, other) =
            (amount(ContextContents::Weights), amount(ContextContents::Caches), amount(ContextContents::Other));
        let rest: u64 = [&weights, &caches, &other].into_iter().flatten().map(|amount| amount.bytes).sum();
        let total = match compute {
            Some(compute) => TotalBytes { ggml: compute.ggml.map(|ggml| ggml + rest), steeve: compute.steeve + rest },
            None => TotalBytes { ggml: Some(rest), steeve: rest },
        };
        Self { weights, caches, other, compute, total }
    }

    /// Adds all but the total.
    fn add(&mut self, other: &Self) {
        for (sum, amount) in
            [(&mut self.weights, &other.weights), (&mut self.caches, &other.caches), (&mut self.other, &other.other)]
        {
            if let Some(amount) = amount {
                let sum = sum.get_or_insert_default();
                sum.bytes += amount.bytes;
                amount.from.iter().for_each(|(origin, bytes)| *sum.from.entry(origin).or_default() += bytes);
            }
        }
        self.compute = match (self.compute, other.compute) {
            (Some(sum), Some(it)) => {
                let ggml = sum.ggml.zip(it.ggml).map(|(sum, it)| sum + it);
                Some(ComputeBytes { ggml, steeve: sum.steeve + it.steeve, from: it.from })
            }
            (sum, it) => sum.or(it),
        };
    }
}

impl TotalBytes {
    fn and(self, other: Self) -> Self {
        Self { ggml: self.ggml.zip(other.ggml).map(|(sum, it)| sum + it), steeve: self.steeve + other.steeve }
    }
}

/// Columns that would be empty are left out, but for weights and caches: that they are not known is worth a dash.
#[derive(Clone, Copy)]
struct EstimateColumns {
    other: bool,
    capacity: bool,
}

impl EstimateColumns {
    fn of(estimate: &Estimate) -> Self {
        Self {
            other: estimate.devices.iter().any(|device| device.figures.other.is_some()),
            capacity: estimate.devices.iter().any(|device| device.capacity.is_some()),
        }
    }

    fn header(self) -> Vec<&'static str> {
        let mut header = vec!["device", "weights", "caches"];
        header.extend(self.other.then_some("other"));
        header.extend(["compute: ggml", "steeve", "of ggml", "total: ggml", "steeve"]);
        if self.capacity {
            header.extend(["capacity", "fits"]);
        }
        header
    }

    fn cells(self, name: &str, figures: &PurposeBytes, device: Option<&DevicePurposes>, sizes: SizeStyle) -> Vec<Cell> {
        let bytes =
            |bytes: Option<u64>| Cell::new(bytes.map_or_else(|| "-".to_owned(), |bytes| sizes.show(Bytes(bytes))));
        let amount = |amount: &Option<AmountByOrigin>| bytes(amount.as_ref().map(|amount| amount.bytes));
        let mut cells = vec![text_table::name_cell(name), amount(&figures.weights), amount(&figures.caches)];
        cells.extend(self.other.then(|| amount(&figures.other)));
        let compute = figures.compute;
        cells.push(bytes(compute.and_then(|it| it.ggml)));
        cells.push(bytes(compute.map(|it| it.steeve)));
        cells
            .push(compute.map_or_else(|| Cell::new("-"), |it| engine_ratio_cell(Bytes(it.steeve), it.ggml.map(Bytes))));
        cells.push(bytes(figures.total.ggml));
        cells.push(bytes(Some(figures.total.steeve)));
        if self.capacity {
            cells.push(bytes(device.and_then(|device| device.capacity).map(|capacity| capacity.0)));
            cells.push(Cell::new(match device.and_then(|device| Some((device.fits?, device.fits_with_ggml))) {
                Some((true, Some(false))) => "with steeve",
                Some((true, _)) => "yes",
                Some((false, _)) => "no",
                None => "",
            }));
        }
        cells
    }
}
