//! Kernels that are loaded.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;

use super::{Context, DriverError, DriverHandle, call};

/// Kernels in the memory of a GPU.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<Context>,
    raw: DriverHandle<sys::CUmod_st>,
}

/// A kernel of a module that is still loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(pub(super) DriverHandle<sys::CUfunc_st>);

impl Module {
    /// Loads what a compiler has made for this GPU.
    pub(crate) fn load(context: &Arc<Context>, image: &[u8]) -> Result<Self, DriverError> {
        let _entered = context.enter()?;
        let mut raw = null_mut();
        let _quiet = context.quiet();
        call!(cuModuleLoadData(&mut raw, image.as_ptr().cast::<c_void>()))?;
        Ok(Self { context: Arc::clone(context), raw: DriverHandle(raw) })
    }

    pub(crate) fn function(&self, name: &str) -> Result<Function, DriverError> {
        let _entered = self.context.enter()?;
        let name = CString::new(name).map_err(|_| DriverError::missing())?;
        let mut raw = null_mut();
        call!(cuModuleGetFunction(&mut raw, self.raw.0, name.as_ptr()))?;
        Ok(Function(DriverHandle(raw)))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.let_go(|| call!(cuModuleUnload(self.raw.0)));
    }
}
