//! What a program takes through ggml, as lines in a file for another program to read: `STEEVE_REPORT=FILE`. `steeve estimate`
//! is that other program.
//!
//! ```text
//!   open      a handle, with the memories of its buffer types
//!   reserve   what ggml's plan of a graph needs in each memory, chunk by chunk, and what the handle has there now
//!             (`done`), or would have (`dry`: only sizes were asked for; `failed`: there was no memory); or that no
//!             allocator can do anything with the graph (`refused`)
//!   close     a handle is freed
//!   buffer    a buffer with the tensors of a context: weights, caches, other
//!   size      what such a buffer would take, where only that was asked for, or where it could not be had
//!   mapped    a buffer over memory of the program's, such as a mapped file
//!   drop      a buffer is freed
//! ```
//!
//! Each line is a JSON object with the version of this form (`report`), the process and the event, and is appended in one
//! piece, so that several processes may write to one file. There is no state here, but for which buffers were reported and
//! what each handle remembers, which keeps lines from being repeated or of no use; what is alive together is for the reader to
//! find out. Without the variable nothing is done.

use std::ffi::{CStr, c_int};
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use crate::address_registry::{AddressRegistry, HANDLES, HandleOwner};
use crate::buffer_types::BufferTypeDevice;
use crate::drop_in_settings::settings;
use crate::gallocr_handle::{GallocrHandle, ReserveRequest, catch_panic};
use crate::ggml_abi::{GgmlBuffer, GgmlBufferType, GgmlContext, GgmlTensor};
use crate::ggml_instance::{GgmlInstance, text};
use crate::ggml_simulation::{ChunkSizes, GgmlSimulations};
use crate::hash::fnv_1a;
use crate::read_graph::GraphReadError;

/// The version of the lines.
const REPORT_VERSION: u32 = 1;

/// The buffers that were reported and are not freed yet. Programs make and free many more to find out what a device can do.
static BUFFERS: AddressRegistry<()> = AddressRegistry::new();

/// Returns the file that is written to, if the environment names one.
pub(crate) fn file() -> Option<&'static Path> {
    settings().report_file.as_deref()
}

/// What a handle remembers of its lines.
#[derive(Default)]
pub(crate) struct ReportState {
    /// A hash of the last `reserve`.
    last: u64,
    simulations: GgmlSimulations,
}

/// What became of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReserveOutcome {
    /// The handle has its buffers.
    Done,
    /// There was no memory for it.
    Failed,
    /// No allocator could do anything with the graph.
    Refused,
    /// Only sizes were asked for.
    Dry,
}

impl ReserveOutcome {
    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Dry => "dry",
        }
    }
}

/// Describes the buffer types of a handle that is about to be made. `None` where nothing is reported.
///
/// # Safety
/// The buffer types are this ggml's.
pub(crate) unsafe fn describe_memories(ggml: &GgmlInstance, types: &[GgmlBufferType]) -> Option<String> {
    file()?;
    catch_panic(|| {
        let mut list = String::new();
        for (index, &buffer_type) in types.iter().enumerate() {
            let is_shared = types[..index].contains(&buffer_type);
            let comma = if index == 0 { "" } else { "," };
            // SAFETY: passed on.
            let place = unsafe { MemoryDescription::of(ggml, buffer_type) };
            let _ = write!(list, "{comma}{{{place},\"shared\":{is_shared}}}");
        }
        let version = ggml.known().map(|known| known.version()).unwrap_or_default();
        format!("\"ggml_version\":{},\"memories\":[{list}]", JsonString(&version))
    })
}

/// Reports a new handle with what was [described](describe_memories), and why it is not ours, if it is not.
pub(crate) fn report_open(handle: *const GallocrHandle, described: Option<String>, why: Option<String>) {
    let (Some(file), Some(described)) = (file(), described) else { return };
    let owner = match HANDLES.get(handle.addr()) {
        Some(HandleOwner::Us) => "steeve",
        Some(HandleOwner::Ggml(_)) => "ggml",
        None => return,
    };
    let why = why.map(|why| format!("\"why\":{},", JsonString(&why))).unwrap_or_default();
    append_line(file, "open", format_args!("\"handle\":\"{handle:p}\",\"owner\":\"{owner}\",{why}{described}"));
}

