//! Several walks of the search at once, on as many threads as wanted, with the result of doing them in turn.

use alloc::vec::Vec;

use crate::meter::Meter;
use crate::niche::{Answer, NicheSearch};

/// One walk to do.
pub(crate) struct Task<'a> {
    pub(crate) walker: &'a mut NicheSearch,
    pub(crate) limit: u64,
}

/// The answers in the order of the tasks. The first `leading` tasks look for the same thing: as soon as one of them
/// knows, those after it are not needed, and what they cost is not counted.
pub(crate) fn walk_all(
    mut tasks: Vec<Task<'_>>,
    leading: usize,
    threads: usize,
    meter: &mut Meter<'_, '_>,
) -> Vec<Answer> {
    let share = meter.left() / tasks.len().max(1) as u64;
    tasks.iter_mut().for_each(|task| task.limit = task.limit.min(share.max(1)));
    let walks = match threads.min(tasks.len()) {
        0 | 1 => in_turn(tasks, leading, meter),
        #[cfg(feature = "std")]
        threads => together::walk(tasks, leading, threads, meter),
        #[cfg(not(feature = "std"))]
        _ => in_turn(tasks, leading, meter),
    };
    let mut decided = false;
    let mut answers = Vec::with_capacity(walks.len());
    for (index, (answer, nodes)) in walks.into_iter().enumerate() {
        let needed = index >= leading || !decided;
        decided |= answer != Answer::Open;
        if needed {
            meter.count(nodes);
        }
        answers.push(if needed { answer } else { Answer::Open });
    }
    answers
}

fn in_turn(tasks: Vec<Task<'_>>, leading: usize, meter: &mut Meter<'_, '_>) -> Vec<(Answer, u64)> {
    let mut walks = Vec::with_capacity(tasks.len());
    let mut decided = false;
    let mut before = 0;
    for (index, task) in tasks.into_iter().enumerate() {
        if decided && index < leading {
            walks.push((Answer::Open, 0));
            continue;
        }
        let (answer, nodes) = task.walker.walk(task.limit, &mut |nodes| meter.tell(before + nodes));
        decided |= answer != Answer::Open;
        before += nodes;
        walks.push((answer, nodes));
    }
    walks
}

#[cfg(feature = "std")]
mod together {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::{Answer, Meter, Task, Vec};

    type Walk = (usize, (Answer, u64));

    /// This thread does every `threads`-th task and talks to the watcher; the others do the rest.
    pub(super) fn walk(
        tasks: Vec<Task<'_>>,
        leading: usize,
        threads: usize,
        meter: &mut Meter<'_, '_>,
    ) -> Vec<(Answer, u64)> {
        let mut hands: Vec<Vec<(usize, Task<'_>)>> = Vec::new();
        hands.resize_with(threads, Vec::new);
        for (index, task) in tasks.into_iter().enumerate() {
            hands[index % threads].push((index, task));
        }
        let stop = AtomicBool::new(false);
        // The first leading task that knows its answer: those after it may stop.
        let decided = AtomicUsize::new(usize::MAX);
        let deadline = meter.deadline();
        let work = |hand: Vec<(usize, Task<'_>)>, pause: &mut dyn FnMut(u64) -> bool| -> Vec<Walk> {
            let mut done = Vec::with_capacity(hand.len());
            for (index, task) in hand {
                let settled = || index < leading && decided.load(Ordering::Relaxed) < index;
                let walk = task.walker.walk(task.limit, &mut |nodes| settled() || pause(nodes));
                if walk.0 != Answer::Open && index < leading {
                    decided.fetch_min(index, Ordering::Relaxed);
                }
                done.push((index, walk));
            }
            done
        };
        let mut walks: Vec<Walk> = std::thread::scope(|scope| {
            let own = hands.swap_remove(0);
            let others: Vec<_> = hands
                .into_iter()
                .map(|hand| scope.spawn(|| work(hand, &mut |_| stop.load(Ordering::Relaxed) || deadline.has_passed())))
                .collect();
            let mut walks = work(own, &mut |nodes| {
                let over = meter.tell(nodes);
                stop.fetch_or(over, Ordering::Relaxed);
                over
            });
            for other in others {
                match other.join() {
                    Ok(done) => walks.extend(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            walks
        });
        walks.sort_by_key(|walk| walk.0);
        walks.into_iter().map(|(_, walk)| walk).collect()
    }
}
