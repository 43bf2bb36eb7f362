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

use crate::abi::{Buffer, BufferType, Context, Tensor};
use crate::devices::Device;
use crate::ggml::{Ggml, text};
use crate::handle::{Handle, Request, catch};
use crate::hash::fnv_1a;
use crate::read::Unreadable;
use crate::registry::{HANDLES, Owner, Registry};
use crate::settings::settings;
use crate::simulation::{Chunks, Simulations};

/// The version of the lines.
const VERSION: u32 = 1;

/// The buffers that were reported and are not freed yet. Programs make and free many more to find out what a device can do.
static BUFFERS: Registry<()> = Registry::new();

/// The file that is written to, if the environment names one.
pub(crate) fn file() -> Option<&'static Path> {
    settings().report.as_deref()
}

/// What a handle remembers of its lines.
#[derive(Default)]
pub(crate) struct Reported {
    /// A hash of the last `reserve`.
    last: u64,
    simulations: Simulations,
}

/// What became of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The handle has its buffers.
    Done,
    /// There was no memory for it.
    Failed,
    /// No allocator could do anything with the graph.
    Refused,
    /// Only sizes were asked for.
    Dry,
}

impl Outcome {
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
pub(crate) unsafe fn describe(ggml: &Ggml, types: &[BufferType]) -> Option<String> {
    file()?;
    catch(|| {
        let mut list = String::new();
        for (index, &buffer_type) in types.iter().enumerate() {
            let is_shared = types[..index].contains(&buffer_type);
            let comma = if index == 0 { "" } else { "," };
            // SAFETY: passed on.
            let place = unsafe { Place::of(ggml, buffer_type) };
            let _ = write!(list, "{comma}{{{place},\"shared\":{is_shared}}}");
        }
        let version = ggml.known().map(|known| known.version()).unwrap_or_default();
        format!("\"ggml_version\":{},\"memories\":[{list}]", Quoted(&version))
    })
}

/// Reports a new handle with what was [described](describe), and why it is not ours, if it is not.
pub(crate) fn opened(handle: *const Handle, described: Option<String>, why: Option<String>) {
    let (Some(file), Some(described)) = (file(), described) else { return };
    let owner = match HANDLES.get(handle.addr()) {
        Some(Owner::Us) => "steeve",
        Some(Owner::Ggml(_)) => "ggml",
        None => return,
    };
    let why = why.map(|why| format!("\"why\":{},", Quoted(&why))).unwrap_or_default();
    append(file, "open", format_args!("\"handle\":\"{handle:p}\",\"owner\":\"{owner}\",{why}{described}"));
}

/// Reports that a handle is about to be freed.
pub(crate) fn closed(handle: *const Handle) {
    if let Some(file) = file().filter(|_| HANDLES.get(handle.addr()).is_some()) {
        append(file, "close", format_args!("\"handle\":\"{handle:p}\""));
    }
}

/// Lets a handle act on a graph, and reports what ggml would need for it and what the handle has afterwards. Where that
/// fails, it reports what a reserve would have taken.
///
/// # Safety
/// The request's graph is one of the handle's ggml, with null or a number for each node and leaf.
pub(crate) unsafe fn reserving(handle: &mut Handle, request: Request, act: impl FnOnce(&mut Handle) -> bool) -> bool {
    let Some(file) = file() else { return act(handle) };
    // First, since tensors may have addresses afterwards.
    // SAFETY: passed on.
    let ggml = unsafe { simulated(handle, request) };
    let done = act(handle);
    catch(|| {
        let sizes = match (done, &ggml) {
            (true, _) => Some((0..handle.types().len()).map(|index| handle.buffer_size(index as c_int)).collect()),
            // The handle has just said so.
            (false, Err(Unreadable::Malformed(_))) => None,
            // SAFETY: passed on.
            (false, _) => unsafe { handle.reserve_size(request) },
        };
        reserved(file, handle, if done { Outcome::Done } else { Outcome::Failed }, ggml, sizes);
    });
    done
}

/// Lets a handle say what a reserve would take, and reports that. `None` for a graph that is refused.
///
/// # Safety
/// As [`reserving`].
pub(crate) unsafe fn sizing(handle: &mut Handle, request: Request) -> Option<Vec<usize>> {
    // SAFETY: passed on.
    let Some(file) = file() else { return unsafe { handle.reserve_size(request) } };
    // SAFETY: passed on.
    let (ggml, sizes) = unsafe { (simulated(handle, request), handle.reserve_size(request)) };
    catch(|| reserved(file, handle, Outcome::Dry, ggml, sizes.clone()));
    sizes
}

/// The chunks of ggml's own plan, simulated now or before.
///
/// # Safety
/// As [`reserving`].
unsafe fn simulated(handle: &mut Handle, request: Request) -> Result<Chunks, Unreadable> {
    let mut simulations = std::mem::take(&mut handle.reported.simulations);
    // SAFETY: passed on.
    let chunks = catch(|| unsafe { simulations.chunks(handle.ggml(), handle.types(), request) });
    handle.reported.simulations = simulations;
    chunks.unwrap_or_else(|| Err(Unreadable::Unknown("something went wrong inside".into())))
}

/// Writes what a handle has, or would have, in each memory, unless that is what was written last. Without sizes the graph was
/// refused.
fn reserved(
    file: &Path,
    handle: &mut Handle,
    outcome: Outcome,
    ggml: Result<Chunks, Unreadable>,
    sizes: Option<Vec<usize>>,
) {
    let outcome = if sizes.is_some() { outcome } else { Outcome::Refused };
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
    if handle.reported.last == hash {
        return;
    }
    handle.reported.last = hash;
    append(file, "reserve", format_args!("\"handle\":\"{:p}\",{figures}", std::ptr::from_ref(handle)));
}

/// Reports the buffer that was made for the tensors of a context. Where there is none, what it would have taken.
///
/// # Safety
/// A context and a buffer type of this ggml's, and null or a buffer of it.
pub(crate) unsafe fn allocated(ggml: &Ggml, context: Context, buffer_type: BufferType, buffer: Buffer) {
    let Some(file) = file() else { return };
    // SAFETY: passed on.
    catch(|| unsafe {
        if !buffer.is_null() {
            let Some(functions) = ggml.functions() else { return };
            let (bytes, place) = ((functions.ggml_backend_buffer_get_size)(buffer), Place::of(ggml, buffer_type));
            let what = contents(ggml, context);
            BUFFERS.insert(buffer.addr(), ());
            append(
                file,
                "buffer",
                format_args!(
                    "\"buffer\":\"{buffer:p}\",\"context\":\"{context:p}\",{place},\"contents\":\"{what}\",\"bytes\":{bytes}"
                ),
            );
        } else if let Some(size) = ggml.passed.size_of_context {
            sized(ggml, context, buffer_type, size(context, buffer_type));
        }
    });
}

/// Reports what a buffer for the tensors of a context would take.
///
/// # Safety
/// A context and a buffer type of this ggml's.
pub(crate) unsafe fn sized(ggml: &Ggml, context: Context, buffer_type: BufferType, bytes: usize) {
    let Some(file) = file().filter(|_| bytes > 0) else { return };
    // SAFETY: passed on.
    catch(|| unsafe {
        let (what, place) = (contents(ggml, context), Place::of(ggml, buffer_type));
        append(
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
pub(crate) unsafe fn mapped(ggml: &Ggml, buffer: Buffer) {
    let Some(file) = file().filter(|_| !buffer.is_null()) else { return };
    // SAFETY: passed on.
    catch(|| unsafe {
        let (Some(functions), Some(type_of)) = (ggml.functions(), ggml.passed.type_of_buffer) else { return };
        let (bytes, place) = ((functions.ggml_backend_buffer_get_size)(buffer), Place::of(ggml, type_of(buffer)));
        BUFFERS.insert(buffer.addr(), ());
        append(file, "mapped", format_args!("\"buffer\":\"{buffer:p}\",{place},\"bytes\":{bytes}"));
    });
}

/// Reports that a buffer is about to be freed, if it was reported at all.
pub(crate) fn dropped(buffer: Buffer) {
    let Some(file) = file() else { return };
    catch(|| {
        if BUFFERS.remove(buffer.addr()).is_some() {
            append(file, "drop", format_args!("\"buffer\":\"{buffer:p}\""));
        }
    });
}

/// What the tensors of a context are, by the names that llama.cpp gives them. One name decides for the whole context, since
/// each has tensors of one kind.
///
/// # Safety
/// A context of this ggml's, or null.
unsafe fn contents(ggml: &Ggml, context: Context) -> &'static str {
    let functions = (ggml.passed.first_tensor, ggml.passed.next_tensor);
    let ((Some(first), Some(next)), false, Ok(_)) = (functions, context.is_null(), ggml.known()) else {
        return "other";
    };
    // SAFETY: as promised; the structure of tensors is known.
    let mut tensor: *mut Tensor = unsafe { first(context) };
    while !tensor.is_null() {
        // SAFETY: a tensor of the context; its name ends within its bytes, or is cut there.
        let name = unsafe { &*(&raw const (*tensor).name).cast::<[u8; crate::abi::NAME_BYTES]>() };
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
struct Place {
    memory: String,
    device: Option<String>,
    is_host: bool,
}

impl Place {
    /// # Safety
    /// A buffer type of this ggml's.
    unsafe fn of(ggml: &Ggml, buffer_type: BufferType) -> Self {
        let Some(functions) = ggml.functions() else {
            return Self { memory: "unknown".to_owned(), device: None, is_host: false };
        };
        // SAFETY: as promised; devices live as long as ggml.
        unsafe {
            let memory = text((functions.ggml_backend_buft_name)(buffer_type)).unwrap_or_default();
            let device = Device::of(functions, buffer_type);
            let is_host = device.is_host || device.is_cpu() || memory == "CPU";
            let device = device.pointer.and_then(|device| text(ggml.passed.name_of_device?(device)));
            Self { memory, device, is_host }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"memory\":{},\"host\":{}", Quoted(&self.memory), self.is_host)?;
        match &self.device {
            Some(device) => write!(f, ",\"device\":{}", Quoted(device)),
            None => Ok(()),
        }
    }
}

/// A text as a JSON string.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
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
fn append(file: &Path, event: &str, what: fmt::Arguments<'_>) {
    let process = std::process::id();
    let line = format!("{{\"report\":{VERSION},\"process\":{process},\"event\":\"{event}\",{what}}}\n");
    let _ = OpenOptions::new().append(true).create(true).open(file).and_then(|mut it| it.write_all(line.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_json_string_whatever_is_in_it() {
        assert_eq!(Quoted("CUDA0").to_string(), "\"CUDA0\"");
        assert_eq!(Quoted("a\"b\\c\nd").to_string(), "\"a\\\"b\\\\c\\u000ad\"");
    }
}
