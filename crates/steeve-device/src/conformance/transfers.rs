//! The laws of memory that has bytes: each transfer is made beside a vector, and then the two are compared in full.

use std::fmt::Display;
use std::sync::Arc;

use steeve_graph::{Bytes, Offset};

use super::memory::{Law, at_most, usual_size};
use super::random::Random;
use super::report::{Findings, LawAbort};
use crate::{Buffer, BufferType, Device, DeviceError, DiscreteDevice, HostMemory, Span, SpanMut};

pub(super) const LAWS: &[Law] = &[
    ("what is written can be read", round_trips),
    ("a transfer may reach the end", reaches_the_end),
    ("a transfer that passes the end is refused and changes nothing", passes_the_end),
    ("a copy that passes an end is refused and changes nothing", copy_passes_an_end),
    ("fill and clear touch their range alone", fills),
    ("copies within a buffer may overlap", overlaps),
    ("copies from another buffer arrive", copies),
    ("copies from and to host memory arrive", host_copies),
    ("copies from and to another device arrive", foreign_copies),
    ("large copies arrive", large_copies),
    ("a buffer that grows keeps its bytes and its place", grows),
    ("reset leaves the bytes", reset),
    ("no two buffers share a byte", apart),
    ("many can read at once", readers),
    ("the host accesses host memory directly", host_spans),
];

/// A buffer, and the bytes that it should have.
struct MirroredBuffer {
    buffer: Box<dyn Buffer>,
    mirror: Vec<u8>,
}

impl MirroredBuffer {
    /// Allocates a buffer of `size` bytes or more, and fills it with random bytes.
    fn new(memory: &dyn BufferType, size: u64, random: &mut Random) -> Result<Self, LawAbort> {
        let mut buffer = memory.allocate(Bytes(size))?;
        let room = buffer.size().0;
        if room < size {
            return Err(LawAbort::Failed(format!("{size} bytes were asked for, and the buffer has {room}")));
        }
        if room > TOO_LARGE {
            return Err(LawAbort::Skip(format!("a buffer of {size} bytes has {room}, which is too much to look at")));
        }
        let mirror = random.bytes(room as usize);
        buffer.write(Offset(0), &mirror)?;
        Ok(Self { buffer, mirror })
    }

    fn usual(memory: &dyn BufferType, random: &mut Random) -> Result<Self, LawAbort> {
        Self::new(memory, usual_size(memory)?, random)
    }

    fn room(&self) -> u64 {
        self.mirror.len() as u64
    }