/// Reports that a handle is about to be freed.
pub(crate) fn report_close(handle: *const GallocrHandle) {
    if let Some(file) = file().filter(|_| HANDLES.get(handle.addr()).is_some()) {
        append_line(file, "close", format_args!("\"handle\":\"{handle:p}\""));
    }
}

/// Lets a handle act on a graph, and reports what ggml would need for it and what the handle has afterwards. Where that
/// fails, it reports what a reserve would have taken.
///
/// # Safety
/// The request's graph is one of the handle's ggml, with null or a number for each node and leaf.
pub(crate) unsafe fn reserve_and_report(
    handle: &mut GallocrHandle,
    request: ReserveRequest,
    act: impl FnOnce(&mut GallocrHandle) -> bool,
) -> bool {
    let Some(file) = file() else { return act(handle) };
    // First, since tensors may have addresses afterwards.
    // SAFETY: passed on.
    let ggml = unsafe { simulated_chunks(handle, request) };
    let done = act(handle);
    catch_panic(|| {
        let sizes = match (done, &ggml) {
            (true, _) => Some((0..handle.types().len()).map(|index| handle.buffer_size(index as c_int)).collect()),
            // The handle has just said so.
            (false, Err(GraphReadError::Malformed(_))) => None,
            // SAFETY: passed on.
            (false, _) => unsafe { handle.reserve_size(request) },
        };
        report_reserve(file, handle, if done { ReserveOutcome::Done } else { ReserveOutcome::Failed }, ggml, sizes);
    });
    done
}

/// Lets a handle say what a reserve would take, and reports that. `None` for a graph that is refused.
///
/// # Safety
/// As [`reserve_and_report`].
pub(crate) unsafe fn size_and_report(handle: &mut GallocrHandle, request: ReserveRequest) -> Option<Vec<usize>> {
    // SAFETY: passed on.
    let Some(file) = file() else { return unsafe { handle.reserve_size(request) } };
    // SAFETY: passed on.
    let (ggml, sizes) = unsafe { (simulated_chunks(handle, request), handle.reserve_size(request)) };
    catch_panic(|| report_reserve(file, handle, ReserveOutcome::Dry, ggml, sizes.clone()));
    sizes
}

/// Returns the chunks of ggml's own plan, simulated now or before.
///
/// # Safety
/// As [`reserve_and_report`].
unsafe fn simulated_chunks(handle: &mut GallocrHandle, request: ReserveRequest) -> Result<ChunkSizes, GraphReadError> {
    let mut simulations = std::mem::take(&mut handle.report_state.simulations);
    // SAFETY: passed on.
    let chunks = catch_panic(|| unsafe { simulations.chunks(handle.ggml(), handle.types(), request) });
    handle.report_state.simulations = simulations;
    chunks.unwrap_or_else(|| Err(GraphReadError::Unsupported("internal error".into())))
}

