//! The laws of a type of memory.

use std::sync::Arc;

use steeve_graph::{Bytes, Context, DataType, Graph, GraphError, Offset};

use super::report::{Findings, LawAbort, Report};
use super::transfers;
use crate::{Buffer, BufferType, DeviceError, SharedBuffer, Usage};

/// Checks all laws of a type of memory. Allocates a few buffers of a few megabytes, and once the largest there is.
///
/// ```
/// use steeve_device::conformance::check_memory;
/// use steeve_device::{Bytes, Device, DiscreteDevice, MemorySpec};
/// let device = DiscreteDevice::new(MemorySpec::new("gpu").with_max_size(Bytes(1 << 21)));
/// check_memory(&device.buffer_types()[0]).assert();
/// ```
pub fn check_memory(memory: &Arc<dyn BufferType>) -> Report {
    let mut report = Report::new(format!("memory {}", memory.name()));
    for (law, act) in LAWS {
        report.check(law, |findings| act(memory, findings));
    }
    if has_bytes(memory) {
        for (law, act) in transfers::LAWS {
            report.check(law, |findings| act(memory, findings));
        }
    } else {
        report.check(WITHOUT_BYTES, |findings| without_bytes(memory, findings));
        for (law, _) in transfers::LAWS {
            report.skip(law, format!("{} has no bytes", memory.name()));
        }
    }
    report
}

