//! A text that grows: tokens in, the scores of what comes next out.
//!
//! The graph depends on how many tokens are computed and how many keys they look at, which is rounded up. While these stay, so do
//! the job and whatever was prepared for it: what differs from token to token is in the inputs.

use steeve::prelude::*;
use steeve_models::gguf::{LanguageModel, Step, StepShape};

use crate::Failure;
use crate::model_file::{Devices, LoadedModel};

pub(crate) struct Session {
    model: LanguageModel,
    context: Context,
    bindings: Bindings,
    scheduler: Scheduler,
    past: u64,
    ready: Option<(Step, Job)>,
    /// What weights and caches take, by worker.
    placed: Vec<Bytes>,
    pub(crate) graphs: u64,
}

/// What a device has given: its name, and the bytes of weights and caches, and of compute memory.
pub(crate) type DeviceBytes = (String, Bytes, Bytes);

impl Session {
    /// Reserves memory for the largest graphs, so that no later one allocates any.
    pub(crate) fn new(loaded: LoadedModel, devices: &Devices) -> Result<Self, Failure> {
        let LoadedModel { model, mut context, bindings, bytes: placed } = loaded;
        let mut scheduler = Scheduler::new(devices.gpu.iter().chain([&devices.cpu]).cloned())?;
        let mark = context.mark();
        let mut largest = Vec::new();
        for shape in model.largest_shapes() {
            largest.push(model.step(&mut context, shape)?);
            context.rewind(mark)?;
        }
        scheduler.reserve_all(largest.iter().map(|step| (&step.graph, &bindings)))?;
        Ok(Self { model, context, bindings, scheduler, past: 0, ready: None, placed, graphs: 0 })
    }

    /// Adds tokens to the text, in parts of a batch, and returns the scores of all tokens that could come next.
    pub(crate) fn feed(&mut self, tokens: &[i32]) -> Result<Vec<f32>, Failure> {
        let mut scores = Vec::new();
        for part in tokens.chunks(usize::try_from(self.model.size().batch)?) {
            scores = self.compute(part)?;
        }
        Ok(scores)
    }

    /// Forgets the text. What the caches have of it is written over before it is seen.
    pub(crate) fn restart(&mut self) {
        self.past = 0;
    }

    fn compute(&mut self, tokens: &[i32]) -> Result<Vec<f32>, Failure> {
        let (past, count) = (self.past, tokens.len() as u64);
        let shape = self.model.step_shape(past, count);
        self.prepare(shape)?;
        let Some((step, job)) = &self.ready else { return Err("no graph".into()) };
        job.write(step.tokens, tokens)?;
        let positions = (past..past + count).map(i32::try_from).collect::<Result<Vec<_>, _>>()?;
        job.write(step.positions, &positions)?;
        let seen = self.model.visibility(past, shape)?;
        if let Some((mask, all)) = step.mask.zip(seen.all) {
            job.write(mask, &all)?;
        }
        if let Some((window, (rows, mask))) = step.window.zip(seen.window) {
            job.write(window.rows, &rows)?;
            job.write(window.mask, &mask)?;
        }
        self.scheduler.compute(job)?;
        self.past += count;
        Ok(job.read(step.scores)?)
    }

    /// Builds the graph of this shape, unless it is the last one's.
    fn prepare(&mut self, shape: StepShape) -> Result<(), Failure> {
        if self.ready.as_ref().is_some_and(|(step, _)| step.shape() == shape) {
            return Ok(());
        }
        self.graphs += 1;
        let mark = self.context.mark();
        let step = self.model.step(&mut self.context, shape)?;
        self.context.rewind(mark)?;
        let job = self.scheduler.alloc(&step.graph, &self.bindings)?;
        self.ready = Some((step, job));
        Ok(())
    }

    /// Returns what each device has given.
    pub(crate) fn bytes(&self) -> Result<Vec<DeviceBytes>, Failure> {
        let workers = self.scheduler.workers().zip(&self.placed);
        workers
            .map(|((id, worker), placed)| Ok((worker.name().to_owned(), *placed, self.scheduler.buffer_size(id)?)))
            .collect()
    }
}
