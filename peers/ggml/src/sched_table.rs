//! Times, splits and copies of the schedulers, one table for each way to spread the weights.

use std::error::Error;

use peer_ggml::measure::{Pair, SchedFigures, sched_figures};
use peer_ggml::{Spread, hush};
use steeve_graph::AssignedGraph;

use crate::args::Cli;
use crate::table::{chosen, median_times, print_title, times, with_header};

const SPREADS: [(&str, Spread); 3] = [
    ("one device", Spread::ONE),
    ("three devices, a third of the weights on each", Spread { devices: 3, parts: 3 }),
    ("three devices, the weights on them in turn, 24 times", Spread { devices: 3, parts: 24 }),
];

const HEADER: [&str; 14] = [
    "graph",
    "nodes",
    "splits: ggml",
    "ours",
    "copies: ggml",
    "ours",
    "MiB: ggml",
    "ours",
    "reserve: ggml",
    "ours",
    "ratio",
    "alloc: ggml",
    "ours",
    "ratio",
];

pub(crate) fn run(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let mut graphs = Vec::new();
    for source in chosen(cli)? {
        let graph = source.graph()?;
        // What was recorded with several memories has been split already.
        if graph.memories().len() == 1 {
            graphs.push((source.name(), graph));
        }
    }
    if graphs.is_empty() {
        return Err("every such graph was recorded after a scheduler had split it".into());
    }
    hush();
    print_title(cli);
    for (title, spread) in SPREADS {
        println!("{title}\n");
        print(&graphs, spread, cli.repeats);
    }
    Ok(())
}

fn print(graphs: &[(String, AssignedGraph)], spread: Spread, repeats: usize) {
    let mut table = with_header(&HEADER);
    let mut all = Vec::new();
    for (name, graph) in graphs {
        match sched_figures(graph, spread, repeats) {
            Ok(figures) => {
                table.add_row(row(name, &figures));
                all.push(figures);
            }
            // One that a side can not take does not spoil the others.
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    table.add_row(medians(&all));
    println!("{table}\n");
}

fn row(name: &str, it: &SchedFigures) -> Vec<String> {
    let mut row = vec![name.to_string(), it.nodes.to_string()];
    row.extend([it.ggml.splits, it.ours.splits, it.ggml.copies, it.ours.copies].map(|count| count.to_string()));
    row.extend([it.ggml, it.ours].map(|cut| format!("{:.2}", cut.copied.0 as f64 / f64::from(1 << 20))));
    row.extend(times(it.reserve, it.nodes));
    row.extend(times(it.alloc, it.nodes));
    row
}

/// The last row: medians of times per node and of ratios.
fn medians(all: &[SchedFigures]) -> Vec<String> {
    let pairs = |pair: fn(&SchedFigures) -> Pair| all.iter().map(|it| (pair(it), it.nodes)).collect::<Vec<_>>();
    let mut row = vec![format!("median of {}", all.len())];
    row.resize(8, String::new());
    row.extend(median_times(&pairs(|it| it.reserve)));
    row.extend(median_times(&pairs(|it| it.alloc)));
    row
}
