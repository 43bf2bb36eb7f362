//! The laws of a device.

use std::sync::Arc;

use steeve_graph::{Bytes, Context, DataType, Graph};

use super::memory::{at_most, check_memory, excessive, suite_fault};
use super::report::{Findings, LawAbort, Report};
use crate::{Buffer, BufferType, Device, DeviceError, DeviceKind};

/// Checks all laws of a device and of its memories. Its backends are for [`check_backend`](super::check_backend).
///
/// ```
/// use steeve_device::conformance::check_device;
/// use steeve_device::{Bytes, DiscreteDevice, MemorySpec};
/// check_device(&DiscreteDevice::new(MemorySpec::new("gpu").with_capacity(Bytes(1 << 24)))).assert();
/// ```
pub fn check_device(device: &dyn Device) -> Report {
    let mut report = Report::new(format!("device {}", device.name()));
    report.check("it has names", |findings| names(device, findings));
    report.check("free memory is part of the whole", |findings| {
        free_in_total(device, "at the start", findings);
        Ok(())
    });
    report.check("the first buffer type is the default", |findings| default_type(device, findings));
    report.check("it reads its own buffer types", |findings| reads(device, findings));
    report.check("it computes in memory that it reads", |findings| computes(device, findings));
    for memory in device.buffer_types() {
        let mut part = Report::default();
        part.check("a buffer counts while it exists", |findings| counted(device, memory, findings));
        part.check("many buffers leave nothing behind", |_| many(device, memory));
        part.check("a refusal leaves nothing behind", |findings| refusals(device, memory, findings));
        report.include(memory.name(), part);
        report.include(memory.name(), check_memory(memory));
    }
    report
}

fn names(device: &dyn Device, findings: &mut Findings) -> Result<(), LawAbort> {
    findings.expect(!device.name().trim().is_empty(), || format!("it is called {:?}", device.name()));
    let description = device.description();
    findings.expect(!description.trim().is_empty(), || format!("it is described as {description:?}"));
    let types = device.buffer_types();
    for (index, memory) in types.iter().enumerate() {
        let twin = types[..index].iter().any(|other| other.name() == memory.name());
        findings.expect(!twin, || format!("two buffer types are called {}", memory.name()));
    }
    Ok(())
}

fn free_in_total(device: &dyn Device, when: &str, findings: &mut Findings) {
    let info = device.memory();
    findings.expect(info.free <= info.total, || format!("{when} {} bytes of {} are free", info.free, info.total));
}

fn same(a: &Arc<dyn BufferType>, b: &Arc<dyn BufferType>) -> bool {
    Arc::ptr_eq(a, b)
}

fn default_type(device: &dyn Device, findings: &mut Findings) -> Result<(), LawAbort> {
    match (device.buffer_types().first(), device.default_buffer_type()) {
        (Some(first), Some(default)) => findings
            .expect(same(first, default), || format!("the first is {}, the default {}", first.name(), default.name())),
        (None, None) => return Err(LawAbort::Skip(String::from("it has no buffer types"))),
        (Some(first), None) => {
            findings.report_violation(format!("there is no default, but {} is the first", first.name()))
        }
        (None, Some(default)) => {
            findings.report_violation(format!("the default is {}, but the list is empty", default.name()))
        }
    }
    Ok(())
}

fn reads(device: &dyn Device, findings: &mut Findings) -> Result<(), LawAbort> {
    for memory in device.buffer_types() {
        findings.expect(device.reads(memory), || format!("it says that it can't read {}", memory.name()));
    }
    Ok(())
}

fn computes(device: &dyn Device, findings: &mut Findings) -> Result<(), LawAbort> {
    let mut context = Context::new();
    let add = |context: &mut Context| {
        let x = context.input(DataType::F32, &[4])?;
        context.add(x, x)
    };
    let node = add(&mut context).map_err(suite_fault)?;
    let graph = Graph::from_outputs(&context, &[node]).map_err(suite_fault)?;
    match device.backend() {
        Ok(backend) => {
            let memory = backend.buffer_type();
            findings.expect(device.reads(&memory), || format!("its backend computes in {}", memory.name()));
            let (own, its) = (device.supports(&graph, node).is_ok(), backend.supports(&graph, node).is_ok());
            findings.expect(own == its, || format!("device and backend do not agree whether they add: {own}, {its}"));
        }
        Err(error) => {
            let supports = device.supports(&graph, node).is_ok();
            findings.expect(!supports, || format!("it says that it adds, but has no backend: {error}"));
        }
    }
    Ok(())
}

