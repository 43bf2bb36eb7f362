//! How to place, and what a search tells the caller meanwhile: strategy, budget, threads, progress, Ctrl-C.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use steeve_graph::GraphStrategy;
use steeve_plan::{Best, Budget, Clipped, SearchProgress, Strategy};

use crate::copies::Reduced;
use crate::error::{invalid_argument, type_name, wrong_type};
use crate::numbers::count;
use crate::text::{optional_text, text};

/// What `strategy`, `budget` and `threads` say.
#[derive(Clone, Copy)]
pub(crate) struct SearchSettings {
    name: StrategyName,
    best: Best,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StrategyName {
    BestFit,
    Ggml,
    Fast,
    Best,
}

impl SearchSettings {
    /// Reads the settings. A budget without a strategy means `best`, as nothing else has one.
    pub(crate) fn new(
        py: Python<'_>,
        strategy: Option<&Bound<'_, PyAny>>,
        budget: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let name = match optional_text("strategy", strategy)?.as_deref() {
            None if budget.is_some() => StrategyName::Best,
            None | Some("fast") => StrategyName::Fast,
            Some("best") => StrategyName::Best,
            Some("best-fit") => StrategyName::BestFit,
            Some("ggml") => StrategyName::Ggml,
            Some(found) => {
                let what = format!(
                    "unknown: expected 'fast', 'best', 'best-fit' (blocks) or 'ggml' (graphs), got {:?}",
                    Clipped(found)
                );
                return Err(invalid_argument(py, "strategy", None, what));
            }
        };
        let given = [("budget", budget.is_some()), ("threads", threads.is_some())];
        if let Some((argument, _)) = given.into_iter().find(|(_, is_given)| *is_given && name != StrategyName::Best) {
            return Err(invalid_argument(
                py,
                argument,
                None,
                "only for strategy='best': there is nothing to search for",
            ));
        }
        let threads = threads.map(|threads| count("threads", threads)).transpose()?;
        if threads == Some(0) {
            return Err(invalid_argument(py, "threads", None, "out of range: expected at least 1, got 0"));
        }
        let budget = budget.map(read_budget).transpose()?.unwrap_or_default();
        Ok(Self { name, best: Best::new(budget).with_threads(threads.unwrap_or(1)) })
    }

    /// Returns the strategy for blocks.
    pub(crate) fn for_blocks(self, py: Python<'_>) -> PyResult<Strategy> {
        match self.name {
            StrategyName::BestFit => Ok(Strategy::BestFit),
            StrategyName::Fast => Ok(Strategy::Fast),
            StrategyName::Best => Ok(Strategy::Best(self.best)),
            StrategyName::Ggml => {
                Err(invalid_argument(py, "strategy", None, "'ggml' is for graphs: expected 'best-fit'"))
            }
        }
    }