/// Writes what a handle has, or would have, in each memory, unless that is what was written last. Without sizes the graph was
/// refused.
fn report_reserve(
    file: &Path,
    handle: &mut GallocrHandle,
    outcome: ReserveOutcome,
    ggml: Result<ChunkSizes, GraphReadError>,
    sizes: Option<Vec<usize>>,
) {
    let outcome = if sizes.is_some() { outcome } else { ReserveOutcome::Refused };
    // A buffer type that is listed twice has its memory once.
    let is_shared = |index: usize| handle.types()[..index].contains(&handle.types()[index]);
    let sizes = sizes.unwrap_or_default();
    let steeve: Vec<usize> =
        sizes.iter().enumerate().map(|(index, size)| if is_shared(index) { 0 } else { *size }).collect();
    // What ggml's own allocator has is what ggml takes, whether we can read the graph or not.
    let ggml = match handle.is_ours() {
        true => ggml.ok(),
        false => Some(steeve.iter().map(|size| vec![*size as u64]).collect()),
    };
    let ggml = ggml.map_or_else(|| "null".to_owned(), |chunks| format!("{chunks:?}"));
    let figures = format!("\"outcome\":\"{}\",\"ggml\":{ggml},\"steeve\":{steeve:?}", outcome.name());
    let hash = fnv_1a(figures.as_bytes());
    if handle.report_state.last == hash {
        return;
    }
    handle.report_state.last = hash;
    append_line(file, "reserve", format_args!("\"handle\":\"{:p}\",{figures}", std::ptr::from_ref(handle)));
}

/// Reports the buffer that was made for the tensors of a context. Where there is none, what it would have taken.
///
/// # Safety
/// A context and a buffer type of this ggml's, and null or a buffer of it.
pub(crate) unsafe fn report_context_buffer(
    ggml: &GgmlInstance,
    context: GgmlContext,
    buffer_type: GgmlBufferType,
    buffer: GgmlBuffer,
) {
    let Some(file) = file() else { return };
    // SAFETY: passed on.
    catch_panic(|| unsafe {
        if !buffer.is_null() {
            let Some(functions) = ggml.functions() else { return };
            let (bytes, place) =
                ((functions.ggml_backend_buffer_get_size)(buffer), MemoryDescription::of(ggml, buffer_type));
            let what = context_contents(ggml, context);
            BUFFERS.insert(buffer.addr(), ());
            append_line(
                file,
                "buffer",
                format_args!(
                    "\"buffer\":\"{buffer:p}\",\"context\":\"{context:p}\",{place},\"contents\":\"{what}\",\"bytes\":{bytes}"
                ),
            );
        } else if let Some(size) = ggml.forwarded.size_of_context {
            report_context_size(ggml, context, buffer_type, size(context, buffer_type));
        }
    });
}

/// Reports what a buffer for the tensors of a context would take.
///
/// # Safety
/// A context and a buffer type of this ggml's.
pub(crate) unsafe fn report_context_size(
    ggml: &GgmlInstance,
    context: GgmlContext,
    buffer_type: GgmlBufferType,
    bytes: usize,
) {
    let Some(file) = file().filter(|_| bytes > 0) else { return };
    // SAFETY: passed on.
    catch_panic(|| unsafe {
        let (what, place) = (context_contents(ggml, context), MemoryDescription::of(ggml, buffer_type));
        append_line(
            file,
            "size",
            format_args!("\"context\":\"{context:p}\",{place},\"contents\":\"{what}\",\"bytes\":{bytes}"),
        );
    });
}

/// Reports a buffer over memory that the program has already.
///
/// # Safety
/// Null or a buffer of this ggml's.
pub(crate) unsafe fn report_mapped_buffer(ggml: &GgmlInstance, buffer: GgmlBuffer) {
    let Some(file) = file().filter(|_| !buffer.is_null()) else { return };
    // SAFETY: passed on.
    catch_panic(|| unsafe {
        let (Some(functions), Some(type_of)) = (ggml.functions(), ggml.forwarded.type_of_buffer) else { return };
        let (bytes, place) =
            ((functions.ggml_backend_buffer_get_size)(buffer), MemoryDescription::of(ggml, type_of(buffer)));
        BUFFERS.insert(buffer.addr(), ());
        append_line(file, "mapped", format_args!("\"buffer\":\"{buffer:p}\",{place},\"bytes\":{bytes}"));
    });
}

/// Reports that a buffer is about to be freed, if it was reported at all.
pub(crate) fn report_dropped_buffer(buffer: GgmlBuffer) {
    let Some(file) = file() else { return };
    catch_panic(|| {
        if BUFFERS.remove(buffer.addr()).is_some() {
            append_line(file, "drop", format_args!("\"buffer\":\"{buffer:p}\""));
        }
    });
}

