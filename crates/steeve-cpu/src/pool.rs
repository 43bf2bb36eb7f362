//! Threads that are spawned once and share units of work.
//!
//! Units are taken from one counter, so a slow thread delays no other; what a unit computes does not depend on its
//! thread. Between two jobs a thread spins for a moment, because the next node comes soon, and then sleeps. One that
//! wakes too late takes no part in the job, which does not wait for it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};

use crate::kernel::ThreadScratch;

/// A pool of threads, the caller's among them.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<PoolState>,
    workers: Vec<JoinHandle<()>>,
    /// The scratch memory of the caller's thread. The thread that has locked it is the only one that submits jobs.
    scratch: Mutex<ThreadScratch>,
    /// The thread that has locked `scratch`.
    holder: Mutex<Option<ThreadId>>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// The number of jobs so far; changes when there is a new one.
    number: AtomicUsize,
    board: Mutex<JobBoard>,
    wake: Condvar,
    /// The first unit that no thread has taken yet.
    next: AtomicUsize,
    /// Workers that have begun the current job and not finished it. Rises only while the board is locked.
    busy: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct JobBoard {
    /// The current job, for as long as workers may begin it.
    job: Option<Job>,
    /// Workers that must be woken.
    sleeping: usize,
}

/// A job. The closure is borrowed by [`WorkerGroup::run`], which returns only after all workers that have begun it.
#[derive(Clone, Copy, Debug)]
struct Job {
    units: usize,
    work: *const (dyn Fn(usize, &mut ThreadScratch) + Sync),
}

// SAFETY: the closure is `Sync`, and it outlives the job.
unsafe impl Send for Job {}

/// More threads than any machine has cores.
const MOST: usize = 1024;

/// The number of times that a thread looks for work before it sleeps.
const SPINS: usize = 2000;

impl Pool {
    /// Spawns a pool of `threads` threads, at least one; the caller's is one of them.
    pub(crate) fn new(threads: usize) -> Self {
        let shared = Arc::new(PoolState::default());
        let worker = |index: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("steeve-{index}")).spawn(move || shared.serve()).ok()
        };
        // More threads than a machine could have are of no use. One that can't be spawned is left out, and the others
        // do its work.
        let workers = (1..threads.min(MOST)).map_while(worker).collect();
        Self { shared, workers, scratch: Mutex::default(), holder: Mutex::default() }
    }

    /// Returns the number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Locks the pool for the calling thread, which may then submit jobs. Returns `None` for a thread that has locked
    /// it already and would wait for itself.
    pub(crate) fn enter(&self) -> Option<WorkerGroup<'_>> {
        let this = std::thread::current().id();
        if *self.holder() == Some(this) {
            return None;
        }
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        *self.holder() = Some(this);
        Some(WorkerGroup { pool: self, scratch })
    }

    fn holder(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let _board = self.shared.lock();
            self.shared.stop.store(true, Ordering::Release);
        }
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // Its panic has been reported already.
            let _ = worker.join();
        }
    }
}

/// The right to submit jobs, one at a time.
pub(crate) struct WorkerGroup<'a> {
    pool: &'a Pool,
    scratch: MutexGuard<'a, ThreadScratch>,
}

impl Drop for WorkerGroup<'_> {
    fn drop(&mut self) {
        *self.pool.holder() = None;
    }
}

impl WorkerGroup<'_> {
    /// Does all units, here and on the other threads, and returns when the last is done.
    ///
    /// # Panics
    /// If a unit panics, after all are done.
    pub(crate) fn run(&mut self, units: usize, work: &(dyn Fn(usize, &mut ThreadScratch) + Sync)) {
        let shared = &self.pool.shared;
        if units <= 1 || self.pool.workers.is_empty() {
            (0..units).for_each(|unit| work(unit, &mut self.scratch));
            return;
        }
        // SAFETY: the lifetime is forgotten, and `FinishJob` waits until no worker can have the closure any more, also
        // if a unit panics here.
        let work: *const (dyn Fn(usize, &mut ThreadScratch) + Sync) =
            unsafe { std::mem::transmute::<*const (dyn Fn(usize, &mut ThreadScratch) + Sync + '_), _>(work) };
        let sleeping = {
            let mut board = shared.lock();
            board.job = Some(Job { units, work });
            shared.next.store(0, Ordering::Relaxed);
            shared.panicked.store(false, Ordering::Relaxed);
            shared.number.fetch_add(1, Ordering::Release);
            board.sleeping
        };
        let finish = FinishJob(shared);
        (1..units).take(sleeping).for_each(|_| shared.wake.notify_one());
        shared.take_units(Job { units, work }, &mut self.scratch);
        drop(finish);
        assert!(!shared.panicked.load(Ordering::Relaxed), "a kernel panicked on another thread");
    }

    pub(crate) fn scratch(&mut self) -> &mut ThreadScratch {
        &mut self.scratch
    }
}

/// Keeps workers from beginning the current job, and waits for those that have begun it.
struct FinishJob<'a>(&'a PoolState);

impl Drop for FinishJob<'_> {
    fn drop(&mut self) {
        self.0.lock().job = None;
        let mut spins = 0;
        while self.0.busy.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl PoolState {
    fn lock(&self) -> MutexGuard<'_, JobBoard> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_units(&self, job: Job, scratch: &mut ThreadScratch) {
        // SAFETY: `WorkerGroup::run` keeps the closure until every worker is done.
        let work = unsafe { &*job.work };
        loop {
            let unit = self.next.fetch_add(1, Ordering::Relaxed);
            if unit >= job.units {
                return;
            }
            work(unit, scratch);
        }
    }

    /// Does the jobs of a worker until the pool is dropped.
    fn serve(&self) {
        let mut scratch = ThreadScratch::default();
        let mut seen = 0;
        while let Some(job) = self.wait(&mut seen) {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.take_units(job, &mut scratch)));
            if done.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for the next job, and begins it; `None` when the pool is dropped.
    fn wait(&self, seen: &mut usize) -> Option<Job> {
        loop {
            for _ in 0..SPINS {
                if self.number.load(Ordering::Acquire) != *seen || self.stop.load(Ordering::Acquire) {
                    break;
                }
                std::hint::spin_loop();
            }
            let mut board = self.lock();
            while self.number.load(Ordering::Acquire) == *seen && !self.stop.load(Ordering::Acquire) {
                board.sleeping += 1;
                board = self.wake.wait(board).unwrap_or_else(PoisonError::into_inner);
                board.sleeping -= 1;
            }
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            *seen = self.number.load(Ordering::Acquire);
            if let Some(job) = board.job {
                self.busy.fetch_add(1, Ordering::Relaxed);
                return Some(job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_done_once_whatever_the_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            let mut group = pool.enter().unwrap();
            for units in [0, 1, 2, 7, 1000] {
                let counts: Vec<AtomicUsize> = (0..units).map(|_| AtomicUsize::new(0)).collect();
                group.run(units, &|unit, _| {
                    counts[unit].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    counts.iter().all(|count| count.load(Ordering::Relaxed) == 1),
                    "{threads} threads, {units} units"
                );
            }
        }
    }

    #[test]
    fn a_panic_is_told_when_all_are_done_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.enter().unwrap().run(100, &|unit, _| assert!(unit != 50, "unit 50"));
        }));
        assert!(failed.is_err());
        let done = AtomicUsize::new(0);
        pool.enter().unwrap().run(100, &|_, _| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 100);
    }
}
