//! Which ggml a call came from.
//!
//! Programs load ggml in their own way, often with local names (`RTLD_LOCAL`), and there may be two of
//! them. So it is the one that the buffer type's object sees, for the functions must know it; or else the one that the
//! caller's object sees; or else any. All functions are then taken from the one object that they are defined in: among
//! the global names, those of the allocator are ours.
//!
//! To ask the loader takes microseconds and its locks, so the answer for a buffer type is kept. Nothing here waits for another
//! thread: a process may fork at any time.

use std::ffi::{CStr, CString, c_int, c_void};

use crate::function_tables::{ForwardedFunctions, GgmlFunctions, OriginalFunctions};
use crate::ggml_instance::GgmlInstance;
use crate::growing_list::GrowingList;
use crate::loaded_object::{base_of, info_of};
use crate::log::LogFunction;

/// The functions by which a ggml is known. The first is not ours in any case; the second is there in a ggml that has
/// changed beyond recognition.
const ANCHORS: [&CStr; 2] = [c"ggml_backend_buft_get_alignment", c"ggml_gallocr_new_n"];

/// Returns the ggml that the buffer type `memory` belongs to, or that `caller` calls. Fails if no loaded object has its
/// functions.
///
/// # Safety
/// A buffer type of some ggml's.
pub(crate) unsafe fn ggml_of_buffer_type(
    memory: *const c_void,
    caller: *const c_void,
) -> Result<&'static GgmlInstance, String> {
    // SAFETY: passed on.
    let question = unsafe { GgmlQuery::new(memory, caller) };
    if let Some(ggml) = question.answer() {
        return Ok(ggml);
    }
    if let Some(ggml) = [memory, caller].into_iter().filter_map(object_of).find_map(|object| object.ggml()) {
        question.keep(ggml);
        return Ok(ggml);
    }
    // What is loaded next may be a better answer, so this one is not kept.
    let any = loaded_objects().find_map(|object| object.ggml());
    any.ok_or_else(|| "ggml: not found: no loaded object has its functions".into())
}

/// Returns the ggml that `caller` calls, for functions without a buffer type.
pub(crate) fn ggml_called_by(caller: *const c_void) -> Option<&'static GgmlInstance> {
    let question = GgmlQuery([0, caller.addr(), 0, 0]);
    if let Some(ggml) = question.answer() {
        return Some(ggml);
    }
    if let Some(ggml) = object_of(caller).and_then(|object| object.ggml()) {
        question.keep(ggml);
        return Some(ggml);
    }
    // What is called here asks the buffer or the device itself, which are laid out alike in every ggml since 0.9.4, so that of
    // any will do. What is loaded next may be a better answer, so this one is not kept.
    loaded_objects().find_map(|object| object.ggml())
}

/// The key under which a ggml is remembered: a buffer type, what it begins with, and the place of the call.
///
/// Objects may be unloaded and others loaded at the same addresses. A buffer type begins with the addresses of its functions,
/// so an old answer can only be taken for a new question if another object has a buffer type and two functions where the old
/// one had them, and the call comes from the same address: that is the old object, loaded again. The ggml itself is never
/// unloaded once it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GgmlQuery([usize; 4]);

/// The answers that are kept. There is one for each buffer type and place in the program that makes allocators of it.
static ANSWERS: GrowingList<(GgmlQuery, &'static GgmlInstance)> = GrowingList::new();

/// So many answers are kept.
const MOST_ANSWERS: usize = 128;

impl GgmlQuery {
    /// Reads what identifies the ggml behind a call: the buffer type, the caller, and the first two functions of the buffer type.
    ///
    /// # Safety
    /// A buffer type of some ggml's.
    unsafe fn new(memory: *const c_void, caller: *const c_void) -> Self {
        // SAFETY: in every ggml a buffer type begins with the addresses of several functions.
        let [first, second] = unsafe { memory.cast::<[usize; 2]>().read_unaligned() };
        Self([memory.addr(), caller.addr(), first, second])
    }

    fn answer(self) -> Option<&'static GgmlInstance> {
        ANSWERS.iter().find(|(question, _)| *question == self).map(|(_, ggml)| *ggml)
    }

    /// Keeps the answer, unless there are too many.
    fn keep(self, ggml: &'static GgmlInstance) {
        if ANSWERS.iter().count() < MOST_ANSWERS {
            ANSWERS.find_or_make(|(question, _)| *question == self, || (self, ggml));
        }
    }
}

