//! The steps in which TensorFlow Lite Micro runs a model, with the subgraphs that operators call. O(model).
//!
//! A subgraph runs where it is called: its inputs are there at one step, each of its operators is a step, and its outputs are
//! needed until it ends. What the calling operator reads and computes lives through all of that. The second call of a
//! subgraph is one step, through which all of its tensors live: bytes that live from the first call to it are never free.
//!
//! ```text
//!   step      0       1        2          3       4           5         6
//!             inputs  CONV_2D  IF, start  then:0  end, then   else ...  IF, end
//!   reads             input               ...     outputs               inputs and outputs of IF
//!   computes          a        out of IF
//! ```
//!
//! Invariant: the live ranges cover every call of the program, whatever the version of the runtime makes of calls
//! ([`TflmLifetimes`](super::lifetimes::TflmLifetimes)).

use std::collections::BTreeSet;

use super::error::TfliteError;
use super::model::{Model, Operator, TensorIndex};
use super::sizes::{FlatIndex, TensorKind};

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// A called subgraph gets its inputs.
    Start,
    /// An operator runs, or starts to call.
    Operator(usize),
    /// A called subgraph has run.
    End,
    /// The calls of an operator have ended.
    CallEnd(usize),
    /// A subgraph is called that has been called before.
    Again,
}

/// One step: what it needs, and what is there from it on.
#[derive(Clone, Debug)]
pub(crate) struct ProgramStep {
    pub(crate) subgraph: usize,
    pub(crate) kind: StepKind,
    /// Planned tensors that get their bytes here.
    pub(crate) results: Vec<TensorIndex>,
    /// Tensors that are read, or written again.
    pub(crate) reads: Vec<TensorIndex>,
}

impl ProgramStep {
    /// Returns the operator that runs, or starts to call; `None` where no operator starts.
    pub(crate) fn operator<'m>(&self, model: &'m Model) -> Option<&'m Operator> {
        let StepKind::Operator(index) = self.kind else { return None };
        model.subgraphs.get(self.subgraph)?.operators.get(index)
    }
}

/// The steps of a model.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) steps: Vec<ProgramStep>,
    /// Planned tensors that are there before the first step.
    pub(crate) inputs: Vec<TensorIndex>,
    /// Planned tensors that are needed after the last one.
    pub(crate) outputs: Vec<TensorIndex>,
    /// By subgraph: the subgraphs it calls, once for each call.
    pub(crate) calls: Vec<Vec<usize>>,
    /// The subgraphs that run, each behind all that it calls.
    pub(crate) finished: Vec<usize>,
}

/// A subgraph that is being walked through.
struct Frame {
    subgraph: usize,
    operator: usize,
    /// The calls of that operator which have been made; `None` if it has not started.
    called: Option<usize>,
}

struct Walk<'m> {
    model: &'m Model,
    kinds: &'m [TensorKind],
    flat: FlatIndex,
    created: Vec<bool>,
    visited: Vec<bool>,
    active: Vec<bool>,
    /// By subgraph: the last step at which it is called again.
    again: Vec<Option<usize>>,
    program: Program,
}

impl Program {
    /// Walks through a model.
    ///
    /// # Errors
    ///
    /// If a subgraph calls itself.
    pub(crate) fn new(model: &Model, kinds: &[TensorKind]) -> Result<Self, TfliteError> {
        let (flat, count) = (FlatIndex::new(model), model.subgraphs.len());
        let program = Self {
            steps: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            calls: vec![Vec::new(); count],
            finished: Vec::new(),
        };
        let created = vec![false; flat.len()];
        let (visited, active, again) = (vec![false; count], vec![false; count], vec![None; count]);
        let mut walk = Walk { model, kinds, flat, created, visited, active, again, program };
        walk.start();
        walk.run()?;
        walk.call_again();
        let outputs = model.subgraphs[0].outputs.iter().map(|tensor| TensorIndex::new(0, *tensor));
        let mut outputs: Vec<_> = outputs.filter(|output| walk.is_planned(*output)).collect();
        outputs.sort_unstable();
        outputs.dedup();
        walk.program.outputs = outputs;
        Ok(walk.program)
    }
}

impl<'m> Walk<'m> {
    fn is_planned(&self, tensor: TensorIndex) -> bool {
        matches!(self.kinds[self.flat.of(tensor)], TensorKind::Planned(_))
    }

    /// Gives a tensor its bytes, unless it has them already or needs none.
    fn create(&mut self, tensor: TensorIndex) -> bool {
        let flat = self.flat.of(tensor);
        self.is_planned(tensor) && !std::mem::replace(&mut self.created[flat], true)
    }

    /// Returns the tensors that a step reads. One that nothing has computed has been there from the start.
    fn read(&mut self, tensors: impl Iterator<Item = TensorIndex>) -> Vec<TensorIndex> {
        let tensors: Vec<_> = tensors.collect();
        for tensor in &tensors {
            if self.create(*tensor) {
                self.program.inputs.push(*tensor);
            }
        }
        tensors
    }

    /// Splits what a step computes into tensors that get their bytes there, and those that have them already. It may name a tensor
    /// more than once: a loop returns what it does not change.
    fn write(&mut self, tensors: impl Iterator<Item = TensorIndex>) -> (Vec<TensorIndex>, Vec<TensorIndex>) {
        let mut tensors: Vec<_> = tensors.filter(|tensor| self.is_planned(*tensor)).collect();
        let mut seen = BTreeSet::new();
        tensors.retain(|tensor| seen.insert(*tensor));
        tensors.into_iter().partition(|tensor| self.create(*tensor))
    }

