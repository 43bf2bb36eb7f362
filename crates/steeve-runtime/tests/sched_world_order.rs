//! The checker of traces is itself checked against one that is too slow to be wrong, and against the results of
//! streams.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeSet;
use std::sync::Arc;
use steeve_testkit::test_devices;

use steeve_cpu::CpuDevice;
use steeve_device::{Backend, Bindings, Bytes, Device, Event, Graph, Offset, Prepared, SharedBuffer, Usage};
use test_devices::{
    Access, AccessKind, HOST, Hazard, Random, TestSystem, Trace, TraceAction, TraceEntry, Tracer, happens_before,
};

/// A byte that an entry touches although nothing orders it behind some entry of a stream: stream, entry, buffer, byte.
type Conflict = (usize, usize, Hazard, usize, u64);

/// Finds all conflicts, by the transitive closure of all orders.
fn all_pairs(trace: &Trace) -> BTreeSet<Conflict> {
    let (entries, count) = (&trace.entries, trace.entries.len());
    let mut before = vec![vec![false; count]; count];
    for later in 0..count {
        for earlier in 0..later {
            let (one, other) = (&entries[earlier], &entries[later]);
            let by_event = |event: usize| one.what == TraceAction::Record(event);
            before[earlier][later] = one.stream == other.stream
                || one.stream == HOST
                || matches!(other.what, TraceAction::Wait(event) if by_event(event))
                || matches!(other.what, TraceAction::Join(stream) if one.stream == stream);
        }
    }
    for middle in 0..count {
        for earlier in 0..middle {
            for later in middle..count {
                before[earlier][later] |= before[earlier][middle] && before[middle][later];
            }
        }
    }
    let mut conflicts = BTreeSet::new();
    for later in 0..count {
        for earlier in (0..later).filter(|earlier| !before[*earlier][later]) {
            for (one, other) in entries[earlier].accesses.iter().flat_map(|one| {
                entries[later]
                    .accesses
                    .iter()
                    .map(move |other| (one, other))
                    .filter(|(one, it)| one.buffer == it.buffer)
            }) {
                let Some(hazard) = hazard(one.kind, other.kind) else { continue };
                for byte in one.range.start.max(other.range.start)..one.range.end.min(other.range.end) {
                    conflicts.insert((entries[earlier].stream, later, hazard, one.buffer, byte));
                }
            }
        }
    }
    conflicts
}

fn hazard(first: AccessKind, second: AccessKind) -> Option<Hazard> {
    match (first, second) {
        (AccessKind::Read, AccessKind::Read) => None,
        (AccessKind::Write, AccessKind::Read) => Some(Hazard::ReadAfterWrite),
        (AccessKind::Read, AccessKind::Write) => Some(Hazard::WriteAfterRead),
        (AccessKind::Write, AccessKind::Write) => Some(Hazard::WriteAfterWrite),
    }
}

/// Returns what the checker has found, byte by byte.
fn found(trace: &Trace) -> BTreeSet<Conflict> {
    let violations = happens_before(trace);
    violations
        .into_iter()
        .flat_map(|it| {
            it.range.map(move |byte| (trace.entries[it.earlier].stream, it.later, it.hazard, it.buffer, byte))
        })
        .collect()
}

fn any_trace(random: &mut Random) -> Trace {
    let streams = 2 + random.index(4);
    let mut trace = Trace {
        streams: (0..streams).map(|stream| format!("stream{stream}")).collect(),
        buffers: vec![String::from("one"), String::from("other")],
        entries: Vec::new(),
    };
    let mut events = 0;
    for _ in 0..10 + random.index(40) {
        let mut stream = random.index(streams);
        let (mut what, mut accesses) = (TraceAction::Copy, Vec::new());
        match random.index(10) {
            0 | 1 => {
                what = TraceAction::Record(events);
                events += 1;
            }
            2..5 if events > 0 => what = TraceAction::Wait(random.index(events)),
            5 => (stream, what) = (HOST, TraceAction::Join(1 + random.index(streams - 1))),
            _ => {
                for _ in 0..1 + random.index(3) {
                    let start = random.below(30);
                    let kind = if random.once_in(2) { AccessKind::Read } else { AccessKind::Write };
                    accesses.push(Access { buffer: random.index(2), range: start..start + 1 + random.below(8), kind });
                }
            }
        }
        trace.entries.push(TraceEntry { stream, what, accesses });
    }
    trace
}

