//! Which ggml a call came from.
//!
//! Programs load ggml in their own way, often so that its names are nobody else's (`RTLD_LOCAL`), and there may be two of
//! them. So each caller is asked for its own: the object that the call came from, or else the one that the buffer type
//! stands in, or else any that has ggml's functions. An object is opened again without being loaded, and a name is
//! looked up in it and in what it was linked with, never among everybody's.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::functions::Functions;
use crate::ggml::Ggml;

/// The ggml that `caller` calls, or that `memory` belongs to.
pub(crate) fn ggml_of(caller: *const c_void, memory: *const c_void) -> Result<&'static Ggml, String> {
    let mut missing = "no loaded object has ggml's functions";
    for object in [caller, memory].into_iter().filter_map(object_of).chain(loaded()) {
        match object.functions() {
            Ok(functions) => return Ok(known(functions)),
            // Whoever has some of them is worth more words than whoever has none.
            Err(name) if object.symbol(c"ggml_backend_buft_get_alignment").is_some() => missing = name,
            Err(_) => {}
        }
    }
    Err(format!("ggml can't be found: {missing}"))
}

/// One entry per ggml for as long as the process lives.
fn known(functions: Functions) -> &'static Ggml {
    static KNOWN: Mutex<Vec<&'static Ggml>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match known.iter().find(|ggml| ggml.is(&functions)) {
        Some(ggml) => ggml,
        None => {
            let ggml: &'static Ggml = Box::leak(Box::new(Ggml::new(functions)));
            known.push(ggml);
            ggml
        }
    }
}

/// A loaded object that has been opened again.
struct Object(*mut c_void);

impl Object {
    /// An object by its path; the program itself has an empty one.
    fn open(path: &CStr) -> Option<Self> {
        let name = if path.is_empty() { std::ptr::null() } else { path.as_ptr() };
        // SAFETY: the path is a C string or null. What is loaded already is only looked up; it is never closed again.
        let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self(handle))
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open and the name is a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        // The program's own handle finds everybody's names, ours among them: that would be a call in circles.
        (!found.is_null() && !is_ours(found)).then_some(found)
    }

    fn functions(&self) -> Result<Functions, &'static str> {
        Functions::find(|name| self.symbol(name).unwrap_or(std::ptr::null_mut()))
    }
}

/// The object that an address lies in.
fn object_of(address: *const c_void) -> Option<Object> {
    let info = info_of(address)?;
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name as long as the object is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    // The program's name is what it was started with, which need not be a path: then it is opened without one.
    Object::open(name).or_else(|| is_program(name).then(|| Object::open(c"")).flatten())
}

fn info_of(address: *const c_void) -> Option<libc::Dl_info> {
    if address.is_null() {
        return None;
    }
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for, and `info` is ours to be written.
    let known = unsafe { libc::dladdr(address, &mut info) };
    (known != 0).then_some(info)
}

fn is_program(name: &CStr) -> bool {
    std::env::args_os().next().is_some_and(|first| first.as_encoded_bytes() == name.to_bytes())
}

/// Whether an address lies in this library.
fn is_ours(address: *mut c_void) -> bool {
    let base = |address| info_of(address).map(|info| info.dli_fbase);
    // In a test or a static library everything is one object, and nobody is preloaded.
    cfg!(not(any(test, feature = "whole"))) && base(address) == base(is_ours as *const c_void)
}

/// All loaded objects, in the order in which they were loaded.
fn loaded() -> impl Iterator<Item = Object> {
    let mut names: Vec<CString> = Vec::new();
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader hands over an object's description, and `loaded` its own vector.
        let (info, names) = unsafe { (&*info, &mut *names.cast::<Vec<CString>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: a name of the loader's.
            names.push(unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned());
        }
        0
    }
    // SAFETY: `note` is called before this returns and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names.into_iter().filter_map(|name| Object::open(&name))
}
