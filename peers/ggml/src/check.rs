//! Whether ggml answers what `steeve_graph::ggml_placement` says that it does.
//!
//! That is ggml 0.21's answer; since then CLAMP may run in place. Where a graph differs, ggml is asked once more with CLAMP
//! as it was.

use std::error::Error;
use std::process::ExitCode;

use peer_ggml::{ClampRule, Failure, Verdict, verdict, version};

use crate::args::Cli;
use crate::sources;

pub(crate) fn run(cli: &Cli) -> Result<ExitCode, Box<dyn Error>> {
    let chosen = sources(cli, |name| cli.names.is_empty() || cli.names(name))?;
    let (mut equal, mut but_for_clamp, mut differ, mut failed) = (0, 0, 0, 0);
    for source in chosen {
        let graph = source.graph()?;
        let name = source.name();
        match verdict(&graph, ClampRule::Linked) {
            Ok(verdict) if verdict.is_equal() => equal += 1,
            Ok(found) => match verdict(&graph, ClampRule::NeverInPlace) {
                Ok(old) if old.is_equal() => {
                    but_for_clamp += 1;
                    println!("{name}: {}, all because of CLAMP", told(&found));
                }
                _ => {
                    differ += 1;
                    println!("{name}: {}", told(&found));
                    found.differences.iter().take(3).for_each(|difference| println!("  {difference}"));
                }
            },
            Err(failure) => {
                failed += 1;
                let who = if matches!(failure, Failure::Ggml(_)) { "ggml" } else { "steeve" };
                println!("{name}: no answer of {who}: {failure}");
            }
        }
    }
    let all = equal + but_for_clamp + differ + failed;
    println!(
        "ggml {}: {all} graphs, {equal} equal in every size and place, {but_for_clamp} but for CLAMP, {differ} differ, \
         {failed} without answer",
        version()
    );
    Ok(if differ + failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn told(verdict: &Verdict) -> String {
    let sizes = if verdict.sizes_are_equal() { "sizes are equal" } else { "sizes differ" };
    format!("{sizes}, {} tensors stand elsewhere", verdict.moved())
}
