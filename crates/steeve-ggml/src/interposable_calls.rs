//! Whether a loaded object calls its own functions in such a way that another's can come in between.
//!
//! ```text
//!   object --PT_DYNAMIC--> DT_JMPREL, DT_RELA, DT_REL --symbol--> DT_SYMTAB --name--> DT_STRTAB
//! ```
//!
//! A call that a preloaded library can take over has a relocation with the function's name. A function without one is never
//! called in there, or the linker has bound the calls inside (`-Bsymbolic`, link-time optimisation): then it would be handed
//! what is not its own. Nothing is read outside of what the loader has mapped for the object.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

/// `elf.h`: what the entries of the dynamic section are about.
mod dynamic_tag {
    pub(super) const END: usize = 0;
    pub(super) const PLT_SIZE: usize = 2;
    pub(super) const STRINGS: usize = 5;
    pub(super) const SYMBOLS: usize = 6;
    pub(super) const RELA: usize = 7;
    pub(super) const RELA_SIZE: usize = 8;
    pub(super) const STRINGS_SIZE: usize = 10;
    pub(super) const SYMBOL_SIZE: usize = 11;
    pub(super) const SYMBOLIC: usize = 16;
    pub(super) const REL: usize = 17;
    pub(super) const REL_SIZE: usize = 18;
    pub(super) const PLT_KIND: usize = 20;
    pub(super) const PLT: usize = 23;
    pub(super) const FLAGS: usize = 30;
    /// A flag: its own names come before those of all others.
    pub(super) const FLAG_SYMBOLIC: usize = 2;
}

const WORD: usize = size_of::<usize>();

/// Where a relocation's symbol begins in its second word.
const SYMBOL_SHIFT: u32 = if WORD == 8 { 32 } else { 8 };

/// Returns the first of these functions whose calls inside of the object around `address` can't be taken over; `None` if there
/// is none. `Err` if the object can't be read.
pub(crate) fn bound_inside<'a>(address: *const c_void, names: &[&'a CStr]) -> Result<Option<&'a CStr>, &'static str> {
    let object = LoadedImage::around(address).ok_or("not in a loaded object")?;
    let named_by_relocation = object.named_by_relocation(names).ok_or("unreadable relocations")?;
    Ok(names.iter().zip(named_by_relocation).find(|(_, is_named)| !is_named).map(|(name, _)| *name))
}

/// A loaded object: where it was moved to, its readable segments and its dynamic section.
struct LoadedImage {
    moved_by: usize,
    segments: Vec<Range<usize>>,
    dynamic: Range<usize>,
}

