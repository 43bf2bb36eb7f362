//! Whether a file has ggml's graph allocator in it where no preloaded library can take its place.
//!
//! ```text
//!   ELF header --> section headers --> relocations (SHT_RELA) --symbol--> SHT_DYNSYM --name--> SHT_STRTAB
//! ```
//!
//! A call that can be taken over has a relocation with the function's name; that is how the drop-in judges what is loaded, too.

use std::fs;
use std::path::Path;

/// The name of the allocator's source, which its assertions have in them, also where all symbols are gone.
const SOURCE: &[u8] = b"ggml-alloc.c";

/// A function that ggml's scheduler calls.
const FUNCTION: &[u8] = b"ggml_gallocr_reserve_n";

/// Larger files are not looked at.
const MOST: u64 = 1 << 30;

const DYNAMIC_SYMBOLS: u32 = 11;
const RELOCATIONS: u32 = 4;

/// Returns whether a file has the allocator, and no call of it that can be taken over. What can't be read has neither.
pub(super) fn has_ggml_bound_inside(file: &Path) -> bool {
    let is_read = fs::metadata(file).is_ok_and(|about| about.is_file() && about.len() <= MOST);
    let bytes = if is_read { fs::read(file).unwrap_or_default() } else { Vec::new() };
    is_bound_inside(&bytes)
}

fn is_bound_inside(bytes: &[u8]) -> bool {
    // 64 bits, little-endian.
    let is_elf = bytes.starts_with(b"\x7fELF\x02\x01");
    is_elf && bytes.windows(SOURCE.len()).any(|window| window == SOURCE) && names_function(bytes) != Some(true)
}

/// Returns whether a relocation has the name of the function; `None` if the file has no readable sections.
fn names_function(bytes: &[u8]) -> Option<bool> {
    let (start, width, count) = (number(bytes, 0x28, 8)?, number(bytes, 0x3a, 2)?, number(bytes, 0x3c, 2)?);
    let section = |index: u64| {
        let at = usize::try_from(start.checked_add(index.checked_mul(width)?)?).ok()?;
        let field = |offset: usize, width| number(bytes, at.checked_add(offset)?, width);
        let (offset, size) = (usize::try_from(field(0x18, 8)?).ok()?, usize::try_from(field(0x20, 8)?).ok()?);
        let content = bytes.get(offset..offset.checked_add(size)?).unwrap_or_default();
        Some(ElfSection { kind: field(4, 4)? as u32, link: field(0x28, 4)?, content })
    };
    let mut sections = (0..count).map_while(section).peekable();
    sections.peek()?;
    let named = sections.filter(|it| it.kind == RELOCATIONS).any(|relocations| {
        let Some(symbols) = section(relocations.link).filter(|symbols| symbols.kind == DYNAMIC_SYMBOLS) else {
            return false;
        };
        let Some(names) = section(symbols.link) else { return false };
        // 24 bytes each: address, symbol and kind, addend.
        relocations.content.chunks_exact(24).any(|relocation| {
            let name = number(relocation, 12, 4).and_then(|symbol| {
                let name = number(symbols.content, usize::try_from(symbol).ok()?.checked_mul(24)?, 4)?;
                names.content.get(usize::try_from(name).ok()?..)
            });
            name.is_some_and(|name| name.strip_prefix(FUNCTION).is_some_and(|rest| rest.first() == Some(&0)))
        })
    });
    Some(named)
}

struct ElfSection<'a> {
    kind: u32,
    link: u64,
    content: &'a [u8],
}

/// Reads a little-endian number of `width` bytes; `None` beyond the end.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_the_source_and_without_the_relocation_has_it_inside() {
        let mut program = fs::read(std::env::current_exe().unwrap()).unwrap();
        // This test has the function's name in it, as any program may, and no relocation.
        program.extend_from_slice(SOURCE);
        assert!(is_bound_inside(&program));
        program[0] = 0;
        assert!(!is_bound_inside(&program), "no program at all");
        assert!(!is_bound_inside(b"\x7fELF\x02\x01"));
        // Cut anywhere, it is read without a panic.
        let small = &fs::read("/proc/self/exe").unwrap()[..4096];
        (0..small.len()).for_each(|end| assert!(!is_bound_inside(&small[..end])));
    }
}
