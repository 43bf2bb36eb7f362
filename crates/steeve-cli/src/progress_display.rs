//! Progress bars of searches and of lists of files, and Ctrl-C.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use steeve_plan::{Budget, Bytes, SearchProgress, Strategy};

use crate::byte_size::SizeStyle;
use crate::verbosity::{Verbosity, colours_allowed};

/// Set when the user has pressed Ctrl-C.
#[derive(Clone, Debug, Default)]
pub(crate) struct InterruptFlag(Arc<AtomicBool>);

static LISTENING: Once = Once::new();

impl InterruptFlag {
    /// Listens to Ctrl-C from now on, if the strategy is one that can be stopped; the others end by themselves or die at
    /// once. Pressed twice, it always ends the program. If the system refuses, Ctrl-C keeps its usual meaning.
    pub(crate) fn listen(&self, strategy: &Strategy) {
        const KILLED_BY_CTRL_C: i32 = 130;
        if !matches!(strategy, Strategy::Best(_)) {
            return;
        }
        let handler = Arc::clone(&self.0);
        // Only once: the system takes one handler for the whole program.
        LISTENING.call_once(|| {
            let _ = ctrlc::set_handler(move || {
                if handler.swap(true, Ordering::Relaxed) {
                    std::process::exit(KILLED_BY_CTRL_C);
                }
            });
        });
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Watches one search. The bar appears on a terminal after a second and is gone when the search ends.
pub(crate) struct ProgressDisplay<'a> {
    file: &'a str,
    budget: Option<Budget>,
    start: Instant,
    interrupt: &'a InterruptFlag,
    verbosity: Verbosity,
    bar: Option<ProgressBar>,
}

const PATIENCE: Duration = Duration::from_secs(1);

impl<'a> ProgressDisplay<'a> {
    /// Watches a search in `file`, best a short name: the bar has one line.
    pub(crate) fn new(file: &'a str, strategy: &Strategy, interrupt: &'a InterruptFlag, verbosity: Verbosity) -> Self {
        let budget = match strategy {
            Strategy::Best(best) => Some(best.budget),
            _ => None,
        };
        Self { file, budget, start: Instant::now(), interrupt, verbosity, bar: None }
    }

    /// Shows the progress of the search and returns whether to continue, for [`place_watched`](steeve_plan::place_watched).
    pub(crate) fn on_progress(&mut self, progress: &SearchProgress) -> ControlFlow<()> {
        if self.interrupt.is_set() {
            return ControlFlow::Break(());
        }
        if self.start.elapsed() >= PATIENCE && self.verbosity.shows_progress() {
            self.show(progress);
        }
        ControlFlow::Continue(())
    }

    fn show(&mut self, progress: &SearchProgress) {
        let (position, length) = match self.budget {
            Some(Budget::Nodes(nodes)) => (progress.nodes, Some(nodes)),
            Some(Budget::Time(time)) => (millis(self.start.elapsed()), Some(millis(time))),
            _ => (progress.nodes, None),
        };
        let bar = self.bar.get_or_insert_with(|| new_bar(self.file, length));
        bar.set_position(length.map_or(position, |length| position.min(length)));
        let size = |bytes: Bytes| SizeStyle::Human.show(bytes);
        bar.set_message(format!("{} (bound {}), Ctrl-C stops", size(progress.peak), size(progress.at_least)));
    }
}

impl Drop for ProgressDisplay<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(file: &str, length: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    let shape = match (length, colours_allowed()) {
        (Some(_), true) => "{prefix} [{bar:16.cyan}] {percent}% {wide_msg}",
        (Some(_), false) => "{prefix} [{bar:16}] {percent}% {wide_msg}",
        (None, _) => "{prefix} {spinner} {wide_msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(shape) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.with_prefix(file.to_owned())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How many of many files are done. Nothing where there are few, or no terminal.
pub(crate) struct FileProgress(Option<ProgressBar>);

impl FileProgress {
    pub(crate) fn new(files: usize, verbosity: Verbosity) -> Self {
        const MANY: usize = 4;
        let shown = files >= MANY && verbosity.shows_progress();
        Self(shown.then(|| new_bar("files", Some(files as u64))))
    }

    /// Goes on to the next file.
    pub(crate) fn next(&self, name: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(name.to_owned());
            bar.inc(1);
        }
    }

    /// Does something that may write to the terminal itself.
    pub(crate) fn suspended<T>(&self, act: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(act),
            None => act(),
        }
    }
}

impl Drop for FileProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