impl LoadedImage {
    fn around(address: *const c_void) -> Option<Self> {
        struct Search {
            address: usize,
            found: Option<LoadedImage>,
        }
        unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
            // SAFETY: the loader hands over an object's description, and `around` its own search.
            let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
            let moved_by = info.dlpi_addr as usize;
            let headers = match info.dlpi_phdr.is_null() {
                true => &[],
                // SAFETY: so many headers, of the loader's.
                false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) },
            };
            let range = |start: usize, size: usize| {
                let start = moved_by.wrapping_add(start);
                start..start.saturating_add(size)
            };
            let of_kind = |kind| headers.iter().filter(move |header| header.p_type == kind);
            let readable = of_kind(libc::PT_LOAD).filter(|header| header.p_flags & libc::PF_R != 0);
            let segments: Vec<_> = readable.map(|header| range(header.p_vaddr as _, header.p_memsz as _)).collect();
            if !segments.iter().any(|segment| segment.contains(&search.address)) {
                return 0;
            }
            let dynamic =
                of_kind(libc::PT_DYNAMIC).next().map(|header| range(header.p_vaddr as _, header.p_memsz as _));
            search.found = dynamic.map(|dynamic| LoadedImage { moved_by, segments, dynamic });
            1
        }
        let mut search = Search { address: address.addr(), found: None };
        // SAFETY: `look` is called before this returns and keeps nothing.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        search.found
    }

    /// Returns for each of the names whether a relocation has it. `None` if a table is not where it should be.
    fn named_by_relocation(&self, names: &[&CStr]) -> Option<Vec<bool>> {
        let dynamic = self.table(self.dynamic.start, self.dynamic.len() / (2 * WORD) * (2 * WORD))?;
        let entry = |index: usize| Some((dynamic.word(2 * index)?, dynamic.word(2 * index + 1)?));
        let entries: Vec<_> =
            (0..).map_while(entry).take_while(|(dynamic_tag, _)| *dynamic_tag != dynamic_tag::END).collect();
        let value = |dynamic_tag| entries.iter().find(|entry| entry.0 == dynamic_tag).map(|entry| entry.1);
        if value(dynamic_tag::SYMBOLIC).is_some()
            || value(dynamic_tag::FLAGS).is_some_and(|flags| flags & dynamic_tag::FLAG_SYMBOLIC != 0)
        {
            return Some(vec![false; names.len()]);
        }
        let strings = self.table(value(dynamic_tag::STRINGS)?, value(dynamic_tag::STRINGS_SIZE)?)?;
        let (symbols, symbol_size) = (value(dynamic_tag::SYMBOLS)?, value(dynamic_tag::SYMBOL_SIZE)?);
        let mut named_by_relocation = vec![false; names.len()];
        for (start, size, kind) in [
            (dynamic_tag::PLT, dynamic_tag::PLT_SIZE, value(dynamic_tag::PLT_KIND).unwrap_or(dynamic_tag::RELA)),
            (dynamic_tag::RELA, dynamic_tag::RELA_SIZE, dynamic_tag::RELA),
            (dynamic_tag::REL, dynamic_tag::REL_SIZE, dynamic_tag::REL),
        ] {
            let (Some(start), Some(size)) = (value(start), value(size)) else { continue };
            let words = if kind == dynamic_tag::RELA { 3 } else { 2 };
            let relocations = self.table(start, size)?;
            for index in 0..size / (words * WORD) {
                let symbol = relocations.word(words * index + 1)? >> SYMBOL_SHIFT;
                if symbol == 0 {
                    continue;
                }
                // How many symbols there are is written nowhere, so each is a table of its own.
                let at = symbols.checked_add(symbol.checked_mul(symbol_size)?)?;
                let name = self.table(at, 4)?.half_word()?;
                for (name_is, is_named) in names.iter().zip(&mut named_by_relocation) {
                    *is_named |= strings.has_at(name as usize, name_is.to_bytes_with_nul());
                }
            }
        }
        Some(named_by_relocation)
    }

    /// Returns so many bytes of the object, if one segment has them all.
    fn table(&self, start: usize, size: usize) -> Option<ByteTable<'_>> {
        let is_there = |start: &usize| {
            let end = start.checked_add(size);
            end.is_some_and(|end| self.segments.iter().any(|segment| segment.start <= *start && end <= segment.end))
        };
        // Some loaders leave addresses as they are in the file.
        let start = [start, start.wrapping_add(self.moved_by)].into_iter().find(is_there)?;
        // SAFETY: within a readable segment, as just seen, of an object that stays loaded: one of its functions is in use. The
        // loader wrote these tables before it ran any code of the object.
        Some(ByteTable(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), size) }))
    }
}

/// Bytes of an object.
struct ByteTable<'a>(&'a [u8]);

impl ByteTable<'_> {
    fn word(&self, index: usize) -> Option<usize> {
        let start = index.checked_mul(WORD)?;
        Some(usize::from_ne_bytes(self.0.get(start..start.checked_add(WORD)?)?.try_into().ok()?))
    }

    fn half_word(&self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(..4)?.try_into().ok()?))
    }

    fn has_at(&self, start: usize, text: &[u8]) -> bool {
        self.0.get(start..).is_some_and(|rest| rest.starts_with(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_calls_of_its_libraries_are_named() {
        let here = bound_inside as *const c_void;
        assert_eq!(bound_inside(here, &[c"dladdr", c"dl_iterate_phdr"]), Ok(None));
        assert_eq!(bound_inside(here, &[c"dladdr", c"ggml_gallocr_reserve_n"]), Ok(Some(c"ggml_gallocr_reserve_n")));
        // No part of a name is a name.
        assert_eq!(bound_inside(here, &[c"dladd"]), Ok(Some(c"dladd")));
    }

    #[test]
    fn nowhere_is_no_object() {
        let nowhere = std::ptr::without_provenance(1);
        assert_eq!(bound_inside(nowhere, &[c"dladdr"]), Err("not in a loaded object"));
    }
}