#[test]
fn the_judge_finds_what_the_closure_finds() {
    let (mut clean, mut faulty) = (0, 0);
    for seed in 0..1500 {
        let trace = any_trace(&mut Random::new(seed));
        let wanted = all_pairs(&trace);
        assert_eq!(found(&trace), wanted, "seed {seed}\n{trace}");
        *(if wanted.is_empty() { &mut clean } else { &mut faulty }) += 1;
    }
    assert!(clean > 20 && faulty > 1000, "{clean} clean, {faulty} not");
}

#[test]
fn long_traces_are_judged_in_no_time() {
    let mut random = Random::new(1);
    let streams = (0..9).map(|stream| format!("stream{stream}")).collect();
    let mut trace = Trace { streams, buffers: vec![String::from("all")], entries: Vec::new() };
    for event in 0..10_000 {
        let stream = random.index(9);
        let accesses = (0..20).map(|index| {
            let start = random.below(1 << 20) & !31;
            Access {
                buffer: 0,
                range: start..start + 1024,
                kind: if index == 0 { AccessKind::Write } else { AccessKind::Read },
            }
        });
        trace.entries.push(TraceEntry { stream, what: TraceAction::Submit(0..1), accesses: accesses.collect() });
        trace.entries.push(TraceEntry { stream, what: TraceAction::Record(event), accesses: Vec::new() });
        for stream in 0..9 {
            trace.entries.push(TraceEntry { stream, what: TraceAction::Wait(event), accesses: Vec::new() });
        }
    }
    assert_eq!(happens_before(&trace), []);
}

/// A slot has so many bytes, and each place has so many slots.
const SLOT: u64 = 32;
const SLOTS: usize = 4;

/// A slot of a place. The last place is the host's memory, with the processor.
type Spot = (usize, usize);

/// Something that a program does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// One slot becomes half of another and one more, in the same place.
    Run { place: usize, from: usize, to: usize },
    /// A device copies.
    Copy { by: usize, to: Spot, from: Spot },
    /// A device writes.
    Write { by: usize, to: usize, seed: u8 },
    /// The host writes.
    Touch { to: Spot, seed: u8 },
    /// All that `stream` does from now on is behind what `other` has been given; the host is behind the last.
    Order { stream: usize, other: usize },
}

impl Step {
    /// Returns the stream of a step, and what it reads and writes; the number of places means the processor.
    fn parts(self, places: usize) -> Option<(usize, Option<Spot>, Spot)> {
        match self {
            Self::Run { place, from, to } => Some((place, Some((place, from)), (place, to))),
            Self::Copy { by, to, from } => Some((by, Some(from), to)),
            Self::Write { by, to, .. } => Some((by, None, (by, to))),
            Self::Touch { to, .. } => Some((places - 1, None, to)),
            Self::Order { .. } => None,
        }
    }
}

/// Returns a program whose steps are all in order, but for some that were left out: once in `faults`.
fn any_program(random: &mut Random, places: usize, faults: Option<u64>) -> Vec<Step> {
    let (mut steps, gpus): (Vec<Step>, usize) = (Vec::new(), places - 1);
    for _ in 0..12 + random.index(20) {
        let (by, seed) = (random.index(gpus), random.next() as u8);
        let mut any = |end: usize| random.index(end);
        let step = match any(8) {
            0..3 => Step::Run { place: any(places), from: any(SLOTS), to: any(SLOTS) },
            3..6 => {
                let (own, other) = ((by, any(SLOTS)), (any(places), any(SLOTS)));
                if any(2) == 0 {
                    Step::Copy { by, to: own, from: other }
                } else {
                    Step::Copy { by, to: other, from: own }
                }
            }
            6 => Step::Write { by, to: any(SLOTS), seed },
            _ => Step::Touch { to: (any(places), any(SLOTS)), seed },
        };
        let (stream, read, written) = step.parts(places).unwrap();
        let conflicts = |before: &Step, other: usize| {
            before.parts(places).is_some_and(|(by, was_read, was_written)| {
                by == other && (Some(written) == was_read || written == was_written || read == Some(was_written))
            })
        };
        // What the host did is behind it anyway.
        for other in (0..gpus).filter(|other| *other != stream) {
            let needed = steps.iter().any(|before| conflicts(before, other));
            if needed && !faults.is_some_and(|faults| random.once_in(faults)) {
                steps.push(Step::Order { stream, other });
            }
        }
        steps.push(step);
    }
    steps
}