    /// Returns the strategy for graphs.
    pub(crate) fn for_graph(self, py: Python<'_>) -> PyResult<GraphStrategy> {
        match self.name {
            StrategyName::Ggml => Ok(GraphStrategy::Ggml),
            StrategyName::Fast => Ok(GraphStrategy::Fast),
            StrategyName::Best => Ok(GraphStrategy::Best(self.best)),
            StrategyName::BestFit => {
                Err(invalid_argument(py, "strategy", None, "'best-fit' is for blocks: expected 'ggml'"))
            }
        }
    }
}

/// Reads a budget: a text such as `500ms` or `20000nodes`, a number of seconds, or a `timedelta`.
fn read_budget(value: &Bound<'_, PyAny>) -> PyResult<Budget> {
    let py = value.py();
    if value.is_instance_of::<PyString>() {
        return text("budget", value)?.parse().map_err(|error: steeve_plan::BudgetError| {
            let message = error.to_string();
            let what = message.strip_prefix("budget: ").unwrap_or(&message);
            invalid_argument(py, "budget", None, what)
        });
    }
    if let Ok(time) = value.extract::<Duration>() {
        return Ok(Budget::Time(time));
    }
    let seconds = if value.is_instance_of::<PyBool>() { None } else { value.extract::<f64>().ok() };
    let Some(seconds) = seconds else {
        return Err(wrong_type("budget", None, "seconds, a timedelta, or text such as '500ms' or '20000nodes'", value));
    };
    Duration::try_from_secs_f64(seconds).map(Budget::Time).map_err(|_| {
        invalid_argument(py, "budget", None, format!("out of range: expected seconds from 0, got {seconds}"))
    })
}

/// How far a search is.
#[pyclass(frozen, module = "steeve", name = "Progress")]
pub(crate) struct Progress {
    /// The nodes of the search tree visited so far.
    #[pyo3(get)]
    pub(crate) nodes: u64,
    /// The smallest peak so far.
    #[pyo3(get)]
    pub(crate) peak: u64,
    /// No plan is smaller than this.
    #[pyo3(get)]
    pub(crate) bound: u64,
    /// The seconds since the search began.
    #[pyo3(get)]
    pub(crate) seconds: f64,
}

#[pymethods]
impl Progress {
    fn __repr__(&self) -> String {
        let Self { nodes, peak, bound, seconds } = self;
        format!("Progress(nodes={nodes}, peak={peak}, bound={bound}, seconds={seconds:.1})")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.reduce(py)
    }
}

/// Watches a search for the caller: calls `progress`, and ends the search on Ctrl-C.
pub(crate) struct SearchWatcher {
    progress: Option<Py<PyAny>>,
    /// Whether `progress` is our own line on stderr, which has to be ended.
    is_line: bool,
    start: Instant,
    last: Option<Instant>,
    /// What ended the search: Ctrl-C, or an exception of the caller's function.
    error: Option<PyErr>,
}

/// How often the interpreter is asked for signals, and the caller is told.
const INTERVAL: Duration = Duration::from_millis(50);

impl SearchWatcher {
    /// Takes the caller's `progress`: nothing, `True` for a line on stderr, or a function.
    pub(crate) fn new(py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let (progress, is_line) = match progress {
            None => (None, false),
            Some(it) if it.is_none() => (None, false),
            Some(it) if it.is_callable() => (Some(it.clone().unbind()), false),
            Some(it) => match it.extract::<bool>() {
                Ok(false) => (None, false),
                Ok(true) => (Some(py.import("steeve._progress")?.getattr("ProgressLine")?.call0()?.unbind()), true),
                Err(_) => return Err(wrong_type("progress", None, "a function, True or None", it)),
            },
        };
        Ok(Self { progress, is_line, start: Instant::now(), last: None, error: None })
    }

    /// Is told how the search goes on, from the thread that asked for it and without the interpreter's lock.
    pub(crate) fn watch(&mut self, now: &SearchProgress) -> ControlFlow<()> {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return ControlFlow::Continue(());
        }
        self.last = Some(Instant::now());
        Python::attach(|py| match self.tell(py, now) {
            Ok(flow) => flow,
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        })
    }

    fn tell(&self, py: Python<'_>, now: &SearchProgress) -> PyResult<ControlFlow<()>> {
        py.check_signals()?;
        let Some(progress) = &self.progress else { return Ok(ControlFlow::Continue(())) };
        let seconds = self.start.elapsed().as_secs_f64();
        let now = Progress { nodes: now.nodes, peak: now.peak.0, bound: now.at_least.0, seconds };
        let answer = progress.bind(py).call1((now,))?;
        if answer.is_none() {
            return Ok(ControlFlow::Continue(()));
        }
        match answer.extract::<bool>() {
            Ok(true) => Ok(ControlFlow::Continue(())),
            Ok(false) => Ok(ControlFlow::Break(())),
            Err(_) => {
                let what = format!("progress: wrong result: expected None, True or False, got {}", type_name(&answer));
                Err(pyo3::exceptions::PyTypeError::new_err(what))
            }
        }
    }

    /// Ends the line on stderr. Fails with what has ended the search early, if it was an exception.
    pub(crate) fn finish(self, py: Python<'_>) -> PyResult<f64> {
        let seconds = self.start.elapsed().as_secs_f64();
        if let Some(line) = self.progress.filter(|_| self.is_line) {
            line.bind(py).call_method0("finish")?;
        }
        self.error.map_or(Ok(seconds), Err)
    }
}
