//! Runs several searches at once, on any number of threads, with the result of running them in turn.

use alloc::vec::Vec;

use crate::niche::{NicheOutcome, NicheSearch};
use crate::search_budget::SearchBudget;

/// One restart to run.
pub(crate) struct SearchTask<'a> {
    pub(crate) search: &'a mut NicheSearch,
    pub(crate) limit: u64,
}

/// Runs all tasks and returns the outcomes in their order. The first `leading` tasks search the same capacity: as soon
/// as one of them decides, those after it are not needed, and their nodes are not counted.
pub(crate) fn run_all(
    mut tasks: Vec<SearchTask<'_>>,
    leading: usize,
    threads: usize,
    budget: &mut SearchBudget<'_, '_>,
) -> Vec<NicheOutcome> {
    let share = budget.remaining() / tasks.len().max(1) as u64;
    tasks.iter_mut().for_each(|task| task.limit = task.limit.min(share.max(1)));
    let runs = match threads.min(tasks.len()) {
        0 | 1 => in_turn(tasks, leading, budget),
        #[cfg(feature = "std")]
        threads => threaded::run(tasks, leading, threads, budget),
        #[cfg(not(feature = "std"))]
        _ => in_turn(tasks, leading, budget),
    };
    let mut decided = false;
    let mut answers = Vec::with_capacity(runs.len());
    for (index, (answer, nodes)) in runs.into_iter().enumerate() {
        let needed = index >= leading || !decided;
        decided |= answer != NicheOutcome::Undecided;
        if needed {
            budget.count(nodes);
        }
        answers.push(if needed { answer } else { NicheOutcome::Undecided });
    }
    answers
}

fn in_turn(tasks: Vec<SearchTask<'_>>, leading: usize, budget: &mut SearchBudget<'_, '_>) -> Vec<(NicheOutcome, u64)> {
    let mut runs = Vec::with_capacity(tasks.len());
    let mut decided = false;
    let mut before = 0;
    for (index, task) in tasks.into_iter().enumerate() {
        if decided && index < leading {
            runs.push((NicheOutcome::Undecided, 0));
            continue;
        }
        let (answer, nodes) = task.search.restart(task.limit, &mut |nodes| budget.poll(before + nodes));
        decided |= answer != NicheOutcome::Undecided;
        before += nodes;
        runs.push((answer, nodes));
    }
    runs
}

#[cfg(feature = "std")]
mod threaded {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::{NicheOutcome, SearchBudget, SearchTask, Vec};

    type NumberedRun = (usize, (NicheOutcome, u64));

    /// Runs every `threads`-th task on this thread, which also calls the progress callback, and the rest on others.
    pub(super) fn run(
        tasks: Vec<SearchTask<'_>>,
        leading: usize,
        threads: usize,
        budget: &mut SearchBudget<'_, '_>,
    ) -> Vec<(NicheOutcome, u64)> {
        let mut shares: Vec<Vec<(usize, SearchTask<'_>)>> = Vec::new();
        shares.resize_with(threads, Vec::new);
        for (index, task) in tasks.into_iter().enumerate() {
            shares[index % threads].push((index, task));
        }
        let stop = AtomicBool::new(false);
        // The first leading task with a result: those after it may stop.
        let decided = AtomicUsize::new(usize::MAX);
        let deadline = budget.deadline();
        let work = |share: Vec<(usize, SearchTask<'_>)>, pause: &mut dyn FnMut(u64) -> bool| -> Vec<NumberedRun> {
            let mut done = Vec::with_capacity(share.len());
            for (index, task) in share {
                let settled = || index < leading && decided.load(Ordering::Relaxed) < index;
                let run = task.search.restart(task.limit, &mut |nodes| settled() || pause(nodes));
                if run.0 != NicheOutcome::Undecided && index < leading {
                    decided.fetch_min(index, Ordering::Relaxed);
                }
                done.push((index, run));
            }
            done
        };
        let mut runs: Vec<NumberedRun> = std::thread::scope(|scope| {
            let own = shares.swap_remove(0);
            let others: Vec<_> = shares
                .into_iter()
                .map(|share| {
                    scope.spawn(|| work(share, &mut |_| stop.load(Ordering::Relaxed) || deadline.has_passed()))
                })
                .collect();
            let mut runs = work(own, &mut |nodes| {
                let over = budget.poll(nodes);
                stop.fetch_or(over, Ordering::Relaxed);
                over
            });
            for other in others {
                match other.join() {
                    Ok(done) => runs.extend(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            runs
        });
        runs.sort_by_key(|run| run.0);
        runs.into_iter().map(|(_, run)| run).collect()
    }
}
