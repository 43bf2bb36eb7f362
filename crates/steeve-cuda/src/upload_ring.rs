//! Uploads from plain memory of the host without waiting for the GPU: bytes are taken at once, into pinned memory that the
//! GPU fetches them from when it gets there.

use std::sync::Arc;

use crate::driver::{Context, CudaEvent, DriverError, PinnedBytes, Stream};

/// Two halves in turn: one is filled while the GPU may still fetch from the other.
#[derive(Debug)]
pub(crate) struct UploadRing {
    bytes: PinnedBytes,
    /// When the GPU has fetched all that was in a half before.
    fetched: [Option<CudaEvent>; 2],
    /// The half that is being filled, and how far it is.
    half: usize,
    used: usize,
}

/// Bytes of a half.
const HALF: usize = 1 << 20;

impl UploadRing {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        Ok(Self { bytes: PinnedBytes::new(context, 2 * HALF)?, fetched: [None, None], half: 0, used: 0 })
    }

    /// Enqueues a copy; `from` has been read when this returns. All of it goes through one stream.
    ///
    /// # Safety
    /// The target is memory of a GPU, and stays so until the copy is done.
    pub(crate) unsafe fn upload(&mut self, stream: &Stream, to: u64, from: &[u8]) -> Result<(), DriverError> {
        for (index, piece) in from.chunks(HALF).enumerate() {
            if self.used + piece.len() > HALF {
                self.turn(stream)?;
            }
            let start = self.half * HALF + self.used;
            let place = &mut self.bytes.as_mut()[start..start + piece.len()];
            place.copy_from_slice(piece);
            // SAFETY: as promised; this place is not written before `turn` has seen that it was fetched.
            unsafe { stream.upload(to + (index * HALF) as u64, place.as_ptr(), piece.len() as u64)? };
            self.used += piece.len();
        }
        Ok(())
    }

    /// Goes on in the other half, when the GPU has fetched what is there.
    fn turn(&mut self, stream: &Stream) -> Result<(), DriverError> {
        self.fetched[self.half] = Some(stream.record()?);
        let other = 1 - self.half;
        if let Some(event) = &self.fetched[other] {
            event.synchronise()?;
        }
        (self.half, self.used) = (other, 0);
        Ok(())
    }
}
