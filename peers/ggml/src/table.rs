//! Times and bytes, one row per graph.

use std::error::Error;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use peer_ggml::measure::{Figures, Pair, figures, median};
use peer_ggml::version;
use steeve_graph::Bytes;

use crate::args::Cli;
use crate::{Source, sources};

/// What a server plans for a prompt (one row of logits, flash attention on), for one token, on several devices, and other
/// networks.
const CHOICE: [&str; 18] = [
    "llm/deepseek-v2-lite.c4096.fa1.out1.pp",
    "llm/deepseek-v3.c4096.fa1.out1.pp",
    "llm/gemma-2-9b.c4096.fa1.out1.pp",
    "llm/granite-4.0-h-tiny.c4096.fa1.out1.pp",
    "llm/jamba-mini-52b.c4096.fa1.out1.pp",
    "llm/llama-3.1-8b.c4096.fa1.out1.pp",
    "llm/llama-3.1-8b.c4096.fa1.tg",
    "llm/qwen2.5-0.5b.c4096.fa1.out1.pp",
    "llm/qwen3-30b-a3b.c4096.fa1.out1.pp",
    "multi/deepseek-v3.gpu4pp.c4096.fa1.out1.pp",
    "multi/llama-3.1-8b.gpu1max1g.c32768.fa0.pp",
    "multi/qwen3-30b-a3b.gpu2pp.c4096.fa1.out1.pp",
    "other/sam-vit-h.0000",
    "other/sd15-unet.lat64.fa1.0002",
    "other/train-llama110m.t512b4.opt.0008",
    "other/whisper-small.fa1.decode",
    "other/whisper-small.fa1.encode",
    "other/yolov3-tiny.416.0000",
];

const HEADER: [&str; 11] =
    ["graph", "nodes", "reserve: ggml", "ours", "ratio", "alloc: ggml", "ours", "ratio", "MiB: ggml", "ours", "ratio"];

pub(crate) fn run(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let chosen = chosen(cli)?;
    print_title(cli);
    let mut table = with_header(&HEADER);
    let mut all = Vec::new();
    for source in chosen {
        let graph = source.graph()?;
        match figures(&graph, cli.repeats) {
            Ok(figures) => {
                table.add_row(row(source.name(), &figures));
                all.push(figures);
            }
            // One that ggml can not take does not spoil the others.
            Err(error) => eprintln!("{}: {error}", source.name()),
        }
    }
    table.add_row(medians(&all));
    println!("{table}");
    Ok(())
}

/// The graphs that were asked for, or the choice.
pub(crate) fn chosen(cli: &Cli) -> Result<Vec<Source>, Box<dyn Error>> {
    let chosen = |name: &str| CHOICE.contains(&name) || name.starts_with("generated/");
    sources(cli, |name| cli.all || if cli.names.is_empty() { chosen(name) } else { cli.names(name) })
}

pub(crate) fn print_title(cli: &Cli) {
    println!(
        "ggml {}; times in ns per node, medians of {} in turn; ratios are ours by ggml's\n",
        version(),
        cli.repeats
    );
}

/// A table without rows: a name on the left, and numbers.
pub(crate) fn with_header(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A pair of times: each by node, and the ratio.
pub(crate) fn times(pair: Pair, nodes: usize) -> [String; 3] {
    let per_node = |time| format!("{:.1}", per_node(time, nodes));
    [per_node(pair.ggml), per_node(pair.ours), format!("{:.2}", pair.ratio())]
}

/// The medians of pairs of times: by node, and of the ratios.
pub(crate) fn median_times(pairs: &[(Pair, usize)]) -> [String; 3] {
    let of = |value: &dyn Fn(&(Pair, usize)) -> f64| median(pairs.iter().map(value).collect());
    let ggml = of(&|(pair, nodes)| per_node(pair.ggml, *nodes));
    let ours = of(&|(pair, nodes)| per_node(pair.ours, *nodes));
    [format!("{ggml:.1}"), format!("{ours:.1}"), format!("{:.2}", of(&|(pair, _)| pair.ratio()))]
}

fn per_node(time: Duration, nodes: usize) -> f64 {
    time.as_secs_f64() * 1e9 / nodes.max(1) as f64
}

fn row(name: String, it: &Figures) -> Vec<String> {
    let mib = |bytes: Bytes| format!("{:.2}", bytes.0 as f64 / f64::from(1 << 20));
    let mut row = vec![name, it.nodes.to_string()];
    row.extend(times(it.reserve, it.nodes));
    row.extend(times(it.alloc, it.nodes));
    row.extend([mib(it.ggml), mib(it.ours), format!("{:.4}", bytes_ratio(it))]);
    row
}

/// The last row: medians of times per node and of ratios.
fn medians(all: &[Figures]) -> Vec<String> {
    let pairs = |pair: fn(&Figures) -> Pair| all.iter().map(|it| (pair(it), it.nodes)).collect::<Vec<_>>();
    let mut row = vec![format!("median of {}", all.len()), String::new()];
    row.extend(median_times(&pairs(|it| it.reserve)));
    row.extend(median_times(&pairs(|it| it.alloc)));
    let bytes = median(all.iter().map(bytes_ratio).collect());
    row.extend([String::new(), String::new(), format!("{bytes:.4}")]);
    row
}

fn bytes_ratio(it: &Figures) -> f64 {
    if it.ggml == it.ours { 1.0 } else { it.ours.0 as f64 / it.ggml.0 as f64 }
}