    /// Reads all bytes, and records where they are not what they should be.
    fn verify(&self, findings: &mut Findings, after: impl Display) -> Result<(), LawAbort> {
        let mut seen = vec![0; self.mirror.len()];
        self.buffer.read(Offset(0), &mut seen)?;
        let differ = || seen.iter().zip(&self.mirror).enumerate().filter(|(_, (seen, mirror))| seen != mirror);
        if let Some((at, (seen, mirror))) = differ().next() {
            let (count, room) = (differ().count(), self.room());
            findings.report_violation(format!(
                "after {after}, byte {at} of {room} is {seen:#04x} instead of {mirror:#04x}; {count} bytes differ"
            ));
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), LawAbort> {
        self.buffer.write(Offset(offset), from)?;
        self.mirror[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn fill(&mut self, offset: u64, size: u64, byte: u8) -> Result<(), LawAbort> {
        self.buffer.fill(Offset(offset), Bytes(size), byte)?;
        self.mirror[offset as usize..][..size as usize].fill(byte);
        Ok(())
    }

    fn copy_within(&mut self, from: u64, to: u64, size: u64) -> Result<(), LawAbort> {
        self.buffer.copy_within(Offset(from), Offset(to), Bytes(size))?;
        self.mirror.copy_within(from as usize..(from + size) as usize, to as usize);
        Ok(())
    }

    fn copy_from(&mut self, to: u64, source: &Self, from: u64, size: u64) -> Result<(), LawAbort> {
        self.buffer.copy_from(Offset(to), &*source.buffer, Offset(from), Bytes(size))?;
        self.mirror[to as usize..][..size as usize].copy_from_slice(&source.mirror[from as usize..][..size as usize]);
        Ok(())
    }
}

/// The size above which buffers are not compared.
const TOO_LARGE: u64 = 1 << 28;

/// Returns ranges that lie within `room` bytes: every edge, and some in between.
fn inside(room: u64, random: &mut Random) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    for offset in [0, 1, 2, 3, room / 2, room.saturating_sub(2), room.saturating_sub(1), room] {
        let rest = room.saturating_sub(offset);
        ranges.extend([0, 1, 2, 3, rest.saturating_sub(1), rest].map(|size| (offset, size)));
    }
    for _ in 0..32 {
        let offset = random.below(room + 1);
        ranges.push((offset, random.below(room - offset + 1)));
    }
    ranges.retain(|(offset, size)| offset + size <= room);
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

/// Returns ranges of at most `room + 1` bytes that pass the end of `room` bytes, also by passing 2^64 or by being cut
/// to 32 bits.
fn short_outside(room: u64) -> Vec<(u64, u64)> {
    let max = u64::MAX;
    let mut ranges = vec![(0, room + 1), (1, room), (room, 1), (room + 1, 0), (room + 1, 1), (room + 4096, 0)];
    ranges.extend([(room - 1, 2), (room / 2, room - room / 2 + 1), (1 << 32, 0), (1 << 32, 1), (1 << 63, 1)]);
    ranges.extend([(max, 0), (max, 1), (max - room + 1, room), (max - room, room + 1), (max / 2, 1)]);
    ranges
}

/// Returns the ranges of [`short_outside`], and ranges that are longer than any slice.
fn outside(room: u64) -> Vec<(u64, u64)> {
    let max = u64::MAX;
    let long = [
        (0, max),
        (1, max),
        (room, max),
        (max, max),
        (room / 2, (max - room / 2).saturating_add(1)),
        (0, 1 << 32),
        (1, 1 << 63),
    ];
    short_outside(room).into_iter().chain(long).collect()
}

/// Checks that a refusal has the numbers of the call.
fn expect_outside(findings: &mut Findings, what: &str, asked: (u64, u64), room: u64, result: Result<(), DeviceError>) {
    let (offset, size) = asked;
    let asked = || format!("{what} of {size} bytes at offset {offset} of {room}");
    match result {
        Ok(()) => findings.report_violation(format!("{} was accepted", asked())),
        Err(DeviceError::Outside { offset: o, size: s, room: r, .. }) => {
            let same = (o.0, s.0, r.0) == (offset, size, room);
            findings.expect(same, || format!("{} was refused as {s} bytes at offset {o} of {r}", asked()));
        }
        Err(other) => findings.report_violation(format!("{} was refused with other words: {other}", asked())),
    }
}

fn round_trips(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(1);
    let mut mirrored = MirroredBuffer::usual(&**memory, random)?;
    mirrored.verify(findings, "a write of all bytes")?;
    for _ in 0..64 {
        let offset = random.below(mirrored.room());
        let size = random.below((mirrored.room() - offset).min(67) + 1);
        mirrored.write(offset, &random.bytes(size as usize))?;
        mirrored.verify(findings, format_args!("a write of {size} bytes at offset {offset}"))?;
    }
    Ok(())
}

fn reaches_the_end(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(2);
    let mut mirrored = MirroredBuffer::usual(&**memory, random)?;
    for (offset, size) in inside(mirrored.room(), random) {
        let at = format!("of {size} bytes at offset {offset} of {}", mirrored.room());
        let mut seen = vec![0; size as usize];
        match mirrored.buffer.read(Offset(offset), &mut seen) {
            Ok(()) => {
                let same = seen == mirrored.mirror[offset as usize..][..size as usize];
                findings.expect(same, || format!("a read {at} gave other bytes"));
            }
            Err(error) => findings.report_violation(format!("a read {at} was refused: {error}")),
        }
        if let Err(error) = mirrored.buffer.write(Offset(offset), &seen) {
            findings.report_violation(format!("a write {at} was refused: {error}"));
        }
        if let Err(LawAbort::Failed(error)) = mirrored.fill(offset, size, 0x3C) {
            findings.report_violation(format!("a fill {at} was {error}"));
        }
        mirrored.verify(findings, format_args!("transfers {at}"))?;
        mirrored.write(0, &random.bytes(mirrored.mirror.len()))?;
    }
    Ok(())
}

fn passes_the_end(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(3);
    let mut mirrored = MirroredBuffer::usual(&**memory, random)?;
    let room = mirrored.room();
    for asked @ (offset, size) in short_outside(room) {
        let (at, sent) = (Offset(offset), random.bytes(size as usize));
        let mut seen = sent.clone();
        expect_outside(findings, "a read", asked, room, mirrored.buffer.read(at, &mut seen));
        findings.expect(seen == sent, || format!("a refused read of {size} bytes at {offset} gave some of them"));
        expect_outside(findings, "a write", asked, room, mirrored.buffer.write(at, &sent));
        mirrored.verify(findings, format_args!("a refused write of {size} bytes at offset {offset}"))?;
    }
    for asked @ (offset, size) in outside(room) {
        let result = mirrored.buffer.fill(Offset(offset), Bytes(size), 0x3C);
        expect_outside(findings, "a fill", asked, room, result);
        mirrored.verify(findings, format_args!("a refused fill of {size} bytes at offset {offset}"))?;
    }
    Ok(())
}

fn copy_passes_an_end(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(4);
    let (mut mirrored, other) = (MirroredBuffer::usual(&**memory, random)?, MirroredBuffer::usual(&**memory, random)?);
    if mirrored.room() != other.room() {
        return Err(LawAbort::Skip(String::from("two buffers of one size have different sizes")));
    }
    let (room, start) = (mirrored.room(), Offset(0));
    for (offset, size) in outside(room) {
        let (at, bytes, from) = (Offset(offset), Bytes(size), &*other.buffer);
        let tries = [
            ("a copy within, from there", mirrored.buffer.copy_within(at, start, bytes)),
            ("a copy within, to there", mirrored.buffer.copy_within(start, at, bytes)),
            ("a copy from another, from there", mirrored.buffer.copy_from(start, from, at, bytes)),
            ("a copy from another, to there", mirrored.buffer.copy_from(at, from, start, bytes)),
        ];
        for (what, result) in tries {
            // If both ranges pass the end, the memory may report either.
            let swapped =
                matches!(&result, Err(DeviceError::Outside { offset, .. }) if *offset == start && size > room);
            let told = if swapped { (0, size) } else { (offset, size) };
            expect_outside(findings, what, told, room, result);
        }
        mirrored.verify(findings, format_args!("refused copies of {size} bytes at offset {offset}"))?;
        other.verify(findings, format_args!("refused copies of {size} bytes at offset {offset}"))?;
    }
    Ok(())
}

fn fills(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(5);
    let mut mirrored = MirroredBuffer::usual(&**memory, random)?;
    for (offset, size) in inside(mirrored.room(), random) {
        for byte in [0, 0xFF, 0x5A] {
            mirrored.fill(offset, size, byte)?;
            mirrored.verify(findings, format_args!("a fill of {size} bytes at offset {offset} with {byte:#04x}"))?;
        }
        mirrored.write(0, &random.bytes(mirrored.mirror.len()))?;
    }
    for byte in [0x5A, 0, 0xFF] {
        mirrored.buffer.clear(byte)?;
        mirrored.mirror.fill(byte);
        mirrored.verify(findings, format_args!("a clear with {byte:#04x}"))?;
    }
    Ok(())
}

fn overlaps(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(6);
    let mut mirrored = MirroredBuffer::usual(&**memory, random)?;
    let room = mirrored.room();
    for shift in [0, 1, 2, 3, 4, 7, 8, 13, 16, 31, 64, 100, 255, room / 2, room - 1] {
        for size in [0, 1, 2, 5, 8, 63, 64, 65, 333, room.saturating_sub(shift)] {
            let Some(spare) = room.checked_sub(shift + size) else { continue };
            let low = random.below(spare + 1);
            for (from, to) in [(low, low + shift), (low + shift, low)] {
                mirrored.copy_within(from, to, size)?;
                mirrored.verify(findings, format_args!("a copy within of {size} bytes from offset {from} to {to}"))?;
            }
        }
        mirrored.write(0, &random.bytes(mirrored.mirror.len()))?;
    }
    Ok(())
}

/// Checks copies at every edge of both buffers.
fn copy_between(
    target: &mut MirroredBuffer,
    source: &MirroredBuffer,
    findings: &mut Findings,
    random: &mut Random,
) -> Result<(), LawAbort> {
    for (from, size) in inside(source.room(), random) {
        let Some(spare) = target.room().checked_sub(size) else { continue };
        for to in [0, random.below(spare + 1), spare] {
            target.copy_from(to, source, from, size)?;
            target.verify(findings, format_args!("a copy of {size} bytes from offset {from} of another to {to}"))?;
        }
        source.verify(findings, format_args!("a copy of {size} bytes out of it"))?;
        target.write(0, &random.bytes(target.mirror.len()))?;
    }
    Ok(())
}

fn copies(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(7);
    let (mut target, source) = (MirroredBuffer::usual(&**memory, random)?, MirroredBuffer::usual(&**memory, random)?);
    copy_between(&mut target, &source, findings, random)
}

fn host_copies(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    both_ways(&**memory, &HostMemory::new(), findings)
}

fn foreign_copies(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    both_ways(&**memory, &*DiscreteDevice::new("another device").buffer_types()[0], findings)
}

fn both_ways(memory: &dyn BufferType, foreign: &dyn BufferType, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(8);
    let (mut here, mut there) =
        (MirroredBuffer::usual(memory, random)?, MirroredBuffer::new(foreign, usual_size(memory)?, random)?);
    copy_between(&mut here, &there, findings, random)?;
    copy_between(&mut there, &here, findings, random)
}

/// Longer than any piece by piece that a device may have: 1 MiB and a bit.
fn large_copies(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let (random, wanted) = (&mut Random::new(9), (1 << 21) + (1 << 20) + 77);
    let size = at_most(&**memory, wanted);
    if size < wanted {
        return Err(LawAbort::Skip(format!("no buffer has more than {size} bytes")));
    }
    let (mut here, other) =
        (MirroredBuffer::new(&**memory, size, random)?, MirroredBuffer::new(&**memory, size, random)?);
    let mut host = MirroredBuffer::new(&HostMemory::new(), size, random)?;
    let most = size - 13;
    here.copy_from(5, &other, 7, most)?;
    here.verify(findings, format_args!("a copy of {most} bytes from another buffer"))?;
    here.copy_from(3, &host, 11, most)?;
    here.verify(findings, format_args!("a copy of {most} bytes from host memory"))?;
    host.copy_from(2, &other, 13, most)?;
    host.verify(findings, format_args!("a copy of {most} bytes to host memory"))?;
    for shift in [1, 4096, 1 << 20, (1 << 20) + 1] {
        for (from, to) in [(0, shift), (shift, 0)] {
            let most = here.room() - shift;
            here.copy_within(from, to, most)?;
            here.verify(findings, format_args!("a copy within of {most} bytes from offset {from} to {to}"))?;
        }
    }
    Ok(())
}

fn grows(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(16);
    for (size, more) in
        [(usual_size(&**memory)?, 1), (at_most(&**memory, 3 << 20), 3), (at_most(&**memory, 3 << 20), 7 << 20)]
    {
        let mut mirrored = MirroredBuffer::new(&**memory, size, random)?;
        let address = mirrored.buffer.address();
        for _ in 0..3 {
            let wanted = at_most(&**memory, mirrored.room() + more);
            if wanted <= mirrored.room() {
                break;
            }
            let grown = mirrored.buffer.grow(Bytes(wanted))?;
            let (room, now) = (mirrored.buffer.size().0, mirrored.buffer.address());
            let fits = if grown { room >= wanted } else { room == mirrored.room() };
            findings.expect(fits && now == address, || {
                format!("{wanted} bytes at {address:#x} are {room} at {now:#x} after a growth that says {grown}")
            });
            if room > TOO_LARGE || room < mirrored.room() {
                break;
            }
            let (start, behind) = (mirrored.room(), random.bytes((room - mirrored.room()) as usize));
            mirrored.mirror.extend(&behind);
            mirrored.write(start, &behind)?;
            mirrored.verify(findings, format_args!("a growth to {room} bytes"))?;
            if !grown {
                break;
            }
        }
    }
    Ok(())
}

fn reset(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let mut mirrored = MirroredBuffer::usual(&**memory, &mut Random::new(10))?;
    for _ in 0..2 {
        mirrored.buffer.reset()?;
        mirrored.verify(findings, "a reset")?;
    }
    Ok(())
}

fn apart(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let random = &mut Random::new(11);
    let mut pieces: Vec<MirroredBuffer> = Vec::new();
    for round in 0..12 {
        // Some are dropped in between, so that their memory may be given out again.
        if round % 4 == 3 {
            pieces.remove(random.below(pieces.len() as u64) as usize);
        }
        pieces.push(MirroredBuffer::usual(&**memory, random)?);
        for mirrored in &pieces {
            mirrored.verify(findings, "another buffer was made and written")?;
        }
    }
    let byte = [0x77];
    for index in 0..pieces.len() {
        pieces[index].fill(0, 1, byte[0])?;
        for mirrored in &pieces {
            mirrored.verify(findings, "another buffer was filled")?;
        }
    }
    Ok(())
}

fn readers(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    let mirrored = MirroredBuffer::usual(&**memory, &mut Random::new(12))?;
    let read = || {
        let mut found = Findings::default();
        let end = (0..16).try_for_each(|_| mirrored.verify(&mut found, "reads of several threads"));
        (found, end)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        for thread in threads {
            match thread.join() {
                Ok((found, end)) => {
                    findings.absorb(found);
                    end?;
                }
                Err(_) => findings.report_violation("a reader panicked"),
            }
        }
        Ok(())
    })
}

fn host_spans(memory: &Arc<dyn BufferType>, findings: &mut Findings) -> Result<(), LawAbort> {
    if !memory.is_host() {
        return Err(LawAbort::Skip(String::from("it is no host memory")));
    }
    let mut mirrored = MirroredBuffer::usual(&**memory, &mut Random::new(13))?;
    let (address, room) = (mirrored.buffer.address(), Bytes(mirrored.room()));
    let Some(span) = Span::of(&*mirrored.buffer, Offset(0), room) else {
        return Err(LawAbort::Skip(String::from("its buffers are no HostBuffer")));
    };
    let start = span?.start().addr() as u64;
    findings.expect(start == address, || format!("a buffer at address {address:#x} starts at {start:#x}"));
    if let Some(span) = SpanMut::of(&mut *mirrored.buffer, Offset(0), room) {
        span?.as_slice_mut().fill(0x42);
        mirrored.mirror.fill(0x42);
    }
    mirrored.verify(findings, "a write by the host")
}