/// Returns what the tensors of a context are, by the names that llama.cpp gives them. One name decides for the whole context,
/// since each has tensors of one kind.
///
/// # Safety
/// A context of this ggml's, or null.
unsafe fn context_contents(ggml: &GgmlInstance, context: GgmlContext) -> &'static str {
    let functions = (ggml.forwarded.first_tensor, ggml.forwarded.next_tensor);
    let ((Some(first), Some(next)), false, Ok(_)) = (functions, context.is_null(), ggml.known()) else {
        return "other";
    };
    // SAFETY: as promised; the structure of tensors is known.
    let mut tensor: *mut GgmlTensor = unsafe { first(context) };
    while !tensor.is_null() {
        // SAFETY: a tensor of the context; its name ends within its bytes, or is cut there.
        let name = unsafe { &*(&raw const (*tensor).name).cast::<[u8; crate::ggml_abi::NAME_BYTES]>() };
        let name = CStr::from_bytes_until_nul(name).map(CStr::to_bytes).unwrap_or(name);
        let has = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
        if name.starts_with(b"cache_") {
            return "caches";
        }
        if has(b".weight") || has(b".bias") {
            return "weights";
        }
        // SAFETY: as above.
        tensor = unsafe { next(context, tensor) };
    }
    "other"
}

/// A buffer type as the reader knows it: its name, its device's name, and whether it is memory of the host.
struct MemoryDescription {
    memory: String,
    device: Option<String>,
    is_host: bool,
}

impl MemoryDescription {
    /// Describes a buffer type; as `unknown` if ggml lacks a function that is needed.
    ///
    /// # Safety
    /// A buffer type of this ggml's.
    unsafe fn of(ggml: &GgmlInstance, buffer_type: GgmlBufferType) -> Self {
        let Some(functions) = ggml.functions() else {
            return Self { memory: "unknown".to_owned(), device: None, is_host: false };
        };
        // SAFETY: as promised; devices live as long as ggml.
        unsafe {
            let memory = text((functions.ggml_backend_buft_name)(buffer_type)).unwrap_or_default();
            let device = BufferTypeDevice::of(functions, buffer_type);
            let is_host = device.is_host || device.is_cpu() || memory == "CPU";
            let device = device.pointer.and_then(|device| text(ggml.forwarded.name_of_device?(device)));
            Self { memory, device, is_host }
        }
    }
}

impl fmt::Display for MemoryDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"memory\":{},\"host\":{}", JsonString(&self.memory), self.is_host)?;
        match &self.device {
            Some(device) => write!(f, ",\"device\":{}", JsonString(device)),
            None => Ok(()),
        }
    }
}

/// A text as a JSON string.
struct JsonString<'a>(&'a str);

impl fmt::Display for JsonString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                letter if u32::from(letter) < 0x20 => write!(f, "\\u{:04x}", u32::from(letter))?,
                letter => f.write_char(letter)?,
            }
        }
        f.write_char('"')
    }
}

/// Appends one line. The file is opened each time, for a program may close what it does not know. What goes wrong is the
/// reader's loss, and no matter to the program.
fn append_line(file: &Path, event: &str, what: fmt::Arguments<'_>) {
    let process = std::process::id();
    let line = format!("{{\"report\":{REPORT_VERSION},\"process\":{process},\"event\":\"{event}\",{what}}}\n");
    let _ = OpenOptions::new().append(true).create(true).open(file).and_then(|mut it| it.write_all(line.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_json_string_whatever_is_in_it() {
        assert_eq!(JsonString("CUDA0").to_string(), "\"CUDA0\"");
        assert_eq!(JsonString("a\"b\\c\nd").to_string(), "\"a\\\"b\\\\c\\u000ad\"");
    }
}
