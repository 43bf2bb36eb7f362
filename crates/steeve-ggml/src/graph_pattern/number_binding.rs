//! Which tensor each number of a pattern means, as last time or anew.

use crate::ggml_abi::GgmlTensor;

/// Which tensor each number means.
pub(super) trait NumberBinding {
    /// Returns whether the number means this tensor.
    fn is(&mut self, number: u32, tensor: *mut GgmlTensor) -> bool;

    /// Returns the tensor of a number.
    fn tensor(&self, number: u32) -> *mut GgmlTensor;
}

/// Each number means the tensor of the last time.
pub(super) struct PreviousBinding<'a>(&'a [*mut GgmlTensor]);

impl<'a> PreviousBinding<'a> {
    /// Takes the tensors that the numbers meant last time.
    ///
    /// # Safety
    /// No number that is asked for is above the last of these tensors'.
    pub(super) unsafe fn new(tensors: &'a [*mut GgmlTensor]) -> Self {
        Self(tensors)
    }
}

impl NumberBinding for PreviousBinding<'_> {
    #[inline(always)]
    fn is(&mut self, number: u32, tensor: *mut GgmlTensor) -> bool {
        debug_assert!((number as usize) < self.0.len());
        // SAFETY: as was promised to `new`. It is asked several times for each tensor.
        unsafe { *self.0.get_unchecked(number as usize) == tensor }
    }

    fn tensor(&self, number: u32) -> *mut GgmlTensor {
        self.0[number as usize]
    }
}

/// A number means the tensor that it is met with first. The last number means none.
pub(super) struct FreshBinding<'a>(pub(super) &'a mut [*mut GgmlTensor]);

impl NumberBinding for FreshBinding<'_> {
    #[inline(always)]
    fn is(&mut self, number: u32, tensor: *mut GgmlTensor) -> bool {
        let is_none = number as usize == self.0.len() - 1;
        let slot = &mut self.0[number as usize];
        if slot.is_null() && !is_none {
            *slot = tensor;
        }
        *slot == tensor && tensor.is_null() == is_none
    }

    fn tensor(&self, number: u32) -> *mut GgmlTensor {
        self.0[number as usize]
    }
}