pub(super) type Law = (&'static str, fn(&Arc<dyn BufferType>, &mut Findings) -> Result<(), LawAbort>);

const LAWS: &[Law] = &[
    ("it has a name", name),
    ("a buffer has the size that was asked for, or more", sizes),
    ("the address of a buffer is aligned", alignment),
    ("the largest buffer can be had", largest),
    ("what is too large is refused, or had in full", too_large),
    ("a tensor takes what it spans, or more", tensors),
    ("the init hook sees a tensor of the buffer", init_hook),
    ("a buffer is of one type", one_type),
    ("a handle lends to many readers or to one writer", borrows),
    ("a handle takes its memory back", release),
];

const WITHOUT_BYTES: &str = "a memory without bytes says so";

/// Enough for every edge, and an odd number.
const SIZE: u64 = 1021;

/// The largest size that is allocated, except for the largest buffer.
const LIMIT: u64 = 1 << 26;

/// Returns `size`, or the largest size of a buffer if that is less.
pub(super) fn at_most(memory: &dyn BufferType, size: u64) -> u64 {
    memory.max_size().map_or(size, |max| size.min(max.0))
}

/// Returns the size that most laws are tried with.
pub(super) fn usual_size(memory: &dyn BufferType) -> Result<u64, LawAbort> {
    match at_most(memory, SIZE) {
        0 => Err(LawAbort::Skip(String::from("no buffer has a byte"))),
        size => Ok(size),
    }
}

/// Returns whether the memory has bytes. Only `NoBytes` says that it has none: every other error breaks a law.
fn has_bytes(memory: &Arc<dyn BufferType>) -> bool {
    let written = memory.allocate(Bytes(at_most(&**memory, SIZE))).and_then(|mut buffer| buffer.write(Offset(0), &[1]));
    !matches!(written, Err(DeviceError::NoBytes { .. }))
}

fn name(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    findings.expect(!memory.name().trim().is_empty(), || format!("it is called {:?}", memory.name()));
    Ok(())
}

/// Returns sizes around every edge that the memory itself has.
fn edges(memory: &dyn BufferType) -> Vec<u64> {
    let align = memory.align().get();
    let around =
        [Some(align - 1), Some(align), align.checked_add(1), align.checked_mul(3).and_then(|n| n.checked_add(5))];
    let max = memory.max_size().map_or(u64::MAX, Bytes::get).min(LIMIT);
    let mut sizes: Vec<u64> = around.into_iter().flatten().chain([0, 1, SIZE, 4096, 4097, (1 << 20) + 13]).collect();
    sizes.retain(|size| *size <= max);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn sizes(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    for size in edges(&**memory) {
        match memory.allocate(Bytes(size)) {
            Ok(buffer) => full_size(&*buffer, size, findings),
            Err(error) => findings.report_violation(format!("{size} bytes were refused: {error}")),
        }
    }
    Ok(())
}

fn full_size(buffer: &dyn Buffer, asked: u64, findings: &mut Findings) {
    let given = buffer.size().0;
    findings.expect(given >= asked, || format!("{asked} bytes were asked for, and the buffer has {given}"));
}

fn alignment(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let align = memory.align();
    // Several at a time, so that they are not all at one address.
    let mut buffers = Vec::new();
    for size in edges(&**memory) {
        buffers.push((size, memory.allocate(Bytes(size))?));
    }
    for (size, buffer) in buffers {
        let address = buffer.address();
        findings.expect(align.accepts(Offset(address)), || {
            format!("a buffer of {size} bytes is at address {address:#x}, which is no multiple of {align}")
        });
    }
    Ok(())
}

fn largest(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let Some(max) = memory.max_size() else {
        return Err(LawAbort::Skip(String::from("there is no largest size")));
    };
    match memory.allocate(max) {
        Ok(mut buffer) => {
            full_size(&*buffer, max.0, findings);
            let last = Offset(max.0.saturating_sub(1));
            match buffer.write(last, &[1][..max.0.min(1) as usize]) {
                Ok(()) | Err(DeviceError::NoBytes { .. }) => Ok(()),
                Err(error) => Err(LawAbort::Failed(format!("the last of {max} bytes can't be written: {error}"))),
            }
        }
        Err(error @ DeviceError::OutOfMemory { .. }) => Err(LawAbort::Skip(error.to_string())),
        Err(error) => Err(LawAbort::Failed(format!("{max} bytes are said to be the largest buffer, but: {error}"))),
    }
}

/// Returns sizes that no memory has, and those just above the largest buffer.
pub(super) fn excessive(memory: &dyn BufferType) -> Vec<Bytes> {
    let above = memory.max_size().into_iter().flat_map(|max| [max.0.checked_add(1), max.0.checked_mul(2)]);
    let above = above.flatten().filter(|size| memory.max_size().is_some_and(|max| *size > max.0));
    above.chain([1 << 62, 1 << 63, u64::MAX - 1, u64::MAX]).map(Bytes).collect()
}

fn too_large(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    for size in excessive(&**memory) {
        match memory.allocate(size) {
            Ok(buffer) => full_size(&*buffer, size.0, findings),
            Err(error) => findings.expect(!error.to_string().is_empty(), || format!("{size} bytes: no word why not")),
        }
    }
    // After a refusal a small buffer can still be allocated.
    memory.allocate(Bytes(usual_size(&**memory)?))?;
    Ok(())
}

fn tensors(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let graph = some_tensors().map_err(suite_fault)?;
    for (id, tensor) in graph.tensors().pairs() {
        let (first, second) = (memory.alloc_size(graph.tensors(), id), memory.alloc_size(graph.tensors(), id));
        let layout = tensor.layout;
        findings.expect(first >= tensor.nbytes(), || format!("{layout} spans more than the {first} bytes it gets"));
        findings.expect(first == second, || format!("{layout} takes {first} bytes, and {second} when asked again"));
    }
    Ok(())
}

fn some_tensors() -> Result<Graph, GraphError> {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[31, 3])?;
    let w = context.external(DataType::Q4K, &[256, 5])?;
    context.input(DataType::F16, &[1])?;
    context.input(DataType::F32, &[8, 0])?;
    let y = context.neg(x)?;
    context.set_output(y)?;
    Graph::from_outputs(&context, &[y, w])
}

/// Turns an error of a graph that the suite builds, which is a fault of the suite, into the end of a law.
pub(super) fn suite_fault(error: GraphError) -> LawAbort {
    LawAbort::Failed(format!("the suite itself has a fault: {error}"))
}

fn init_hook(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let graph = some_tensors().map_err(suite_fault)?;
    let mut seen = 0;
    for id in graph.tensors().ids() {
        let size = memory.alloc_size(graph.tensors(), id);
        if at_most(&**memory, size.0) < size.0 {
            findings.omit(format!("no buffer has {size} bytes"));
            continue;
        }
        let mut buffer = memory.allocate(size)?;
        if let Some(hook) = buffer.init_hook() {
            hook.init_tensor(graph.tensors(), id, Offset(0))?;
            seen += 1;
        }
        buffer.reset()?;
    }
    if seen == 0 { Err(LawAbort::Skip(String::from("its buffers have no init hook"))) } else { Ok(()) }
}

fn one_type(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let mut buffer = memory.allocate(Bytes(usual_size(&**memory)?))?;
    let shared = buffer.as_any().type_id();
    findings
        .expect(shared == buffer.as_any_mut().type_id(), || String::from("as_any and as_any_mut show different types"));
    Ok(())
}

fn borrows(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let size = usual_size(&**memory)?;
    let buffer = SharedBuffer::allocate(memory, Bytes(size), Usage::Any)?;
    let other = buffer.clone();
    let in_use = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::InUse { .. }));
    {
        let reading = buffer.borrow()?;
        let also = other.borrow()?;
        findings.expect(reading.size() == also.size(), || String::from("two readers see different sizes"));
        findings.expect(in_use(other.write(Offset(0), &[1])), || String::from("a writer got in while others read"));
        findings.expect(in_use(other.release()), || String::from("the memory was given back while others read"));
    }
    {
        let _writing = buffer.borrow_mut()?;
        findings.expect(in_use(other.read(Offset(0), &mut [0])), || String::from("a reader got in with a writer"));
        findings.expect(in_use(other.clear(0)), || String::from("a writer got in with a writer"));
    }
    // All borrow flags are free again.
    drop(other.borrow_mut()?);
    Ok(())
}

