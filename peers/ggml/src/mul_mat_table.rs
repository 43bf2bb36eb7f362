//! Times of matrix products, one row per type and size.

use std::error::Error;

use peer_ggml::measure::product_figures;
use peer_ggml::{Products, version};
use steeve_graph::DataType;

use crate::args::Cli;
use crate::table::with_header;

const TYPES: [DataType; 14] = [
    DataType::F32,
    DataType::F16,
    DataType::Bf16,
    DataType::Q8_0,
    DataType::Q4_0,
    DataType::Q4K,
    DataType::Q4_1,
    DataType::Q5_0,
    DataType::Q5_1,
    DataType::Mxfp4,
    DataType::Q2K,
    DataType::Q3K,
    DataType::Q5K,
    DataType::Q6K,
];

const HEADER: [&str; 7] = ["weights", "rows", "ggml: ms", "ours: ms", "speed", "Gflop/s", "difference"];

pub(crate) fn run(cli: &Cli) -> Result<(), Box<dyn Error>> {
    const SIDE: usize = 4096;
    println!(
        "ggml {}; {SIDE} x {SIDE}, one thread, medians of {} in turn; speed is ours by ggml's\n",
        version(),
        cli.repeats
    );
    let mut table = with_header(&HEADER);
    for (n, count) in [(1, 4), (512, 1)] {
        for dtype in TYPES {
            if !cli.names.is_empty() && !cli.names.iter().any(|name| name == dtype.name()) {
                continue;
            }
            let products = Products { dtype, k: SIDE, m: SIDE, n, count };
            let figures = product_figures(&products, cli.repeats)?;
            let per_product = |time: std::time::Duration| time.as_secs_f64() * 1e3 / count as f64;
            let ours = per_product(figures.times.ours);
            table.add_row([
                dtype.name().to_owned(),
                n.to_string(),
                format!("{:.3}", per_product(figures.times.ggml)),
                format!("{ours:.3}"),
                format!("{:.2}", 1.0 / figures.times.ratio()),
                format!("{:.1}", 2.0 * (SIDE * SIDE * n) as f64 / ours / 1e6),
                format!("{:.1e}", figures.difference),
            ]);
        }
    }
    println!("{table}");
    Ok(())
}
