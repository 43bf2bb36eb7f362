//! Which loaded object an address lies in.

use std::ffi::c_void;

/// Returns what the loader knows of an address; `None` outside of all loaded objects.
pub(crate) fn info_of(address: *const c_void) -> Option<libc::Dl_info> {
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

/// Returns the start of the loaded object that an address lies in.
pub(crate) fn base_of(address: *const c_void) -> Option<usize> {
    info_of(address).map(|info| info.dli_fbase.addr())
}
