//! A vector clock over the streams, so that no stream waits for what it knows to be done.

use std::collections::BTreeMap;
use std::sync::Arc;

use steeve_device::{Backend, Event};

use crate::sched::SchedError;
use crate::sched::hazards::{HOST, StreamWait};

/// The runs of an execution plan since all streams were idle. Actions of all runs are numbered in the order of the
/// host's calls, from 1.
#[derive(Debug)]
pub(crate) struct VectorClock {
    run: usize,
    actions: usize,
    /// For each stream, the last action of each stream that it knows to be done before its next one.
    known: Vec<Vec<usize>>,
    events: BTreeMap<usize, RecordedEvent>,
}

/// An event after an action, and what its stream knew then.
#[derive(Debug)]
struct RecordedEvent {
    event: Arc<dyn Event>,
    stream: usize,
    known: Vec<usize>,
}

impl VectorClock {
    pub(crate) fn new(streams: usize, actions: usize) -> Self {
        Self { run: 0, actions, known: vec![vec![0; streams]; streams], events: BTreeMap::new() }
    }

    /// Returns the number of the next run.
    pub(crate) fn run(&self) -> usize {
        self.run
    }

    fn number(&self, run: usize, action: usize) -> usize {
        run * self.actions + action + 1
    }

    /// Makes a stream wait for an action, unless it knows that to be done. Without a backend the host waits.
    pub(crate) fn wait(
        &mut self,
        stream: usize,
        wait: StreamWait,
        backend: Option<&dyn Backend>,
    ) -> Result<(), SchedError> {
        // Actions before the first run are done.
        let Some(run) = self.run.checked_sub(wait.back) else { return Ok(()) };
        let number = self.number(run, wait.action);
        let Some(recorded) = self.events.get(&number) else {
            unreachable!("whoever is waited for has recorded an event, and those of the last runs are kept");
        };
        if self.known[stream][recorded.stream] >= number {
            return Ok(());
        }
        match backend {
            Some(backend) => backend.wait(&*recorded.event)?,
            None => recorded.event.synchronise()?,
        }
        join(&mut self.known[stream], &recorded.known);
        Ok(())
    }

    /// Records that an action has been enqueued, or is done if it is the host's. Records an event if a backend is
    /// given.
    pub(crate) fn done(
        &mut self,
        stream: usize,
        action: usize,
        backend: Option<&dyn Backend>,
    ) -> Result<(), SchedError> {
        let number = self.number(self.run, action);
        if stream != HOST {
            // The action comes after all that the host has waited for.
            let host = self.known[HOST].clone();
            join(&mut self.known[stream], &host);
        }
        self.known[stream][stream] = number;
        if let Some(backend) = backend {
            let recorded = RecordedEvent { event: backend.record()?, stream, known: self.known[stream].clone() };
            self.events.insert(number, recorded);
        }
        Ok(())
    }

    /// Starts the next run. Events from before the last `pipeline_depth` runs are dropped.
    pub(crate) fn next_run(&mut self, pipeline_depth: usize) {
        self.run += 1;
        if let Some(oldest) = self.run.checked_sub(pipeline_depth) {
            self.events = self.events.split_off(&self.number(oldest, 0));
        }
    }
}

fn join(known: &mut [usize], other: &[usize]) {
    for (known, other) in known.iter_mut().zip(other) {
        *known = (*known).max(*other);
    }
}
