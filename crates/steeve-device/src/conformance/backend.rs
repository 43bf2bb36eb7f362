//! The laws of a backend.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

use steeve_graph::{Bytes, Context, DataType, Graph, GraphError, Layout, Offset, Op, Tensor, TensorId};

use super::bound_graph::{BoundGraph, Contents, TensorPlaces};
use super::in_place::{PREPARES_SUPPORTED, check_operation};
use super::memory::suite_fault;
use super::op_case::LeafValues;
use super::op_cases::{TYPES, operations};
use super::random::Random;
use super::report::{Findings, LawAbort, Report};
use crate::{Backend, DeviceError, Event, Finished, SharedBuffer, Usage};

/// Checks all laws of a backend: how nodes run, and the in-place table on every operation that it supports.
///
/// An operation that it does not support is skipped, and the report says so; so are laws about several nodes, if it supports
/// none of `scale`, `sqr`, `add` and `mul`. What it says it [supports](Backend::supports), it must also prepare and run.
///
/// ```
/// use steeve_device::conformance::check_backend;
/// use steeve_device::{Device, DeviceError, NullDevice};
/// fn conforms(device: &dyn Device) -> Result<(), DeviceError> {
///     check_backend(&*device.backend()?).assert();
///     Ok(())
/// }
/// assert_eq!(conforms(&NullDevice::new("plan")).unwrap_err().to_string(), "plan: this device computes nothing");
/// ```
pub fn check_backend(backend: &dyn Backend) -> Report {
    let mut report = Report::new(format!("backend {}", backend.name()));
    report.check("it has a name", |findings| {
        findings.expect(!backend.name().trim().is_empty(), || format!("it is called {:?}", backend.name()));
        Ok(())
    });
    report.check("what is written can be read and copied", |findings| transfers(backend, findings));
    report.check("an unknown operation is refused by name", |findings| unknown(backend, findings));
    for (law, act) in LAWS {
        report.check(law, |findings| act(backend, &chain(backend)?, findings));
    }
    in_place(backend, &mut report);
    report
}

fn in_place(backend: &dyn Backend, report: &mut Report) {
    let (mut ran, mut contradictions) = (0, Findings::default());
    for op in operations() {
        let title = Context::new().tensors().op_title(op).to_ascii_lowercase();
        for dtype in TYPES {
            let found = check_operation(backend, op, dtype, &title, report);
            ran += found.ran;
            found.contradictions.into_iter().for_each(|what| contradictions.report_violation(what));
        }
    }
    report.record(PREPARES_SUPPORTED, contradictions, Ok(()));
    report.check("it runs an operation of the in-place table", |_| match ran {
        0 => Err(LawAbort::Skip(String::from("it supports none of them"))),
        _ => Ok(()),
    });
}