fn release(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let size = usual_size(&**memory)?;
    let buffer = SharedBuffer::allocate(memory, Bytes(size), Usage::Any)?;
    let other = buffer.clone();
    buffer.release()?;
    buffer.release()?;
    let released = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::Released { .. }));
    let late = |what: &str| format!("memory that was given back could be {what}");
    findings.expect(released(other.read(Offset(0), &mut [0])), || late("read"));
    findings.expect(released(other.write(Offset(0), &[1])), || late("written"));
    findings.expect(released(other.borrow_mut().map(drop)), || late("borrowed"));
    Ok(())
}

/// Checks memory without bytes: `NoBytes` within bounds, `Outside` beyond them, and success for empty transfers.
fn without_bytes(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let size = usual_size(&**memory)?;
    let (all, half, room) = (Bytes(size), Offset(size / 2), Offset(size));
    let (mut buffer, other) = (memory.allocate(all)?, memory.allocate(all)?);
    let one = Bytes(1);
    let tries = [
        ("a read", buffer.read(Offset(0), &mut [0])),
        ("a write", buffer.write(Offset(0), &[1])),
        ("a fill", buffer.fill(half, one, 1)),
        ("a clear", buffer.clear(1)),
        ("a copy within", buffer.copy_within(Offset(0), half, one)),
        ("a copy between", buffer.copy_from(Offset(0), &*other, half, one)),
    ];
    for (what, result) in tries {
        let none = matches!(result, Err(DeviceError::NoBytes { .. }));
        findings.expect(none, || format!("{what} says {result:?} where there are no bytes"));
    }
    let beyond = [
        ("a read", buffer.read(room, &mut [0])),
        ("a write", buffer.write(room, &[1])),
        ("a fill", buffer.fill(Offset(1), all, 1)),
        ("a copy within", buffer.copy_within(Offset(0), Offset(1), all)),
        ("a copy between", buffer.copy_from(Offset(0), &*other, Offset(1), all)),
    ];
    for (what, result) in beyond {
        let outside = matches!(result, Err(DeviceError::Outside { .. }));
        findings.expect(outside, || format!("{what} that passes the end says {result:?}"));
    }
    buffer.read(room, &mut [])?;
    buffer.write(room, &[])?;
    buffer.fill(room, Bytes::ZERO, 1)?;
    buffer.copy_within(room, Offset(0), Bytes::ZERO)?;
    buffer.copy_from(room, &*other, Offset(0), Bytes::ZERO)?;
    Ok(())
}
