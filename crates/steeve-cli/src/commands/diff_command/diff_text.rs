//! Differences as people read them: a verdict for each memory first, then the figures behind it.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Color};
use steeve_plan::Bytes;
use steeve_view::{BytesChange, KindChange, MemoryChange, TensorChange, printable, short_name};

use super::{DiffOutcome, PlanDifference, ratio, split};
use crate::args::DiffArgs;
use crate::byte_size::SizeStyle;
use crate::peak_step::step_phrase;
use crate::plan_figures::ONLY_MEMORY;
use crate::text_table::{self, signed_size};

/// Names a memory at the start of a sentence.
pub(super) fn memory_name(name: &str) -> String {
    if name == ONLY_MEMORY { "the memory".to_owned() } else { short_name(name) }
}

/// Formats the difference of two plans: a verdict per memory, a table of what has changed, and what explains each change.
pub(super) fn format_pair(difference: &PlanDifference, args: &DiffArgs) -> String {
    let sizes = args.output.sizes();
    let mut text = String::new();
    match difference.outcome() {
        DiffOutcome::Equal => return format!("equal: {}\n", sizes_phrase(difference, sizes)),
        DiffOutcome::SameSize => {
            return format!("same size: {}; {}\n", sizes_phrase(difference, sizes), moves_phrase(difference));
        }
        _ => {}
    }
    for memory in difference.memories.iter().filter(|it| it.peak.difference != 0) {
        text += &format!("{}\n", verdict_sentence(memory, sizes));
    }
    text += &format!("\n{}\n", memory_table(difference, sizes).trim_fmt());
    for memory in difference.memories.iter().filter(|it| it.peak.difference != 0) {
        text += &format!("\n{}", explain_change(difference, memory, args));
    }
    text
}

/// Formats the difference of two folders: a row for each file that is in both and one for all of them, each file that is in
/// one folder alone with its bytes, and a verdict for each file that has changed.
pub(super) fn format_folders(differences: &[PlanDifference], args: &DiffArgs) -> String {
    let sizes = args.output.sizes();
    let mut text = String::new();
    let (both, alone): (Vec<&PlanDifference>, Vec<&PlanDifference>) =
        differences.iter().partition(|it| it.before.is_some() && it.after.is_some());
    if !both.is_empty() {
        let mut shown =
            text_table::new_table(["file", "before", "after", "difference", "ratio", "result"].map(str::to_owned));
        for it in &both {
            let mut cells = vec![text_table::short_name_cell(&it.name)];
            cells.extend(byte_cells(it.total(), sizes));
            cells.push(Cell::new(outcome_phrase(it)));
            shown.add_row(cells);
        }
        if both.len() > 1 {
            let total = both.iter().fold(BytesChange::default(), |sum, it| sum.and(it.total()));
            let mut cells = vec![Cell::new(format!("all {}", both.len()))];
            cells.extend(byte_cells(total, sizes));
            cells.push(Cell::new(""));
            shown.add_row(cells);
        }
        text += &format!("{}\n", shown.trim_fmt());
    }
    for it in alone {
        let folder = if it.before.is_some() { &args.before } else { &args.after };
        let (folder, name) = (printable(&folder.display().to_string()), printable(&it.name));
        text += &format!("only in {folder}: {name}: {}\n", sizes_phrase(it, sizes));
    }
    text + &verdict_lines(&both, args)
}

/// Formats a sentence for each memory that has changed, the files with the largest changes first.
fn verdict_lines(differences: &[&PlanDifference], args: &DiffArgs) -> String {
    let mut changed: Vec<(&PlanDifference, &MemoryChange)> =
        differences.iter().flat_map(|it| it.memories.iter().map(move |memory| (*it, memory))).collect();
    changed.retain(|(_, memory)| memory.peak.difference != 0);
    // What has grown counts more than what has shrunk, however much.
    changed.sort_by_key(|(_, memory)| std::cmp::Reverse((memory.peak.growth(), memory.peak.difference.unsigned_abs())));
    let mut text = String::new();
    for (it, memory) in changed.iter().take(args.top) {
        let _ = writeln!(text, "{}: {}", printable(&it.name), verdict_sentence(memory, args.output.sizes()));
    }
    match changed.len().saturating_sub(args.top) {
        0 => text,
        more => text + &format!("and {more} more that have changed; --top shows more of them\n"),
    }
}