/// Runs a program on so many devices and the processor; answers all bytes in the end, and what happened.
fn run(seed: u64, places: usize, asynchronous: bool, steps: &[Step]) -> (Vec<Vec<u8>>, Trace) {
    let (world, tracer) = (TestSystem::new(), Tracer::new());
    let device = |index: usize| -> Arc<dyn Device> {
        let device = world.device(format!("gpu{index}").as_str()).asynchronous(asynchronous);
        if index + 1 == places {
            return tracer.device(CpuDevice::with_threads(1));
        }
        tracer.device(if asynchronous { device.jitter(seed, 40) } else { device })
    };
    let devices: Vec<Arc<dyn Device>> = (0..places).map(device).collect();
    let size = Bytes(SLOT * SLOTS as u64);
    let make = |device: &Arc<dyn Device>| {
        let buffer = SharedBuffer::allocate(&device.buffer_types()[0], size, Usage::Compute).unwrap();
        buffer.clear(0x3C).unwrap();
        buffer
    };
    let buffers: Vec<SharedBuffer> = devices.iter().map(make).collect();
    let backends: Vec<Box<dyn Backend>> = devices.iter().map(|device| device.backend().unwrap()).collect();
    let offset = |slot: usize| Offset(slot as u64 * SLOT);
    let at = |(place, slot): Spot| (&buffers[place], offset(slot));
    let mut kept: Vec<Box<dyn Prepared>> = Vec::new();
    for &step in steps {
        match step {
            Step::Run { place, from, to } => {
                let graph: Graph = "x = input 8; y = scale(0.5,1.0) x".parse().unwrap();
                let mut bindings = Bindings::new();
                bindings.bind(graph.leafs()[0], &buffers[place], offset(from), Bytes(SLOT)).unwrap();
                bindings.bind(graph.nodes()[0], &buffers[place], offset(to), Bytes(SLOT)).unwrap();
                let mut prepared = backends[place].prepare(&graph, 0..1, &bindings).unwrap();
                backends[place].submit(&mut *prepared).unwrap();
                kept.push(prepared);
            }
            Step::Copy { by, to, from } => backends[by].copy(at(to), at(from), Bytes(SLOT)).unwrap(),
            Step::Write { by, to, seed } => {
                backends[by].write(&buffers[by], offset(to), &[seed; SLOT as usize]).unwrap();
            }
            Step::Touch { to, seed } => at(to).0.write(at(to).1, &[seed; SLOT as usize]).unwrap(),
            Step::Order { stream, other } => {
                let event: Arc<dyn Event> = backends[other].record().unwrap();
                backends[stream].wait(&*event).unwrap();
            }
        }
    }
    backends.iter().for_each(|backend| backend.synchronise().unwrap());
    let read = |buffer: &SharedBuffer| {
        let mut bytes = vec![0; size.0 as usize];
        buffer.read(Offset(0), &mut bytes).unwrap();
        bytes
    };
    let bytes = buffers.iter().map(read).collect();
    (bytes, tracer.trace())
}

#[test]
fn programs_in_order_give_what_they_give_at_once() {
    for seed in 0..60 {
        let (mut random, places) = (Random::new(seed), 3 + seed as usize % 3);
        let steps = any_program(&mut random, places, None);
        let (bytes, trace) = run(seed, places, true, &steps);
        assert_eq!(happens_before(&trace), [], "seed {seed}\n{trace}");
        assert_eq!(bytes, run(seed, places, false, &steps).0, "seed {seed}\n{trace}");
    }
}

#[test]
fn programs_that_are_found_in_order_give_what_they_give_at_once() {
    let (mut clean, mut faulty, mut wrong) = (0, 0, 0);
    for seed in 0..150 {
        let (mut random, places) = (Random::new(!seed), 3 + seed as usize % 3);
        let steps = any_program(&mut random, places, Some(10));
        let (bytes, trace) = run(seed, places, true, &steps);
        let wanted = all_pairs(&trace);
        assert_eq!(found(&trace), wanted, "seed {seed}\n{trace}");
        let same = bytes == run(seed, places, false, &steps).0;
        if wanted.is_empty() {
            assert!(same, "seed {seed}\n{trace}");
            clean += 1;
        } else {
            (faulty, wrong) = (faulty + 1, wrong + usize::from(!same));
        }
    }
    assert!(clean > 10 && faulty > 10 && wrong > 0, "{clean} clean, {faulty} faulty, {wrong} of those wrong");
    println!("{clean} clean, {faulty} faulty, {wrong} of those wrong");
}
