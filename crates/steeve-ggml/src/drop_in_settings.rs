//! The settings, read from environment variables once per process.
//!
//! ```text
//!   STEEVE_STRATEGY=ggml|fast|best   how to place tensors [fast; best if a budget is given]
//!   STEEVE_BUDGET=500ms|20000nodes   what a search of `best` may cost
//!   STEEVE_REUSE=ggml|more           which nodes run in place; `reuse_more`: also two-source GLU, in CPU memory [ggml]
//!   STEEVE_HOLD=N                    for how many nodes a source outlives its last reader [what the backend needs]
//!   STEEVE_UNREAD=keep|free-inputs   whether inputs that no node reads keep their memory through the run [free-inputs]
//!   STEEVE_LOG=1                     a line for each new plan
//!   STEEVE_CHECK=1                   replay every plan before it is used
//!   STEEVE_PLANS=DIR                 plans of `best` are read from this folder, and written to it
//!   STEEVE_RECORD=DIR                write each graph to a file
//!   STEEVE_REPORT=FILE               append what the program takes through ggml, line by line
//!   STEEVE_OFF=1                     ggml's own allocator, untouched
//! ```

use std::ffi::OsString;
use std::path::PathBuf;

use steeve_graph::{Best, Budget, GraphStrategy, Unread};

use crate::growing_list::OnceValue;
use crate::log::log_stderr;

/// How plans are made, and what is logged, recorded and reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DropInSettings {
    pub(crate) strategy: GraphStrategy,
    pub(crate) reuse_more: bool,
    pub(crate) hold: Option<u32>,
    pub(crate) unread: Unread,
    pub(crate) log: bool,
    pub(crate) replay_plans: bool,
    pub(crate) plan_folder: Option<PathBuf>,
    pub(crate) record_folder: Option<PathBuf>,
    pub(crate) report_file: Option<PathBuf>,
    pub(crate) is_off: bool,
    /// Whether ggml's CUDA backend was told to run nodes on several streams.
    pub(crate) cuda_streams: bool,
}

/// Returns the settings of the process. The first call reads the environment and logs what is invalid in it.
pub(crate) fn settings() -> &'static DropInSettings {
    static SETTINGS: OnceValue<DropInSettings> = OnceValue::new();
    SETTINGS.get_or_make(|| {
        let (settings, warnings) = DropInSettings::read(|name| std::env::var_os(name));
        for warning in warnings {
            log_stderr!("{warning}");
        }
        settings
    })
}