/// Formats `CUDA0 grew by 12.50 MiB (3.1 %) to 412.50 MiB: attention +12.00 MiB (kq-3, layer 3), ...`.
fn verdict_sentence(memory: &MemoryChange, sizes: SizeStyle) -> String {
    let (name, peak) = (memory_name(&memory.name), memory.peak);
    let (difference, after) = (Bytes(clamped(peak.difference.unsigned_abs())), sizes.show(peak.after));
    let difference_told = sizes.show(difference);
    let what = match (peak.before, peak.after) {
        (Bytes::ZERO, _) => return format!("{name} is new: {after}{}", reasons(memory, sizes)),
        (before, Bytes::ZERO) => return format!("{name} is gone: it had {}", sizes.show(before)),
        (before, after) if after > before => "grew",
        _ => "shrank",
    };
    let percent = match difference.0 as f64 * 100.0 / peak.before.0 as f64 {
        part if part < 0.05 => "under 0.1 %".to_owned(),
        part => format!("{part:.1} %"),
    };
    format!("{name} {what} by {difference_told} ({percent}) to {after}{}", reasons(memory, sizes))
}

/// Names the roles that have changed most in the direction of the memory, each with its largest tensor.
fn reasons(memory: &MemoryChange, sizes: SizeStyle) -> String {
    const MOST: usize = 3;
    let direction = memory.peak.difference.signum();
    let same = |bytes: BytesChange| bytes.difference.signum() == direction;
    let reason = |kind: &KindChange| {
        let tensor = memory.changes.iter().find(|it| it.role == Some(kind.name.as_str()) && same(it.bytes));
        let about = tensor.map_or_else(String::new, |it| match it.layer {
            Some(layer) => format!(" ({}, layer {layer})", short_name(&it.name)),
            None => format!(" ({})", short_name(&it.name)),
        });
        format!("{} {}{about}", kind.name, signed_size(kind.bytes.difference, sizes))
    };
    let tensor = |it: &TensorChange| format!("{} {}", short_name(&it.name), signed_size(it.bytes.difference, sizes));
    // Of block lists there are no roles.
    let mut reasons: Vec<String> = match memory.by_role.as_slice() {
        [] => memory.changes.iter().filter(|it| same(it.bytes)).take(MOST).map(tensor).collect(),
        roles => roles.iter().filter(|kind| same(kind.bytes)).take(MOST).map(reason).collect(),
    };
    let gaps = memory.peak.difference - memory.live.difference;
    if gaps.signum() == direction {
        reasons.push(format!("gaps {}", signed_size(gaps, sizes)));
    }
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) }
}

/// Formats `CPU 12.00 MiB, CUDA0 400.00 MiB`.
fn sizes_phrase(difference: &PlanDifference, sizes: SizeStyle) -> String {
    let bytes = |peak: BytesChange| if difference.after.is_some() { peak.after } else { peak.before };
    let told = |memory: &MemoryChange| format!("{} {}", memory_name(&memory.name), sizes.show(bytes(memory.peak)));
    let memories: Vec<String> = difference.memories.iter().map(told).collect();
    if memories.is_empty() { "nothing needs memory".to_owned() } else { memories.join(", ") }
}

/// Formats `3 came, 14 moved`, of all memories together.
fn moves_phrase(difference: &PlanDifference) -> String {
    let counts = difference.memories.iter().map(|memory| memory.tensors.named());
    let mut sums: Vec<(&str, usize)> = Vec::new();
    for (word, count) in counts.flatten() {
        match sums.iter_mut().find(|(known, _)| *known == word) {
            Some((_, sum)) => *sum += count.count,
            None => sums.push((word, count.count)),
        }
    }
    let told: Vec<String> =
        sums.into_iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")).collect();
    told.join(", ")
}

fn outcome_phrase(difference: &PlanDifference) -> String {
    match difference.outcome() {
        DiffOutcome::Equal => "equal".to_owned(),
        DiffOutcome::SameSize => moves_phrase(difference),
        DiffOutcome::Grew => "grew".to_owned(),
        DiffOutcome::Shrank => "shrank".to_owned(),
        DiffOutcome::OnlyBefore | DiffOutcome::OnlyAfter => String::new(),
    }
}

/// Returns the cells of bytes before and after, of the difference and of the ratio.
fn byte_cells(bytes: BytesChange, sizes: SizeStyle) -> [Cell; 4] {
    let colour = match bytes.difference {
        1.. => Color::Red,
        0 => Color::Reset,
        _ => Color::Green,
    };
    let ratio = ratio(bytes).map_or_else(|| "-".to_owned(), |ratio| ratio.to_string());
    [
        Cell::new(sizes.show(bytes.before)),
        Cell::new(sizes.show(bytes.after)),
        Cell::new(signed_size(bytes.difference, sizes)).fg(colour),
        Cell::new(ratio),
    ]
}