type Law = (&'static str, fn(&dyn Backend, &NodeChain, &mut Findings) -> Result<(), LawAbort>);

const LAWS: &[Law] = &[
    ("nodes run in order", order),
    ("some of the nodes can run alone", alone),
    ("what runs twice gives the same twice", twice),
    ("nodes read what is there when they run", anew),
    ("no nodes are nodes too", none),
    ("events happen, and can be waited for", events),
    ("a tensor without memory is an error that names it", unplaced),
    ("no run uses a buffer that is borrowed", in_use),
    ("no run uses a buffer that was released", released),
];

fn transfers(backend: &dyn Backend, findings: &mut Findings) -> Result<(), LawAbort> {
    let (memory, size) = (backend.buffer_type(), 301);
    if memory.max_size().is_some_and(|max| max.0 < size) {
        return Err(LawAbort::Skip(format!("no buffer of {} has {size} bytes", memory.name())));
    }
    let make = || SharedBuffer::allocate(&memory, Bytes(size), Usage::Compute);
    let (one, two) = (make()?, make()?);
    let sent = Random::new(1).bytes(size as usize);
    let mut from = sent.clone();
    backend.write(&one, Offset(0), &from)?;
    // What was passed to the write has been read.
    from.fill(0);
    backend.copy((&two, Offset(0)), (&one, Offset(0)), Bytes(size))?;
    backend.copy((&two, Offset(3)), (&one, Offset(8)), Bytes(77))?;
    backend.write(&one, Offset(5), &[1, 2, 3])?;
    let mut wanted = [sent.clone(), sent];
    wanted[0][5..8].copy_from_slice(&[1, 2, 3]);
    wanted[1].copy_within(8..85, 3);
    for (index, (buffer, wanted)) in [one, two].iter().zip(&wanted).enumerate() {
        let mut seen = vec![0; wanted.len()];
        backend.read(buffer, Offset(0), &mut seen)?;
        let differ = (0..seen.len()).find(|at| seen[*at] != wanted[*at]);
        findings.expect(differ.is_none(), || format!("buffer {index} differs at byte {}", differ.unwrap_or(0)));
    }
    let small = make()?;
    let end = Offset(small.size().0);
    let beyond = backend.write(&small, end, &[1]).and_then(|()| backend.synchronise());
    findings.expect(beyond.is_err(), || String::from("a write behind the end was accepted"));
    Ok(())
}

fn unknown(backend: &dyn Backend, findings: &mut Findings) -> Result<(), LawAbort> {
    let build = || -> Result<(Graph, TensorId, TensorId), GraphError> {
        let mut context = Context::new();
        let x = context.input(DataType::F32, &[4])?;
        let op = context.op("CONFORMANCE_UNKNOWN", None)?;
        let layout = Layout::contiguous(DataType::F32, &[4])?;
        let node = context.add_tensor(Tensor { op, ..Tensor::new(layout) }, &[Some(x)], &[])?;
        context.set_name(node, "riddle")?;
        Ok((Graph::from_outputs(&context, &[node])?, x, node))
    };
    let (graph, x, node) = build().map_err(suite_fault)?;
    let places = TensorPlaces::separate(&graph, &*backend.buffer_type());
    let contents = vec![(x, LeafValues::Any.bytes(DataType::F32, 4, 1))];
    let bound = BoundGraph::new(backend, &graph, places, &contents, 0)?;
    for (what, result) in [("supports", backend.supports(&graph, node)), ("prepare", bound.prepare(0..1).map(drop))] {
        match result {
            Err(DeviceError::Unsupported { node: named, .. }) if named.id == node => {}
            other => {
                findings.report_violation(format!("{what} answers {other:?} instead of Unsupported with tensor {node}"))
            }
        }
    }
    Ok(())
}

/// Three nodes of two operations that do not commute, `f`, `f`, `g`, or of one, if no other is supported.
struct NodeChain {
    graph: Graph,
    x: TensorId,
    y: TensorId,
    nodes: [TensorId; 3],
}

/// Any two of these give something else in another order.
const STEPS: [Op; 4] = [Op::Scale, Op::Sqr, Op::Add, Op::Mul];

fn chain(backend: &dyn Backend) -> Result<NodeChain, LawAbort> {
    let runs = |op: &Op| -> Result<bool, LawAbort> {
        let chain = build_chain(*op, *op).map_err(suite_fault)?;
        Ok(backend.supports(&chain.graph, chain.nodes[0]).is_ok())
    };
    let mut found = Vec::new();
    for op in STEPS {
        if runs(&op)? {
            found.push(op);
        }
    }
    match found[..] {
        [f, g, ..] => build_chain(f, g).map_err(suite_fault),
        [f] => build_chain(f, f).map_err(suite_fault),
        [] => Err(LawAbort::Skip(String::from("none of scale, sqr, add and mul is supported for f32"))),
    }
}

fn build_chain(f: Op, g: Op) -> Result<NodeChain, GraphError> {
    let mut context = Context::new();
    let (x, y) = (context.input(DataType::F32, &[37])?, context.input(DataType::F32, &[37])?);
    let mut nodes = [x; 3];
    let mut last = x;
    for (node, op) in nodes.iter_mut().zip([f, f, g]) {
        last = match op {
            Op::Scale => context.scale_bias(last, 1.5, 0.75)?,
            Op::Sqr => context.sqr(last)?,
            _ => context.apply(op, &[Some(last), Some(y)], &[])?,
        };
        *node = last;
    }
    for (id, name) in [x, y].into_iter().chain(nodes).zip(["x", "y", "first", "second", "third"]) {
        context.set_name(id, name)?;
    }
    context.set_output(last)?;
    Ok(NodeChain { graph: Graph::from_nodes(&context, &nodes)?, x, y, nodes })
}

impl NodeChain {
    fn contents(&self, seed: u64) -> Contents {
        [self.x, self.y]
            .map(|id| (id, LeafValues::Positive.bytes(DataType::F32, 37, seed + u64::from(id == self.y))))
            .into()
    }

    fn bound<'a>(&'a self, backend: &'a dyn Backend, seed: u64, fill: u8) -> Result<BoundGraph<'a>, LawAbort> {
        let places = TensorPlaces::separate(&self.graph, &*backend.buffer_type());
        BoundGraph::new(backend, &self.graph, places, &self.contents(seed), fill)
    }

    /// Returns what the last node should compute.
    fn answer(&self, backend: &dyn Backend, seed: u64) -> Result<Vec<u8>, LawAbort> {
        let bound = self.bound(backend, seed, 0xFF)?;
        bound.run()?;
        Ok(self.last(&bound, &bound.image()?))
    }

    fn last(&self, bound: &BoundGraph<'_>, image: &[u8]) -> Vec<u8> {
        bound.part(image, self.nodes[2])[..37 * 4].to_vec()
    }
}

fn order(backend: &dyn Backend, chain: &NodeChain, findings: &mut Findings) -> Result<(), LawAbort> {
    let answer = chain.answer(backend, 1)?;
    // A node that runs before its source reads what the buffer held before.
    let other = chain.bound(backend, 1, 0x11)?;
    other.run()?;
    findings.expect(chain.last(&other, &other.image()?) == answer, || {
        String::from("a result depends on what was in the memory of the nodes before")
    });
    let mut places = TensorPlaces::separate(&chain.graph, &*backend.buffer_type());
    for node in chain.nodes {
        places = places
            .aliased(node, chain.x)
            .ok_or_else(|| LawAbort::Skip(String::from("results take more than sources")))?;
    }
    let bound = BoundGraph::new(backend, &chain.graph, places, &chain.contents(1), 0xFF)?;
    bound.run()?;
    findings.expect(chain.last(&bound, &bound.image()?) == answer, || {
        String::from("three nodes one upon the other give another result than apart")
    });
    Ok(())
}

fn alone(backend: &dyn Backend, chain: &NodeChain, findings: &mut Findings) -> Result<(), LawAbort> {
    let answer = chain.answer(backend, 1)?;
    let bound = chain.bound(backend, 1, 0xFF)?;
    let mut images = vec![bound.image()?];
    for (index, node) in chain.nodes.into_iter().enumerate() {
        let mut prepared = bound.prepare(index..index + 1)?;
        backend.submit(&mut *prepared)?;
        backend.synchronise()?;
        images.push(bound.image()?);
        for other in chain.nodes.into_iter().filter(|other| *other != node) {
            let same = bound.part(&images[index], other) == bound.part(&images[index + 1], other);
            findings.expect(same, || format!("node {index} was to run alone, but tensor {other} has changed"));
        }
    }
    findings.expect(chain.last(&bound, &images[3]) == answer, || {
        String::from("nodes that run one by one give another result than together")
    });
    Ok(())
}

fn twice(backend: &dyn Backend, chain: &NodeChain, findings: &mut Findings) -> Result<(), LawAbort> {
    let bound = chain.bound(backend, 1, 0xFF)?;
    let mut prepared = bound.prepare(0..3)?;
    let mut results = Vec::new();
    for _ in 0..3 {
        backend.submit(&mut *prepared)?;
        backend.synchronise()?;
        results.push(chain.last(&bound, &bound.image()?));
        // What the previous run has left must not help.
        for node in chain.nodes {
            let place =
                bound.places.get(node).ok_or_else(|| LawAbort::Failed(String::from("a node has no location")))?;
            backend.write(&bound.buffer, Offset(place.offset), &vec![0xFF; place.size as usize])?;
        }
    }
    findings.expect(results[0] == results[1], || String::from("the second run gives another result"));
    findings.expect(results[0] == results[2], || String::from("the third run gives another result"));
    findings.expect(results[0] == chain.answer(backend, 1)?, || {
        String::from("the result differs from that of a chain of its own")
    });
    Ok(())
}

fn anew(backend: &dyn Backend, chain: &NodeChain, findings: &mut Findings) -> Result<(), LawAbort> {
    let bound = chain.bound(backend, 1, 0xFF)?;
    let mut prepared = bound.prepare(0..3)?;
    // Enqueued in turn, without waiting in between.
    backend.submit(&mut *prepared)?;
    bound.write(&chain.contents(5))?;
    backend.submit(&mut *prepared)?;
    let seen = chain.last(&bound, &bound.image()?);
    let (old, new) = (chain.answer(backend, 1)?, chain.answer(backend, 5)?);
    findings.expect(old != new, || String::from("the result does not depend on the leafs"));
    findings.expect(seen == new, || {
        let whose = if seen == old { "that of the old contents" } else { "another one" };
        format!("leafs were written between two runs, and the second result is {whose}")
    });
    Ok(())
}

fn none(backend: &dyn Backend, chain: &NodeChain, findings: &mut Findings) -> Result<(), LawAbort> {
    let bound = chain.bound(backend, 1, 0xFF)?;
    let before = bound.image()?;
    backend.submit(&mut *bound.prepare(1..1)?)?;
    backend.synchronise()?;
    findings.expect(bound.image()? == before, || String::from("a run of no nodes has written something"));
    Ok(())
}

/// An event of a device that no backend knows.
#[derive(Debug, Default)]
struct ForeignEvent(AtomicBool);

impl Event for ForeignEvent {
    fn synchronise(&self) -> Result<(), DeviceError> {
        self.0.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn events(backend: &dyn Backend, chain: &NodeChain, findings: &mut Findings) -> Result<(), LawAbort> {
    let answer = chain.answer(backend, 1)?;
    let bound = chain.bound(backend, 1, 0xFF)?;
    let mut prepared = bound.prepare(0..3)?;
    backend.submit(&mut *prepared)?;
    let event = backend.record()?;
    event.synchronise()?;
    // Not through the backend, which might finish pending work first.
    let mut image = vec![0; bound.places.size() as usize];
    bound.buffer.read(Offset(0), &mut image)?;
    findings.expect(chain.last(&bound, &image) == answer, || {
        String::from("the event behind a run has happened, but the result is not there")
    });
    let foreign = ForeignEvent::default();
    backend.wait(&*event)?;
    backend.wait(&Finished)?;
    backend.wait(&foreign)?;
    bound.write(&chain.contents(5))?;
    backend.submit(&mut *prepared)?;
    backend.synchronise()?;
    let waited = foreign.0.load(Ordering::SeqCst);
    findings.expect(waited, || String::from("an event of another device was not waited for"));
    bound.buffer.read(Offset(0), &mut image)?;
    findings.expect(chain.last(&bound, &image) == chain.answer(backend, 5)?, || {
        String::from("after synchronise the result is not there")
    });
    Ok(())
}

fn unplaced(backend: &dyn Backend, chain: &NodeChain, findings: &mut Findings) -> Result<(), LawAbort> {
    let bound = chain.bound(backend, 1, 0xFF)?;
    for missing in [chain.x].into_iter().chain(chain.nodes) {
        let bindings = bound.places.bind(&chain.graph, &bound.buffer, Some(missing))?;
        match backend.prepare(&chain.graph, 0..3, &bindings).map(drop) {
            Err(DeviceError::Unplaced { tensor }) if tensor.id == missing => {}
            other => {
                findings.report_violation(format!("tensor {missing} has no memory, and prepare returns {other:?}"))
            }
        }
    }
    Ok(())
}

fn in_use(backend: &dyn Backend, chain: &NodeChain, findings: &mut Findings) -> Result<(), LawAbort> {
    let answer = chain.answer(backend, 1)?;
    let bound = chain.bound(backend, 1, 0xFF)?;
    let mut prepared = bound.prepare(0..3)?;
    {
        let _writing = bound.buffer.borrow_mut()?;
        match backend.submit(&mut *prepared).and_then(|()| backend.synchronise()) {
            Err(DeviceError::InUse { .. }) => {}
            other => findings
                .report_violation(format!("the buffer is borrowed for writing, and a run in it returns {other:?}")),
        }
    }
    backend.submit(&mut *prepared)?;
    findings.expect(chain.last(&bound, &bound.image()?) == answer, || {
        String::from("after a run that could not be, the next one gives another result")
    });
    Ok(())
}

fn released(backend: &dyn Backend, chain: &NodeChain, findings: &mut Findings) -> Result<(), LawAbort> {
    let bound = chain.bound(backend, 1, 0xFF)?;
    let mut prepared = bound.prepare(0..3)?;
    backend.submit(&mut *prepared)?;
    backend.synchronise()?;
    bound.buffer.release()?;
    match backend.submit(&mut *prepared).and_then(|()| backend.synchronise()) {
        Err(DeviceError::Released { .. }) => Ok(()),
        other => {
            findings.report_violation(format!("the memory was given back, and a run in it answers {other:?}"));
            Ok(())
        }
    }
}