    fn push(&mut self, subgraph: usize, kind: StepKind, results: Vec<TensorIndex>, reads: Vec<TensorIndex>) {
        self.program.steps.push(ProgramStep { subgraph, kind, results, reads });
    }

    /// Enters the first subgraph.
    fn start(&mut self) {
        let inputs = self.given(0);
        self.program.inputs = self.write(inputs.into_iter()).0;
    }

    /// Returns the tensors of a subgraph that are there before its first operator: inputs, and outputs that nothing computes.
    fn given(&self, subgraph: usize) -> Vec<TensorIndex> {
        let it = &self.model.subgraphs[subgraph];
        let mut computed = vec![false; it.tensors.len()];
        it.operators.iter().flat_map(|op| &op.outputs).for_each(|output| computed[*output] = true);
        let outputs = it.outputs.iter().filter(|output| !computed[**output]);
        it.inputs.iter().chain(outputs).map(|tensor| TensorIndex::new(subgraph, *tensor)).collect()
    }

    fn run(&mut self) -> Result<(), TfliteError> {
        let mut stack = vec![Frame { subgraph: 0, operator: 0, called: None }];
        (self.visited[0], self.active[0]) = (true, true);
        while let Some(Frame { subgraph, operator, called }) = stack.last_mut() {
            let (model, now, index): (&'m Model, _, _) = (self.model, *subgraph, *operator);
            let Some(op) = model.subgraphs[now].operators.get(index) else {
                self.leave(now);
                stack.pop();
                continue;
            };
            let done = called.unwrap_or(0);
            match model.called(op).nth(done) {
                Some(next) => {
                    *called = Some(done + 1);
                    if done == 0 {
                        self.start_operator(now, index, op);
                    }
                    if let Some(frame) = self.enter(now, next, &stack)? {
                        stack.push(frame);
                    }
                }
                None => {
                    (*operator, *called) = (index + 1, None);
                    match done {
                        0 => self.start_operator(now, index, op),
                        _ => self.end_calls(now, index, op),
                    }
                }
            }
        }
        Ok(())
    }

    fn start_operator(&mut self, subgraph: usize, index: usize, op: &Operator) {
        let tensor = |tensor: &usize| TensorIndex::new(subgraph, *tensor);
        let mut reads = self.read(op.inputs.iter().flatten().map(tensor));
        let (results, again) = self.write(op.outputs.iter().chain(&op.intermediates).map(tensor));
        reads.extend(again);
        self.push(subgraph, StepKind::Operator(index), results, reads);
    }

    fn end_calls(&mut self, subgraph: usize, index: usize, op: &Operator) {
        let tensors = op.inputs.iter().flatten().chain(&op.outputs);
        let reads = self.read(tensors.map(|tensor| TensorIndex::new(subgraph, *tensor)));
        self.push(subgraph, StepKind::CallEnd(index), Vec::new(), reads);
    }

    /// Enters a subgraph, or notes that it is called again.
    fn enter(&mut self, caller: usize, callee: i32, stack: &[Frame]) -> Result<Option<Frame>, TfliteError> {
        // The reader has checked it.
        let callee = usize::try_from(callee).unwrap_or(0);
        self.program.calls[caller].push(callee);
        if self.active[callee] {
            let from = stack.iter().position(|frame| frame.subgraph == callee).unwrap_or(0);
            let path = stack[from..].iter().map(|frame| frame.subgraph).chain([callee]);
            return Err(TfliteError::Recursion { path: path.map(|subgraph| self.called(subgraph)).collect() });
        }
        if std::mem::replace(&mut self.visited[callee], true) {
            self.again[callee] = Some(self.program.steps.len());
            self.push(callee, StepKind::Again, Vec::new(), Vec::new());
            return Ok(None);
        }
        self.active[callee] = true;
        let given = self.given(callee);
        let (results, reads) = self.write(given.into_iter());
        self.push(callee, StepKind::Start, results, reads);
        Ok(Some(Frame { subgraph: callee, operator: 0, called: None }))
    }

    fn called(&self, subgraph: usize) -> String {
        match self.model.subgraphs[subgraph].name.as_str() {
            "" => subgraph.to_string(),
            name => format!("{subgraph} ({name})"),
        }
    }

    fn leave(&mut self, subgraph: usize) {
        self.active[subgraph] = false;
        self.program.finished.push(subgraph);
        if subgraph != 0 {
            let outputs = self.model.subgraphs[subgraph].outputs.iter();
            let reads = self.read(outputs.map(|tensor| TensorIndex::new(subgraph, *tensor)));
            self.push(subgraph, StepKind::End, Vec::new(), reads);
        }
    }

    /// Lets the tensors of subgraphs that are called again live until the last call, also if a caller is called again.
    fn call_again(&mut self) {
        for caller in self.program.finished.iter().rev() {
            for callee in &self.program.calls[*caller] {
                self.again[*callee] = self.again[*callee].max(self.again[*caller]);
            }
        }
        for (subgraph, step) in self.again.iter().enumerate() {
            let Some(step) = *step else { continue };
            let tensors =
                (0..self.model.subgraphs[subgraph].tensors.len()).map(|tensor| TensorIndex::new(subgraph, tensor));
            let created = tensors.filter(|tensor| self.created[self.flat.of(*tensor)]);
            self.program.steps[step].reads.extend(created);
        }
    }
}
