//! Products of matrices by cuBLAS.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{from_ref, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;

use cudarc::cublas::sys;
use steeve_device::DeviceError;
use steeve_graph::DataType;

use crate::driver::{Context, DeviceBytes, Stream};
use crate::memory::{allocate, out_of_memory};

/// Returns whether the library can be loaded, and loads it.
pub(crate) fn is_there() -> bool {
    // SAFETY: only tries to load the library.
    let is_there = unsafe { sys::is_culib_present() };
    if is_there {
        // SAFETY: it can be loaded. It stays from now on, since loading it takes a while.
        unsafe { sys::culib() };
    }
    is_there
}

/// `a` `[k, m]` and `b` `[k, n]` make `[m, n]` of f32, some times over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    /// Of both sources.
    pub(crate) dtype: DataType,
    pub(crate) m: i32,
    pub(crate) n: i32,
    pub(crate) k: i32,
    pub(crate) a: MatrixOperand,
    pub(crate) b: MatrixOperand,
    pub(crate) result: MatrixOperand,
    pub(crate) count: i32,
}

/// Where a matrix is: elements from row to row, and from one matrix to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatrixOperand {
    pub(crate) address: u64,
    pub(crate) row: i32,
    pub(crate) next: i64,
}

/// What the library may use meanwhile. As much as it wants on the newest GPUs.
const WORKSPACE: u64 = 32 << 20;

/// The library on one stream at a time.
pub(crate) struct Blas {
    handle: sys::cublasHandle_t,
    workspace: DeviceBytes,
}

// SAFETY: a handle may go from thread to thread; no two share it.
unsafe impl Send for Blas {}

/// Why there is no library.
pub(crate) enum NoBlas {
    /// There is no room for what it needs.
    Memory(DeviceError),
    /// It does not work here: a part of it is missing, or it does not know this GPU or its driver.
    Broken(String),
}

impl From<String> for NoBlas {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

impl Blas {
    pub(crate) fn new(device: &str, context: &Arc<Context>, stream: &Stream) -> Result<Self, NoBlas> {
        let memory = format!("{device}, for cuBLAS,");
        let _entered = context.enter().map_err(String::from)?;
        let workspace = allocate(&memory, context, WORKSPACE).map_err(NoBlas::Memory)?;
        let mut handle = null_mut();
        let made = {
            let _quiet = context.quiet();
            // SAFETY: the context is current.
            unsafe { sys::cublasCreate_v2(&mut handle) }
        };
        if made == sys::cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED {
            // It does not say how much it wants beside the workspace.
            return Err(NoBlas::Memory(out_of_memory(&memory, context, WORKSPACE)));
        }
        said("cublasCreate", made)?;
        let blas = Self { handle, workspace };
        // SAFETY: a handle that was just made. Single precision stays single precision.
        said("cublasSetMathMode", unsafe {
            sys::cublasSetMathMode(blas.handle, sys::cublasMath_t::CUBLAS_DEFAULT_MATH)
        })?;
        blas.turn_to(stream)?;
        Ok(blas)
    }

    /// Enqueues on this stream from now on. It is never used on two at a time: they would share the workspace.
    pub(crate) fn turn_to(&self, stream: &Stream) -> Result<(), String> {
        let _entered = stream.context().enter()?;
        // SAFETY: a handle of this context and a stream that its owner keeps for as long as something is enqueued.
        said("cublasSetStream", unsafe { sys::cublasSetStream_v2(self.handle, stream.raw().cast()) })?;
        let (start, size) =
            (with_exposed_provenance_mut(self.workspace.address() as usize), self.workspace.len() as usize);
        // SAFETY: memory that lives as long as the handle. A new stream has made the library forget it.
        said("cublasSetWorkspace", unsafe { sys::cublasSetWorkspace_v2(self.handle, start, size) })
    }

    /// # Safety
    /// The context is current. All matrices are memory of the GPU, and stay until the product is done.
    pub(crate) unsafe fn enqueue(&self, product: &Product) -> Result<(), String> {
        use sys::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
        let Product { dtype, m, n, k, a, b, result, count } = *product;
        let kind = match dtype {
            DataType::F16 => sys::cudaDataType_t::CUDA_R_16F,
            DataType::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
            _ => sys::cudaDataType_t::CUDA_R_32F,
        };
        let (one, zero) = (1.0f32, 0.0f32);
        let source = |side: MatrixOperand| with_exposed_provenance::<c_void>(side.address as usize);
        // SAFETY: as promised, and the two numbers are read before this returns.
        let done = unsafe {
            sys::cublasGemmStridedBatchedEx(
                self.handle,
                CUBLAS_OP_T,
                CUBLAS_OP_N,
                m,
                n,
                k,
                from_ref(&one).cast(),
                source(a),
                kind,
                a.row,
                a.next,
                source(b),
                kind,
                b.row,
                b.next,
                from_ref(&zero).cast(),
                with_exposed_provenance_mut(result.address as usize),
                sys::cudaDataType_t::CUDA_R_32F,
                result.row,
                result.next,
                count,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        said("cublasGemmStridedBatchedEx", done).map_err(|why| format!("{why} for {m} x {n} x {k}, {count} times"))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if let Ok(_entered) = self.workspace.context().enter() {
            let _quiet = self.workspace.context().quiet();
            // SAFETY: `new` has made it.
            unsafe { sys::cublasDestroy_v2(self.handle) };
        }
    }
}

impl fmt::Debug for Blas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blas").finish_non_exhaustive()
    }
}

fn said(call: &str, status: sys::cublasStatus_t) -> Result<(), String> {
    if status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS { Ok(()) } else { Err(format!("{call}: {status:?}")) }
}
