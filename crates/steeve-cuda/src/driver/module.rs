//! Kernels that are loaded.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Context, Fault, Raw, call};

/// Kernels in the memory of a GPU.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<Context>,
    raw: Raw<sys::CUmod_st>,
}

/// A kernel of a module that is still loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(pub(super) Raw<sys::CUfunc_st>);

impl Module {
    /// Loads what a compiler has made for this GPU.
    pub(crate) fn load(context: &Arc<Context>, image: &[u8]) -> Result<Self, Fault> {
        let _entered = context.enter()?;
        let mut raw = null_mut();
        let _quiet = context.quiet();
        call!(cuModuleLoadData(&mut raw, image.as_ptr().cast::<c_void>()))?;
        Ok(Self { context: Arc::clone(context), raw: Raw(raw) })
    }

    pub(crate) fn function(&self, name: &str) -> Result<Function, Fault> {
        let _entered = self.context.enter()?;
        let name = CString::new(name).map_err(|_| Fault::missing())?;
        let mut raw = null_mut();
        call!(cuModuleGetFunction(&mut raw, self.raw.0, name.as_ptr()))?;
        Ok(Function(Raw(raw)))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.let_go(|| call!(cuModuleUnload(self.raw.0)));
    }
}
