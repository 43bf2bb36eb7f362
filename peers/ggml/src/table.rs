//! Times and bytes, one row per graph.

use std::error::Error;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use peer_ggml::measure::{Figures, Pair, figures, median};
use peer_ggml::version;
use steeve_graph::Bytes;

use crate::args::Cli;
use crate::sources;

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
    let chosen = |name: &str| CHOICE.contains(&name) || name.starts_with("generated/");
    let chosen = sources(cli, |name| cli.all || if cli.names.is_empty() { chosen(name) } else { cli.names(name) })?;
    println!(
        "ggml {}; times in ns per node, medians of {} in turn; ratios are ours by ggml's\n",
        version(),
        cli.repeats
    );
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
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

fn row(name: String, it: &Figures) -> Vec<String> {
    let per_node = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e9 / it.nodes.max(1) as f64);
    let times = |pair: Pair| [per_node(pair.ggml), per_node(pair.ours), format!("{:.2}", pair.ratio())];
    let mib = |bytes: Bytes| format!("{:.2}", bytes.0 as f64 / f64::from(1 << 20));
    let mut row = vec![name, it.nodes.to_string()];
    row.extend(times(it.reserve));
    row.extend(times(it.alloc));
    row.extend([mib(it.ggml), mib(it.ours), format!("{:.4}", bytes_ratio(it))]);
    row
}

/// The last row: medians of times per node and of ratios.
fn medians(all: &[Figures]) -> Vec<String> {
    let of = |value: &dyn Fn(&Figures) -> f64| median(all.iter().map(value).collect());
    let per_node = |time: Duration, it: &Figures| time.as_secs_f64() * 1e9 / it.nodes.max(1) as f64;
    let mut row = vec![format!("median of {}", all.len()), String::new()];
    for pair in [|it: &Figures| it.reserve, |it: &Figures| it.alloc] {
        row.push(format!("{:.1}", of(&|it| per_node(pair(it).ggml, it))));
        row.push(format!("{:.1}", of(&|it| per_node(pair(it).ours, it))));
        row.push(format!("{:.2}", of(&|it| pair(it).ratio())));
    }
    row.extend([String::new(), String::new(), format!("{:.4}", of(&bytes_ratio))]);
    row
}

fn bytes_ratio(it: &Figures) -> f64 {
    if it.ggml == it.ours { 1.0 } else { it.ours.0 as f64 / it.ggml.0 as f64 }
}