fn memory_table(difference: &PlanDifference, sizes: SizeStyle) -> comfy_table::Table {
    let mut shown = text_table::new_table(["memory", "before", "after", "difference", "ratio"].map(str::to_owned));
    let mut row = |name: &str, bytes: BytesChange| {
        let mut cells = vec![text_table::short_name_cell(name)];
        cells.extend(byte_cells(bytes, sizes));
        shown.add_row(cells);
    };
    difference.memories.iter().for_each(|memory| row(&memory.name, memory.peak));
    if difference.memories.len() > 1 {
        row("total", difference.total());
    }
    shown
}

/// Formats what is alive at the peak of a memory, before and after, and what has changed there.
fn explain_change(difference: &PlanDifference, memory: &MemoryChange, args: &DiffArgs) -> String {
    let sizes = args.output.sizes();
    let [before, after] = [(&difference.before, 0), (&difference.after, 1)].map(|(loaded, side)| {
        let live = if side == 0 { memory.live.before } else { memory.live.after };
        match (loaded, memory.fullest[side]) {
            (Some(loaded), Some(step)) => format!("{} {}", sizes.show(live), step_phrase(&loaded.map, step)),
            _ => "nothing".to_owned(),
        }
    });
    let mut text = format!("{}: alive before: {before}; after: {after}\n", memory_name(&memory.name));
    let kinds = [&memory.by_role, &memory.by_operation, &memory.by_layer];
    let changed = kinds.map(|kinds| kind_cells(kinds, sizes));
    if changed.iter().any(|kinds| !kinds.is_empty()) {
        let headers = [["role", "difference"], ["operation", "difference"], ["layer", "difference"]];
        text += &format!("{}\n\n", text_table::side_by_side(headers, changed).trim_fmt());
    }
    let (listed, more) = split(memory, args.top);
    if !listed.is_empty() {
        text += &format!("{}\n", tensor_table(listed, sizes).trim_fmt());
    }
    text += &more.line(sizes);
    let counts = memory.tensors.named().into_iter().filter(|(_, it)| it.count > 0);
    let counts: Vec<String> = counts.map(|(word, it)| format!("{} {word}", it.count)).collect();
    if !counts.is_empty() {
        text += &format!("of all tensors: {}\n", counts.join(", "));
    }
    text
}

/// Returns a row for each of the kinds that have changed most, and one for all others.
fn kind_cells(kinds: &[KindChange], sizes: SizeStyle) -> Vec<[Cell; 2]> {
    let changed = kinds.iter().filter(|kind| kind.bytes.difference != 0);
    let changed = changed.map(|kind| (kind.name.clone(), kind.bytes.difference)).collect();
    let cells =
        |(name, bytes): &(String, i128)| [text_table::short_name_cell(name), Cell::new(signed_size(*bytes, sizes))];
    text_table::fold_tail(changed, i128::saturating_add).iter().map(cells).collect()
}

fn tensor_table(changes: &[TensorChange], sizes: SizeStyle) -> comfy_table::Table {
    let is_graph = changes.iter().any(|it| it.role.is_some());
    let header: &[&str] = match is_graph {
        true => &["tensor", "change", "before", "after", "difference", "role", "operation", "layer"],
        false => &["block", "change", "before", "after", "difference"],
    };
    let mut shown = text_table::new_table(header.iter().map(|name| (*name).to_owned()));
    let bytes = |bytes: Bytes| if bytes == Bytes::ZERO { "-".to_owned() } else { sizes.show(bytes) };
    for it in changes {
        let mut cells = vec![
            text_table::short_name_cell(&it.name),
            Cell::new(it.change.word()),
            Cell::new(bytes(it.bytes.before)),
            Cell::new(bytes(it.bytes.after)),
            Cell::new(signed_size(it.bytes.difference, sizes)),
        ];
        if is_graph {
            cells.push(text_table::name_cell(it.role.unwrap_or("-")));
            cells.push(text_table::name_cell(it.op.as_deref().unwrap_or("-")));
            cells.push(Cell::new(it.layer.map_or_else(|| "-".to_owned(), |layer| layer.to_string())));
        }
        shown.add_row(cells);
    }
    if let Some(column) = shown.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    shown
}

fn clamped(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
