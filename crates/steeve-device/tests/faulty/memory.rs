//! A memory that is wrong in one way.

use std::any::Any;
use std::sync::{Arc, Mutex};

use steeve_device::{Align, Buffer, BufferType, Bytes, DeviceError, HostMemory, Offset, Padding, TensorId, Tensors};

/// In which way a memory is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryFault {
    None,
    NoName,
    MisalignedBase,
    Smaller,
    RefusesZero,
    /// Says that it gives out larger buffers than it does.
    OverstatesMax,
    /// Gives out a smaller buffer where it should refuse.
    CutsToMax,
    /// Gives out nothing after it has refused something.
    Sulks,
    PadsAtRandom,
    TwoTypes,
    AcceptsOneMore,
    RefusesTheLast,
    RefusesEmptyAtEnd,
    AcceptsEmptyBeyond,
    /// Adds offset and size without looking.
    Wraps,
    /// Cuts offsets to 32 bits.
    Cuts,
    /// Refuses, after it has written what there was room for.
    WritesThenRefuses,
    /// Refuses, after it has read what there was.
    ReadsThenRefuses,
    FillsThenRefuses,
    CopiesThenRefuses,
    SaysLittle,
    WrongNumbers,
    WritesWords,
    ReadsWords,
    FillsOneMore,
    FillsOneLess,
    FillsZeros,
    ClearLeavesTheLast,
    CopiesUpwards,
    CopiesDownwards,
    CopiesFromStart,
    CopiesToStart,
    CopiesAtMostOneMegabyte,
    ResetClears,
    /// Stands elsewhere after it has grown.
    GrowsElsewhere,
    /// Has grown, it says.
    SaysItHasGrown,
    /// Loses its bytes.
    GrowsEmpty,
    SharesBytes,
    ReadersDisturb,
    NoBytesForReaders,
}

/// A right buffer, which several wrong ones may share.
type SoundBuffer = Arc<Mutex<Box<dyn Buffer>>>;

#[derive(Debug)]
pub(crate) struct FaultyMemory {
    inner: Arc<dyn BufferType>,
    fault: MemoryFault,
    shared: Mutex<Vec<SoundBuffer>>,
    refused: Mutex<bool>,
    calls: Mutex<u64>,
}

impl FaultyMemory {
    pub(crate) fn memory(fault: MemoryFault) -> Arc<dyn BufferType> {
        Self::around(Arc::new(HostMemory::named("wrong")), fault)
    }

    fn around(inner: Arc<dyn BufferType>, fault: MemoryFault) -> Arc<dyn BufferType> {
        let (shared, refused, calls) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { inner, fault, shared, refused, calls })
    }
}

/// What it says is its largest buffer, where it says so.
pub(crate) const MAX: u64 = 1 << 22;

impl BufferType for FaultyMemory {
    fn name(&self) -> &str {
        if self.fault == MemoryFault::NoName { " " } else { self.inner.name() }
    }

    fn align(&self) -> Align {
        self.inner.align()
    }

    fn max_size(&self) -> Option<Bytes> {
        matches!(self.fault, MemoryFault::OverstatesMax | MemoryFault::CutsToMax).then_some(Bytes(MAX))
    }

    fn is_host(&self) -> bool {
        false
    }

    fn padding(&self) -> Option<&dyn Padding> {
        (self.fault == MemoryFault::PadsAtRandom).then_some(self as &dyn Padding)
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        let refuse = |max| Err(DeviceError::TooLarge { memory: self.name().into(), asked: size, max: Bytes(max) });
        match self.fault {
            MemoryFault::RefusesZero if size == Bytes(0) => return refuse(0),
            MemoryFault::OverstatesMax if size >= Bytes(MAX) => return refuse(MAX - 1),
            MemoryFault::Sulks if *self.refused.lock().unwrap() => return refuse(0),
            _ => {}
        }
        let asked = if self.fault == MemoryFault::CutsToMax { Bytes(size.0.min(MAX)) } else { size };
        let inner = self.inner.allocate(asked).inspect_err(|_| *self.refused.lock().unwrap() = true)?;
        let mut shared = self.shared.lock().unwrap();
        let inner = match shared.iter().find(|other| other.lock().unwrap().size() == asked) {
            Some(other) if self.fault == MemoryFault::SharesBytes => Arc::clone(other),
            _ => Arc::new(Mutex::new(inner)),
        };
        if self.fault == MemoryFault::SharesBytes {
            shared.push(Arc::clone(&inner));
        }
        Ok(Box::new(FaultyBuffer { inner, fault: self.fault, other: () }))
    }
}

impl Padding for FaultyMemory {
    fn alloc_size(&self, tensors: &Tensors, tensor: TensorId) -> Bytes {
        let mut calls = self.calls.lock().unwrap();
        *calls += 1;
        Bytes(tensors[tensor].nbytes().0 + *calls)
    }
}