/// Returns the ggml of the process, if there is only one that has an allocator of its own.
pub(crate) fn only_ggml() -> Option<&'static GgmlInstance> {
    let mut found = loaded_objects().filter_map(|object| object.ggml()).filter(|ggml| ggml.originals.is_some());
    let first = found.next()?;
    found.all(|other| std::ptr::eq(other, first)).then_some(first)
}

/// A loaded object that has been opened again.
struct OpenedObject(*mut c_void);

// SAFETY: the loader's handles may be used by any thread.
unsafe impl Send for OpenedObject {}
// SAFETY: as above.
unsafe impl Sync for OpenedObject {}

impl OpenedObject {
    /// Opens a loaded object by its path; that of the program itself is empty.
    fn open(path: &CStr) -> Option<Self> {
        let name = if path.is_empty() { std::ptr::null() } else { path.as_ptr() };
        // SAFETY: the path is a C string or null. What is loaded already is only looked up.
        let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// Looks a name up in the object and in those it was linked with; in the program, in all global names.
    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open and the name is a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        // Ours would be a call in circles.
        (!found.is_null() && base_of(found) != base_of((&raw const LOADED_GGMLS).cast())).then_some(found)
    }

    /// Returns the ggml whose functions the object sees. Each ggml has one entry for the life of the process.
    fn ggml(&self) -> Option<&'static GgmlInstance> {
        let anchor = ANCHORS.into_iter().find_map(|name| self.symbol(name))?;
        let base = base_of(anchor)?;
        if let Some(known) = LOADED_GGMLS.iter().find(|known| known.base == base) {
            return Some(&known.ggml);
        }
        let home = object_of(anchor)?;
        let find = |name: &CStr| home.symbol(name).unwrap_or(std::ptr::null_mut());
        let (functions, originals) = (GgmlFunctions::find(find), OriginalFunctions::find(find).ok());
        if functions.is_err() && originals.is_none() {
            return None;
        }
        // SAFETY: a function of this name has this signature in every ggml since 0.9.4; a null pointer is `None`.
        let log = unsafe { std::mem::transmute::<*mut c_void, Option<LogFunction>>(find(c"ggml_log_internal")) };
        let ggml = GgmlInstance::new(functions, originals, log).with_forwarded(ForwardedFunctions::find(find));
        let known = LOADED_GGMLS.find_or_make(|known| known.base == base, || LoadedGgml { base, ggml, _home: home });
        Some(&known.ggml)
    }
}

/// A ggml that is known. From then on its functions may be called at any time, so it stays loaded.
struct LoadedGgml {
    base: usize,
    ggml: GgmlInstance,
    _home: OpenedObject,
}

static LOADED_GGMLS: GrowingList<LoadedGgml> = GrowingList::new();

impl Drop for OpenedObject {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and closed once.
        unsafe { libc::dlclose(self.0) };
    }
}

/// Opens the object that an address lies in.
fn object_of(address: *const c_void) -> Option<OpenedObject> {
    let info = info_of(address)?;
    if info.dli_fname.is_null() {
        return None;
    }
    // The program's name is what it was started with, which need not be a path.
    // SAFETY: a number of the kernel's; where it has none, 0.
    let in_program = unsafe { libc::getauxval(libc::AT_PHDR) } as *const c_void;
    if base_of(in_program) == Some(info.dli_fbase.addr()) {
        return OpenedObject::open(c"");
    }
    // SAFETY: the loader keeps the name as long as the object is loaded.
    OpenedObject::open(unsafe { CStr::from_ptr(info.dli_fname) })
}

/// Returns all loaded objects, in the order in which they were loaded.
fn loaded_objects() -> impl Iterator<Item = OpenedObject> {
    let mut names: Vec<CString> = Vec::new();
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader hands over an object's description, and `loaded_objects` its own vector.
        let (info, names) = unsafe { (&*info, &mut *names.cast::<Vec<CString>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: a name of the loader's.
            names.push(unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned());
        }
        0
    }
    // SAFETY: `note` is called before this returns and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names.into_iter().filter_map(|name| OpenedObject::open(&name))
}
