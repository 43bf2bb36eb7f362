//! What ggml's handle points to: our allocator, and ggml's own for when ours gives up.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{BufferType, Graph, Original};
use crate::functions::Originals;
use crate::galloc::{Galloc, Trouble};
use crate::ggml::Ggml;
use crate::say;
use crate::settings::Settings;

/// `ggml_gallocr`
pub(crate) struct Handle {
    ggml: &'static Ggml,
    types: Vec<BufferType>,
    mode: Mode,
    /// ggml's own allocator, once it was needed.
    original: Option<Original>,
}

enum Mode {
    Ours(Galloc),
    /// Once fallen back it stays so. Our buffers stay as long as the caller may use them.
    Original(Option<Galloc>),
}

/// What a call is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// What was allocated is void.
    Memory,
    /// It is still in use.
    Sizes,
}

/// Whose handle it is. ggml's own functions may call each other through us (0.9.4 does), with a handle of their own.
pub(crate) enum Whose<'a> {
    Ours(&'a mut Handle),
    Ggmls(&'static Originals, Original),
}

/// All handles that there are.
fn handles() -> MutexGuard<'static, BTreeMap<usize, Owner>> {
    static HANDLES: Mutex<BTreeMap<usize, Owner>> = Mutex::new(BTreeMap::new());
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy)]
enum Owner {
    Us,
    Ggml(&'static Originals),
}

impl Handle {
    /// A new handle, as C has it. Where ours can't be used from the start it is ggml's own, so that ggml's functions may be
    /// called with it by whoever does not call ours.
    ///
    /// # Safety
    /// The buffer types are this ggml's.
    pub(crate) unsafe fn open(
        ggml: &'static Ggml,
        settings: &'static Settings,
        mut types: Vec<BufferType>,
    ) -> *mut Self {
        let settings = match (settings.off, &ggml.originals) {
            (false, _) => settings,
            // SAFETY: passed on.
            (true, Some(originals)) => return unsafe { ggmls_own(originals, &mut types) }.cast(),
            // Without ggml's own allocator its layout will do.
            (true, None) => settings.only_ggml(),
        };
        // SAFETY: passed on.
        let ours = catch(|| unsafe { Galloc::new(ggml.known()?, settings, &types) });
        let mode = match (ours.unwrap_or_else(|| Err("something went wrong inside".into())), &ggml.originals) {
            (Ok(ours), _) => Mode::Ours(ours),
            (Err(why), Some(originals)) => {
                ggml.say_once(format!("ggml's own allocator is used: {why}"));
                // SAFETY: passed on.
                return unsafe { ggmls_own(originals, &mut types) }.cast();
            }
            (Err(why), None) => {
                ggml.say_once(format!("nothing can be allocated: {why}"));
                Mode::Original(None)
            }
        };
        let handle = Box::into_raw(Box::new(Self { ggml, types, mode, original: None }));
        handles().insert(handle.addr(), Owner::Us);
        handle
    }

    /// Whose handle it is; `None` for null and for one that nobody knows.
    ///
    /// # Safety
    /// Nobody else uses it meanwhile.
    pub(crate) unsafe fn whose<'a>(handle: *mut Self) -> Option<Whose<'a>> {
        let known = handles().get(&handle.addr()).copied();
        let owner = known.or_else(|| stranger(handle))?;
        if known.is_none() {
            handles().insert(handle.addr(), owner);
        }
        match owner {
            // SAFETY: made by `open` and not freed yet, or it would not be among the handles.
            Owner::Us => Some(Whose::Ours(unsafe { &mut *handle })),
            Owner::Ggml(originals) => Some(Whose::Ggmls(originals, handle.cast())),
        }
    }

    /// Frees a handle, whosever it is.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub(crate) unsafe fn free(handle: *mut Self) {
        let owner = handles().remove(&handle.addr());
        match owner.or_else(|| stranger(handle)) {
            // SAFETY: made by `open`, and no longer among the handles.
            Some(Owner::Us) => drop(unsafe { Box::from_raw(handle) }),
            // SAFETY: a handle of ggml's own.
            Some(Owner::Ggml(originals)) => unsafe { (originals.ggml_gallocr_free)(handle.cast()) },
            None => {}
        }
    }

    /// # Safety
    /// A graph of the same ggml's, and null or one number for each node and leaf.
    pub(crate) unsafe fn reserve(&mut self, graph: *mut Graph, nodes: *const c_int, leafs: *const c_int) -> bool {
        // SAFETY: passed on.
        let answer = unsafe {
            self.act(
                Asked::Memory,
                |ours| ours.reserve(graph, nodes, leafs).map(|()| true),
                |ggml, original| (ggml.ggml_gallocr_reserve_n)(original, graph, nodes, leafs),
            )
        };
        answer.unwrap_or(false)
    }

    /// What a reserve would take for each buffer; nothing where that is not known.
    ///
    /// # Safety
    /// As [`reserve`](Self::reserve).
    pub(crate) unsafe fn reserve_size(
        &mut self,
        graph: *mut Graph,
        nodes: *const c_int,
        leafs: *const c_int,
    ) -> Vec<usize> {
        let count = self.types.len();
        // SAFETY: passed on.
        let answer = unsafe {
            self.act(
                Asked::Sizes,
                |ours| ours.reserve_size(graph, nodes, leafs),
                |ggml, original| {
                    let mut sizes = vec![0; count];
                    if let Some(reserve) = ggml.ggml_gallocr_reserve_n_size {
                        reserve(original, graph, nodes, leafs, sizes.as_mut_ptr());
                    }
                    sizes
                },
            )
        };
        answer.unwrap_or_else(|| vec![0; count])
    }