impl DropInSettings {
    /// Returns these settings with ggml's layout, and without the checks that could refuse a plan.
    pub(crate) fn with_ggml_layout(&self) -> &'static Self {
        static ONLY_GGML: OnceValue<DropInSettings> = OnceValue::new();
        ONLY_GGML.get_or_make(|| Self {
            strategy: GraphStrategy::Ggml,
            reuse_more: false,
            replay_plans: false,
            ..self.clone()
        })
    }

    /// Reads the settings. Also returns a message for each one that is invalid and was left at its default.
    fn read(get: impl Fn(&str) -> Option<OsString>) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let given = |name: &str| get(name).filter(|value| !value.is_empty());
        let get = |name: &str| given(name).map(|value| value.to_string_lossy().into_owned());
        let mut wrong = |name: &str, value: &str, meant: &str| {
            warnings.push(format!("{name}: ignored: expected {meant}, got {value}"));
        };
        let budget = get("STEEVE_BUDGET").and_then(|value| match value.parse::<Budget>() {
            Ok(budget) => Some(budget),
            Err(_) => {
                wrong("STEEVE_BUDGET", &value, "a time or a number of nodes: 500ms, 2s, 20000nodes");
                None
            }
        });
        let best = GraphStrategy::Best(Best::new(budget.unwrap_or_default()));
        let strategy = match get("STEEVE_STRATEGY").as_deref() {
            Some("ggml") => GraphStrategy::Ggml,
            Some("fast") => GraphStrategy::Fast,
            Some("best") => best,
            None if budget.is_some() => best,
            None => GraphStrategy::Fast,
            Some(value) => {
                wrong("STEEVE_STRATEGY", value, "ggml, fast or best");
                GraphStrategy::Fast
            }
        };
        let reuse_more = match get("STEEVE_REUSE").as_deref() {
            Some("more") => true,
            Some("ggml") | None => false,
            Some(value) => {
                wrong("STEEVE_REUSE", value, "ggml or more");
                false
            }
        };
        let hold = get("STEEVE_HOLD").and_then(|value| match value.parse() {
            Ok(hold) => Some(hold),
            Err(_) => {
                wrong("STEEVE_HOLD", &value, "a number of nodes");
                None
            }
        });
        let unread = match get("STEEVE_UNREAD").as_deref() {
            Some("keep") => Unread::Keep,
            Some("free-inputs") | None => Unread::FreeInputs,
            Some(value) => {
                wrong("STEEVE_UNREAD", value, "keep or free-inputs");
                Unread::FreeInputs
            }
        };
        let mut is_on = |name: &str| match get(name).as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(value) => {
                wrong(name, value, "0 or 1");
                false
            }
        };
        let (log, replay_plans) = (is_on("STEEVE_LOG"), is_on("STEEVE_CHECK"));
        // Any value but 0 switches the drop-in off, however it is spelt.
        let is_off = get("STEEVE_OFF").is_some_and(|value| value != "0");
        let plan_folder = given("STEEVE_PLANS").map(PathBuf::from);
        if plan_folder.is_some() && !matches!(strategy, GraphStrategy::Best(_)) {
            let why = "STEEVE_PLANS: ignored: only plans of STEEVE_STRATEGY=best are kept";
            warnings.push(why.to_owned());
        }
        let record_folder = given("STEEVE_RECORD").map(PathBuf::from);
        let report_file = given("STEEVE_REPORT").map(PathBuf::from);
        let cuda_streams = get("GGML_CUDA_GRAPH_OPT").is_some_and(|value| value != "0");
        (
            Self {
                strategy,
                reuse_more,
                hold,
                unread,
                log,
                replay_plans,
                plan_folder,
                record_folder,
                report_file,
                is_off,
                cuda_streams,
            },
            warnings,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (DropInSettings, Vec<String>) {
        DropInSettings::read(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
    }

    #[test]
    fn silence_means_the_defaults() {
        let (settings, warnings) = read(&[("STEEVE_LOG", ""), ("STEEVE_CHECK", "0")]);
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(settings.strategy, GraphStrategy::Fast);
        assert!(
            !settings.reuse_more
                && !settings.log
                && !settings.replay_plans
                && !settings.is_off
                && settings.hold.is_none()
        );
    }

    #[test]
    fn a_budget_alone_means_best() {
        let (settings, _) = read(&[("STEEVE_BUDGET", "100nodes")]);
        assert_eq!(settings.strategy, GraphStrategy::Best(Best::new(Budget::Nodes(100))));
        let (settings, _) = read(&[("STEEVE_BUDGET", "100nodes"), ("STEEVE_STRATEGY", "ggml")]);
        assert_eq!(settings.strategy, GraphStrategy::Ggml);
    }

    #[test]
    fn nonsense_is_named_and_ignored() {
        let nonsense =
            ["STEEVE_STRATEGY", "STEEVE_REUSE", "STEEVE_HOLD", "STEEVE_UNREAD", "STEEVE_LOG"].map(|name| (name, "-1"));
        let (settings, warnings) = read(&nonsense);
        assert_eq!(settings, read(&[]).0);
        assert_eq!(warnings.len(), 5);
        assert!(warnings[0] == "STEEVE_STRATEGY: ignored: expected ggml, fast or best, got -1", "{warnings:?}");
    }

    #[test]
    fn plans_are_kept_for_best_alone() {
        let (settings, warnings) = read(&[("STEEVE_PLANS", "/tmp/plans"), ("STEEVE_STRATEGY", "best")]);
        assert_eq!((settings.plan_folder, warnings.len()), (Some("/tmp/plans".into()), 0));
        assert_eq!(read(&[("STEEVE_PLANS", "plans"), ("STEEVE_BUDGET", "1s")]).1, Vec::<String>::new());
        for strategy in ["fast", "ggml", ""] {
            let (_, warnings) = read(&[("STEEVE_PLANS", "/tmp/plans"), ("STEEVE_STRATEGY", strategy)]);
            assert!(warnings.len() == 1 && warnings[0].starts_with("STEEVE_PLANS: ignored"), "{warnings:?}");
        }
        assert_eq!(read(&[("STEEVE_PLANS", "")]), read(&[]));
    }

    #[test]
    fn unread_inputs_can_be_kept() {
        assert_eq!(read(&[]).0.unread, Unread::FreeInputs);
        assert_eq!(read(&[("STEEVE_UNREAD", "keep")]).0.unread, Unread::Keep);
    }
}