#[derive(Debug)]
struct FaultyBuffer {
    inner: SoundBuffer,
    fault: MemoryFault,
    other: (),
}

impl FaultyBuffer {
    fn with<R>(&self, act: impl FnOnce(&mut dyn Buffer) -> R) -> R {
        act(&mut **self.inner.lock().unwrap())
    }

    /// What the fault makes of a range: another one, or an end of it all.
    fn bend(&self, offset: Offset, size: u64) -> Result<Offset, Result<(), DeviceError>> {
        let room = self.size();
        let refuse = || Err(DeviceError::Outside { memory: "wrong".into(), offset, size: Bytes(size), room });
        let end = offset.0.checked_add(size);
        let outside = end.is_none_or(|end| end > room.0);
        match self.fault {
            MemoryFault::AcceptsOneMore if end == Some(room.0 + 1) => Err(Ok(())),
            MemoryFault::RefusesTheLast if end == Some(room.0) && size > 0 => Err(refuse()),
            MemoryFault::RefusesEmptyAtEnd if offset.0 == room.0 => Err(refuse()),
            MemoryFault::AcceptsEmptyBeyond if size == 0 => Ok(Offset(offset.0.min(room.0))),
            MemoryFault::Wraps if offset.0.wrapping_add(size) <= room.0 && outside => Err(Ok(())),
            MemoryFault::Cuts => Ok(Offset(offset.0 & 0xFFFF_FFFF)),
            MemoryFault::SaysLittle if outside => {
                Err(Err(DeviceError::Failed { device: "wrong".into(), why: "no".into() }))
            }
            MemoryFault::WrongNumbers if outside => {
                Err(Err(DeviceError::Outside { memory: "wrong".into(), offset: Offset(7), size: Bytes(size), room }))
            }
            _ => Ok(offset),
        }
    }

    /// How many bytes there are behind an offset.
    fn rest(&self, offset: Offset) -> u64 {
        self.size().0.saturating_sub(offset.0)
    }
}

