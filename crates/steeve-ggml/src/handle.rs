//! What ggml's handle points to: our allocator, and ggml's own for when ours gives up.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use steeve_graph::GraphStrategy;

use crate::abi::{BufferType, Graph, Original};
use crate::functions::Functions;
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
    /// Once fallen back it stays so.
    Original,
}

impl Handle {
    /// # Safety
    /// The buffer types are this ggml's.
    pub(crate) unsafe fn new(ggml: &'static Ggml, settings: &'static Settings, types: Vec<BufferType>) -> Self {
        let mut handle = Self { ggml, types, mode: Mode::Original, original: None };
        if !settings.off {
            // SAFETY: passed on.
            match catch(|| unsafe { Galloc::new(ggml, settings, &handle.types) }) {
                Some(Ok(ours)) => handle.mode = Mode::Ours(ours),
                Some(Err(why)) => say!("ggml's own allocator is used: {why}"),
                None => {}
            }
        }
        handle
    }

    /// # Safety
    /// A graph of the same ggml's, and null or one number for each node and leaf.
    pub(crate) unsafe fn reserve(&mut self, graph: *mut Graph, nodes: *const c_int, leafs: *const c_int) -> bool {
        // SAFETY: passed on.
        unsafe {
            self.act(
                |ours| ours.reserve(graph, nodes, leafs).map(|()| true),
                |ggml, original| ggml.ggml_gallocr_reserve_n.is_some_and(|reserve| reserve(original, graph, nodes, leafs)),
                || false,
            )
        }
    }

    /// # Safety
    /// As [`reserve`](Self::reserve), and `sizes` has room for one number for each buffer type.
    pub(crate) unsafe fn reserve_size(
        &mut self,
        graph: *mut Graph,
        nodes: *const c_int,
        leafs: *const c_int,
        sizes: *mut usize,
    ) {
        let count = self.types.len();
        let write = |bytes: &[usize]| {
            for (index, bytes) in bytes.iter().enumerate().take(count) {
                // SAFETY: room for as many numbers as there are buffer types, as promised.
                unsafe { sizes.add(index).write(*bytes) };
            }
        };
        // SAFETY: passed on.
        unsafe {
            self.act(
                |ours| ours.reserve_size(graph, nodes, leafs).map(|bytes| write(&bytes)),
                |ggml, original| match ggml.ggml_gallocr_reserve_n_size {
                    Some(reserve) => reserve(original, graph, nodes, leafs, sizes),
                    None => write(&vec![0; count]),
                },
                || write(&vec![0; count]),
            );
        }
    }

    /// # Safety
    /// A graph of the same ggml's.
    pub(crate) unsafe fn alloc(&mut self, graph: *mut Graph) -> bool {
        // SAFETY: passed on.
        unsafe {
            self.act(
                |ours| ours.alloc(graph),
                |ggml, original| ggml.ggml_gallocr_alloc_graph.is_some_and(|alloc| alloc(original, graph)),
                || false,
            )
        }
    }

    pub(crate) fn buffer_size(&mut self, index: c_int) -> usize {
        let Ok(index_is) = usize::try_from(index) else { return 0 };
        if index_is >= self.types.len() {
            say!("buffer {index} is asked for, and there are {}", self.types.len());
            return 0;
        }
        match &self.mode {
            Mode::Ours(ours) => ours.buffer_size(index_is),
            Mode::Original => match (self.original, self.ggml.functions.ggml_gallocr_get_buffer_size) {
                // SAFETY: ggml's own handle, and an index that it has.
                (Some(original), Some(size)) => unsafe { size(original, index) },
                _ => 0,
            },
        }
    }

    /// Ours, or ggml's own if ours gives up, now or earlier.
    ///
    /// # Safety
    /// The closures may be called.
    unsafe fn act<R>(
        &mut self,
        ours: impl Fn(&mut Galloc) -> Result<R, Trouble>,
        original: impl Fn(&Functions, Original) -> R,
        refused: impl Fn() -> R,
    ) -> R {
        if let Mode::Ours(galloc) = &mut self.mode {
            match catch(|| ours(galloc)) {
                Some(Ok(answer)) => return answer,
                Some(Err(Trouble::Malformed(why))) => {
                    say!("the graph is refused: {why}");
                    return refused();
                }
                Some(Err(Trouble::NoMemory(why))) => {
                    say!("{why}");
                    return refused();
                }
                Some(Err(Trouble::Beyond(why))) => self.give_up(&why),
                None => self.give_up("something went wrong inside"),
            }
            // Without ggml's own allocator, ggml's layout is the one that is as good as any.
            if let Mode::Ours(galloc) = &mut self.mode {
                return match catch(|| ours(galloc)) {
                    Some(Ok(answer)) => answer,
                    _ => refused(),
                };
            }
        }
        match self.original() {
            Some(handle) => original(&self.ggml.functions, handle),
            None => {
                say!("neither steeve's nor ggml's allocator can be used");
                refused()
            }
        }
    }

    /// ggml's own allocator from now on, or its layout if there is none. Our buffers go.
    fn give_up(&mut self, why: &str) {
        static ONLY_GGML: OnceLock<Settings> = OnceLock::new();
        if self.ggml.functions.ggml_gallocr_new_n.is_some() {
            say!("ggml's own allocator is used from now on: {why}");
            self.mode = Mode::Original;
        } else if let Mode::Ours(galloc) = &mut self.mode {
            say!("ggml's layout is used from now on: {why}");
            let settings = ONLY_GGML.get_or_init(|| Settings {
                strategy: GraphStrategy::Ggml,
                more: false,
                check: false,
                ..crate::settings::settings().clone()
            });
            galloc.only_ggml(settings);
        }
    }

    fn original(&mut self) -> Option<Original> {
        if self.original.is_none() {
            let new = self.ggml.functions.ggml_gallocr_new_n?;
            // SAFETY: ggml's own function with the caller's own buffer types.
            let made = unsafe { new(self.types.as_mut_ptr(), self.types.len() as c_int) };
            self.original = (!made.is_null()).then_some(made);
        }
        self.original
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let (Some(original), Some(free)) = (self.original.take(), self.ggml.functions.ggml_gallocr_free) {
            // SAFETY: made by `original`, and freed once.
            unsafe { free(original) };
        }
    }
}

/// The answer, or `None` if it panicked: that never crosses into C.
pub(crate) fn catch<R>(act: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}