    /// # Safety
    /// A graph of the same ggml's.
    pub(crate) unsafe fn alloc(&mut self, graph: *mut Graph) -> bool {
        // SAFETY: passed on.
        let answer = unsafe {
            self.act(
                Asked::Memory,
                |ours| ours.alloc(graph),
                |ggml, original| (ggml.ggml_gallocr_alloc_graph)(original, graph),
            )
        };
        answer.unwrap_or(false)
    }

    pub(crate) fn buffer_size(&self, index: c_int) -> usize {
        let Some(index_is) = usize::try_from(index).ok().filter(|index| *index < self.types.len()) else {
            say!("buffer {index} is asked for, and there are {}", self.types.len());
            return 0;
        };
        match (&self.mode, self.original, &self.ggml.originals) {
            (Mode::Ours(ours) | Mode::Original(Some(ours)), ..) => ours.buffer_size(index_is),
            // SAFETY: ggml's own handle, and an index that it has.
            (_, Some(handle), Some(ggml)) => unsafe { (ggml.ggml_gallocr_get_buffer_size)(handle, index) },
            _ => 0,
        }
    }

    /// Ours, or ggml's own if ours gives up, now or earlier; `None` if both refuse.
    ///
    /// # Safety
    /// The closures may be called.
    unsafe fn act<R>(
        &mut self,
        asked: Asked,
        ours: impl Fn(&mut Galloc) -> Result<R, Trouble>,
        original: impl Fn(&Originals, Original) -> R,
    ) -> Option<R> {
        if let Mode::Ours(galloc) = &mut self.mode {
            match catch(|| ours(galloc)) {
                Some(Ok(answer)) => return Some(answer),
                Some(Err(Trouble::Malformed(why))) => {
                    say!("the graph is refused: {why}");
                    return None;
                }
                Some(Err(Trouble::NoMemory(why))) => {
                    say!("{why}");
                    return None;
                }
                Some(Err(Trouble::Beyond(why))) => self.give_up(&why),
                None => self.give_up("something went wrong inside"),
            }
            // Without ggml's own allocator, ggml's layout is the one that is as good as any.
            if let Mode::Ours(galloc) = &mut self.mode {
                return catch(|| ours(galloc)).and_then(Result::ok);
            }
        }
        // First ours go: both together might be too much.
        if asked == Asked::Memory {
            self.mode = Mode::Original(None);
        }
        match (self.original(), &self.ggml.originals) {
            (Some(handle), Some(ggml)) => Some(original(ggml, handle)),
            _ => {
                say!("neither steeve's nor ggml's allocator can be used");
                None
            }
        }
    }

    /// ggml's own allocator from now on, or its layout if there is none.
    fn give_up(&mut self, why: &str) {
        self.mode = match std::mem::replace(&mut self.mode, Mode::Original(None)) {
            Mode::Ours(galloc) if self.ggml.originals.is_some() => {
                say!("ggml's own allocator is used from now on: {why}");
                Mode::Original(Some(galloc))
            }
            Mode::Ours(mut galloc) => {
                say!("ggml's layout is used from now on: {why}");
                galloc.only_ggml();
                Mode::Ours(galloc)
            }
            original => original,
        };
    }

    /// ggml's own handle, made when it is first needed.
    fn original(&mut self) -> Option<Original> {
        if self.original.is_none() {
            let ggml = self.ggml.originals.as_ref()?;
            // SAFETY: the caller's own buffer types.
            let made = unsafe { ggmls_own(ggml, &mut self.types) };
            self.original = (!made.is_null()).then_some(made);
        }
        self.original
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let (Some(original), Some(ggml)) = (self.original.take(), &self.ggml.originals) {
            handles().remove(&original.addr());
            // SAFETY: made by `original`, and freed once.
            unsafe { (ggml.ggml_gallocr_free)(original) };
        }
    }
}

/// A handle of ggml's own, which is then known as such; null if it makes none.
///
/// # Safety
/// The buffer types are this ggml's.
unsafe fn ggmls_own(ggml: &'static Originals, types: &mut [BufferType]) -> Original {
    // SAFETY: ggml's own function, as promised.
    let made = unsafe { (ggml.ggml_gallocr_new_n)(types.as_mut_ptr(), types.len() as c_int) };
    if !made.is_null() {
        handles().insert(made.addr(), Owner::Ggml(ggml));
    }
    made
}

/// The owner of a handle that did not pass through us: the only ggml there is. With two of them nobody can say.
fn stranger(handle: *mut Handle) -> Option<Owner> {
    if handle.is_null() {
        return None;
    }
    #[cfg(any(not(feature = "whole"), test))]
    if let Some(originals) = crate::find::only().and_then(|ggml| ggml.originals.as_ref()) {
        return Some(Owner::Ggml(originals));
    }
    say!("handle {handle:?} is not known");
    None
}

/// The answer, or `None` if it panicked: that never crosses into C.
pub(crate) fn catch<R>(act: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_here() {
        assert_eq!(catch(|| 7), Some(7));
        assert_eq!(catch(|| [1, 2, 3][std::hint::black_box(3)]), None);
    }

    #[test]
    fn nobodys_handles_are_refused() {
        // SAFETY: there is no ggml that could take a handle for its own.
        unsafe {
            assert!(Handle::whose(std::ptr::null_mut()).is_none());
            assert!(Handle::whose(std::ptr::dangling_mut()).is_none());
            Handle::free(std::ptr::null_mut());
            Handle::free(std::ptr::dangling_mut());
        }
    }
}