impl Buffer for FaultyBuffer {
    fn grow(&mut self, size: Bytes) -> Result<bool, DeviceError> {
        let larger = || HostMemory::named("wrong").allocate(size);
        match self.fault {
            MemoryFault::SaysItHasGrown => Ok(true),
            MemoryFault::GrowsElsewhere => {
                let (mut moved, size) = (larger()?, self.size());
                moved.copy_from(Offset(0), &**self.inner.lock().unwrap(), Offset(0), size)?;
                self.inner = Arc::new(Mutex::new(moved));
                Ok(true)
            }
            MemoryFault::GrowsEmpty => {
                self.inner = Arc::new(Mutex::new(larger()?));
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn size(&self) -> Bytes {
        let size = self.with(|inner| inner.size());
        if self.fault == MemoryFault::Smaller { Bytes(size.0.saturating_sub(1)) } else { size }
    }

    fn address(&self) -> u64 {
        self.with(|inner| inner.address()) + u64::from(self.fault == MemoryFault::MisalignedBase)
    }

    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        let offset = match self.bend(offset, into.len() as u64) {
            Ok(offset) => offset,
            Err(end) => return end,
        };
        match self.fault {
            MemoryFault::NoBytesForReaders if !into.is_empty() => Err(DeviceError::NoBytes { memory: "wrong".into() }),
            MemoryFault::ReadsThenRefuses if self.rest(offset) < into.len() as u64 => {
                let rest = self.rest(offset) as usize;
                let _ = self.with(|inner| inner.read(offset, &mut into[..rest]));
                self.with(|inner| inner.read(offset, into))
            }
            MemoryFault::ReadsWords => {
                let words = into.len() / 4 * 4;
                self.with(|inner| inner.read(offset, &mut into[..words]))?;
                self.with(|inner| inner.read(Offset(offset.0.saturating_add(into.len() as u64)), &mut []))
            }
            MemoryFault::ReadersDisturb => self.with(|inner| {
                inner.read(offset, into)?;
                if into.is_empty() { Ok(()) } else { inner.fill(offset, Bytes(1), !into[0]) }
            }),
            _ => self.with(|inner| inner.read(offset, into)),
        }
    }

    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        let offset = match self.bend(offset, from.len() as u64) {
            Ok(offset) => offset,
            Err(end) => return end,
        };
        match self.fault {
            MemoryFault::WritesThenRefuses if self.rest(offset) < from.len() as u64 => {
                let rest = self.rest(offset) as usize;
                let _ = self.with(|inner| inner.write(offset, &from[..rest]));
                self.with(|inner| inner.write(offset, from))
            }
            MemoryFault::WritesWords => {
                self.with(|inner| inner.write(Offset(offset.0.saturating_add(from.len() as u64)), &[]))?;
                self.with(|inner| inner.write(offset, &from[..from.len() / 4 * 4]))
            }
            _ => self.with(|inner| inner.write(offset, from)),
        }
    }

    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError> {
        let offset = match self.bend(offset, size.0) {
            Ok(offset) => offset,
            Err(end) => return end,
        };
        let rest = self.rest(offset);
        match self.fault {
            MemoryFault::FillsOneMore if size.0 > 0 && size.0 < rest => {
                self.with(|inner| inner.fill(offset, Bytes(size.0 + 1), byte))
            }
            MemoryFault::FillsOneLess if size.0 > 1 && size.0 <= rest => {
                self.with(|inner| inner.fill(offset, Bytes(size.0 - 1), byte))
            }
            MemoryFault::FillsZeros => self.with(|inner| inner.fill(offset, size, 0)),
            MemoryFault::FillsThenRefuses if size.0 > rest => {
                let _ = self.with(|inner| inner.fill(offset, Bytes(rest), byte));
                self.with(|inner| inner.fill(offset, size, byte))
            }
            _ => self.with(|inner| inner.fill(offset, size, byte)),
        }
    }

    fn clear(&mut self, byte: u8) -> Result<(), DeviceError> {
        let less = u64::from(self.fault == MemoryFault::ClearLeavesTheLast);
        self.fill(Offset(0), Bytes(self.size().0 - less), byte)
    }

    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError> {
        for offset in [from, to] {
            if let Err(end) = self.bend(offset, size.0) {
                return end;
            }
        }
        let (from, to) = match self.fault {
            MemoryFault::Cuts => (Offset(from.0 & 0xFFFF_FFFF), Offset(to.0 & 0xFFFF_FFFF)),
            MemoryFault::AcceptsEmptyBeyond if size.0 == 0 => (Offset(0), Offset(0)),
            _ => (from, to),
        };
        let fits = |offset: Offset| offset.checked_add(size).is_some_and(|end| end.0 <= self.size().0);
        let each = |at: u64| {
            self.with(|inner| {
                let mut byte = [0];
                inner.read(Offset(from.0 + at), &mut byte)?;
                inner.write(Offset(to.0 + at), &byte)
            })
        };
        match self.fault {
            MemoryFault::CopiesUpwards if fits(from) && fits(to) => (0..size.0).try_for_each(each),
            MemoryFault::CopiesDownwards if fits(from) && fits(to) => (0..size.0).rev().try_for_each(each),
            MemoryFault::CopiesThenRefuses if !fits(to) && fits(from) => {
                let rest = self.rest(to);
                let _ = self.with(|inner| inner.copy_within(from, to, Bytes(rest)));
                self.with(|inner| inner.copy_within(from, to, size))
            }
            _ => self.with(|inner| inner.copy_within(from, to, size)),
        }
    }

    fn copy_from(&mut self, to: Offset, source: &dyn Buffer, from: Offset, size: Bytes) -> Result<(), DeviceError> {
        let (from, to) = match self.fault {
            // Out of bounds is still out of bounds.
            MemoryFault::CopiesFromStart if from.0.saturating_add(size.0) <= source.size().0 => (Offset(0), to),
            MemoryFault::CopiesToStart if to.0.saturating_add(size.0) <= self.size().0 => (from, Offset(0)),
            _ => (from, to),
        };
        if let Err(end) = self.bend(to, size.0) {
            return end;
        }
        let short = self.fault == MemoryFault::CopiesAtMostOneMegabyte && size.0 <= self.size().0.min(source.size().0);
        let size = if short { Bytes(size.0.min(1 << 20)) } else { size };
        // The way of the trait itself, through what this buffer makes of reads and writes.
        DefaultCopies(self).copy_from(to, source, from, size)
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        if self.fault == MemoryFault::ResetClears { self.clear(0) } else { Ok(()) }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        if self.fault == MemoryFault::TwoTypes { &mut self.other } else { self }
    }
}

/// The buffer of a faulty memory with the default copies of the trait.
#[derive(Debug)]
struct DefaultCopies<'a>(&'a mut FaultyBuffer);

impl Buffer for DefaultCopies<'_> {
    fn size(&self) -> Bytes {
        self.0.size()
    }

    fn address(&self) -> u64 {
        self.0.address()
    }

    fn read(&self, offset: Offset, into: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read(offset, into)
    }

    fn write(&mut self, offset: Offset, from: &[u8]) -> Result<(), DeviceError> {
        self.0.write(offset, from)
    }

    fn fill(&mut self, offset: Offset, size: Bytes, byte: u8) -> Result<(), DeviceError> {
        self.0.fill(offset, size, byte)
    }

    fn copy_within(&mut self, from: Offset, to: Offset, size: Bytes) -> Result<(), DeviceError> {
        self.0.copy_within(from, to, size)
    }

    fn as_any(&self) -> &dyn Any {
        unreachable!("copies do not ask for the type")
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        unreachable!("copies do not ask for the type")
    }
}