/// Others may allocate and free at the same time, so one correct round of many is enough: a leak shows in every round.
const ROUNDS: usize = 8;

/// Returns a size of which `count` buffers fit into the free memory.
fn piece_of(device: &dyn Device, memory: &dyn BufferType, count: u64) -> Result<Bytes, LawAbort> {
    if matches!(device.kind(), DeviceKind::Cpu | DeviceKind::IntegratedGpu) {
        return Err(LawAbort::Skip(String::from("other processes allocate and free its memory too")));
    }
    match at_most(memory, (1 << 20).min(device.memory().free.0 / count)) {
        0 => Err(LawAbort::Skip(format!("not even {count} bytes are free, or no buffer has one"))),
        size => Ok(Bytes(size)),
    }
}

fn counted(device: &dyn Device, memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let size = piece_of(device, &**memory, 2)?;
    let mut wrong = None;
    for _ in 0..ROUNDS {
        let before = device.memory().free;
        let buffer = memory.allocate(size)?;
        free_in_total(device, "with a buffer", findings);
        let during = device.memory().free;
        drop(buffer);
        let after = device.memory().free;
        if during >= before {
            continue;
        }
        if before.0 - during.0 >= size.0 && after >= before {
            return Ok(());
        }
        wrong = Some(format!("{before} bytes were free, {during} with a buffer of {size}, {after} without it again"));
    }
    Err(wrong.map_or_else(|| LawAbort::Skip(format!("{} does not count its buffers", device.name())), LawAbort::Failed))
}

/// Returns whether the free memory falls and rises with buffers.
fn counts(device: &dyn Device, memory: &Arc<dyn BufferType>) -> Result<(), LawAbort> {
    let size = piece_of(device, &**memory, 2)?;
    for _ in 0..ROUNDS {
        let before = device.memory().free;
        let _buffer = memory.allocate(size)?;
        if device.memory().free < before {
            return Ok(());
        }
    }
    Err(LawAbort::Skip(format!("{} does not count its buffers", device.name())))
}

/// Checks that `act` leaves as much memory free as there was.
fn leaves_nothing(device: &dyn Device, mut act: impl FnMut() -> Result<(), LawAbort>) -> Result<(), LawAbort> {
    let mut figures = (Bytes::ZERO, Bytes::ZERO);
    for _ in 0..ROUNDS {
        let before = device.memory().free;
        act()?;
        figures = (before, device.memory().free);
        if figures.1 >= figures.0 {
            return Ok(());
        }
    }
    let (before, after) = figures;
    Err(LawAbort::Failed(format!("{before} bytes were free before, and {after} are afterwards, again and again")))
}

fn many(device: &dyn Device, memory: &Arc<dyn BufferType>) -> Result<(), LawAbort> {
    counts(device, memory)?;
    let size = piece_of(device, &**memory, 64)?;
    leaves_nothing(device, || {
        let together: Result<Vec<Box<dyn Buffer>>, DeviceError> = (0..32).map(|_| memory.allocate(size)).collect();
        drop(together?);
        for _ in 0..32 {
            memory.allocate(size)?;
        }
        Ok(())
    })
}

fn refusals(device: &dyn Device, memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    counts(device, memory)?;
    let mut sizes = excessive(&**memory);
    sizes.extend(device.memory().total.0.checked_add(1).map(Bytes));
    let mut refused = 0;
    leaves_nothing(device, || {
        refused += sizes.iter().filter(|size| memory.allocate(**size).is_err()).count();
        Ok(())
    })?;
    if refused == 0 {
        return Err(LawAbort::Skip(String::from("it refuses no size")));
    }
    findings.expect(memory.allocate(piece_of(device, &**memory, 2)?).is_ok(), || {
        String::from("after refusals nothing can be had any more")
    });
    Ok(())
}
