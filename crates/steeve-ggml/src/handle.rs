//! What ggml's handle points to: our allocator, and what is used instead for a graph that ours can't plan.
//!
//! ```text
//!   ours in use --graph beyond ours--> ours freed,   ggml's own made, reserves it
//!   ggml's own in use --any graph----> ours plans it, without memory --can't--> ggml's own reserves it
//!                                                                    --can----> ggml's own freed, ours makes its buffers
//! ```
//!
//! Only one of the two has buffers at a time. What was allocated for a graph is void once another one is reserved or
//! allocated, with any allocator, so that is when they change: at `reserve`, and with one buffer type at `alloc`. With several
//! types `alloc` never changes anything, since the caller must first wait for its devices: it answers false, and ggml's
//! scheduler reserves. After a panic in ours, what there is instead is used for good.
//!
//! A tensor of the graph may still be in a buffer of the allocator that is left, where the program built the graph over an
//! earlier one. Then that allocator keeps its buffers.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{BufferType, Graph, Original};
use crate::fallback::{Fallback, buffers_of};
use crate::functions::Originals;
use crate::galloc::{Galloc, Trouble};
use crate::ggml::Ggml;
use crate::log::{Level, kind_of};
use crate::registry::{HANDLES, Owner};
use crate::report::Reported;
use crate::settings::Settings;

/// `ggml_gallocr`
pub(crate) struct Handle {
    ggml: &'static Ggml,
    settings: &'static Settings,
    types: Vec<BufferType>,
    /// Our allocator, made again when it is needed. While another is in use it has buffers only where tensors are in them.
    ours: Option<Galloc>,
    /// What is in use instead of ours.
    instead: Option<Instead>,
    fallback: Fallback,
    /// Ours has panicked, or could not be made at all.
    has_given_up: bool,
    /// What was reported of it.
    pub(crate) reported: Reported,
}

/// An allocator for what ours can't plan.
enum Instead {
    Ggmls(GgmlsOwn),
    /// Ours with ggml's layout, where ggml's own can't be reached.
    Layout(Galloc),
}

/// A handle of ggml's own, which is freed with this.
struct GgmlsOwn {
    ggml: &'static Originals,
    handle: Original,
}

/// A graph, and where its nodes and leafs go: what `reserve` is called with.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) graph: *mut Graph,
    pub(crate) nodes: *const c_int,
    pub(crate) leafs: *const c_int,
}

impl Request {
    /// A graph whose nodes and leafs are all in the first buffer, or where they were reserved.
    pub(crate) fn of(graph: *mut Graph) -> Self {
        Self { graph, nodes: std::ptr::null(), leafs: std::ptr::null() }
    }
}

/// What ours has made of a graph.
enum Tried<R> {
    Done(R),
    /// No allocator could do anything with it, and it has been said why.
    Refused,
    /// It is for whatever there is instead, because of this.
    Beyond(String),
}

/// Why ours is not used again.
const INSIDE: &str = "something went wrong inside";

/// Whose handle it is. ggml's own functions may call each other through us (0.9.4 does), with a handle of their own.
pub(crate) enum Whose<'a> {
    Ours(&'a mut Handle),
    Ggmls(&'static Originals, Original),
}

impl Handle {
    /// A new handle, as C has it. Where ours can't be used from the start it is ggml's own, so that ggml's functions may be
    /// called with it by whoever does not call ours; then with the reason.
    ///
    /// # Safety
    /// The buffer types are this ggml's.
    pub(crate) unsafe fn open(
        ggml: &'static Ggml,
        settings: &'static Settings,
        mut types: Vec<BufferType>,
    ) -> (*mut Self, Option<String>) {
        let settings = match (settings.off, &ggml.originals) {
            (false, _) => settings,
            (true, Some(originals)) => {
                // SAFETY: passed on.
                let handle = unsafe { GgmlsOwn::leaked(originals, &mut types) };
                return (handle.cast(), Some("STEEVE_OFF is set".into()));
            }
            // Without ggml's own allocator its layout will do.
            (true, None) => settings.only_ggml(),
        };
        // SAFETY: passed on.
        let ours = catch(|| unsafe { Galloc::new(ggml.known()?, settings, &types) });
        let ours = match (ours.unwrap_or_else(|| Err(INSIDE.into())), &ggml.originals) {
            (Ok(ours), _) => Some(ours),
            (Err(why), Some(originals)) => {
                ggml.log_once(&why, Level::Warning, format_args!("ggml's own allocator is used: {why}"));
                // SAFETY: passed on.
                let handle = unsafe { GgmlsOwn::leaked(originals, &mut types) };
                return (handle.cast(), Some(why));
            }
            (Err(why), None) => {
                ggml.log(Level::Error, format_args!("nothing can be allocated: {why}"));
                None
            }
        };
        let has_given_up = ours.is_none();
        let fallback = Fallback::default();
        let reported = Reported::default();
        let handle = Box::new(Self { ggml, settings, types, ours, instead: None, fallback, has_given_up, reported });
        let handle = Box::into_raw(handle);
        HANDLES.insert(handle.addr(), Owner::Us);
        (handle, None)
    }

    /// Whose handle it is; `None` for null and for one that nobody knows.
    ///
    /// # Safety
    /// No other thread uses it meanwhile.
    pub(crate) unsafe fn whose<'a>(handle: *mut Self) -> Option<Whose<'a>> {
        let owner = HANDLES.get(handle.addr()).or_else(|| {
            let owner = stranger(handle)?;
            HANDLES.insert(handle.addr(), owner);
            Some(owner)
        })?;
        match owner {
            // SAFETY: made by `open` and not freed yet, or it would not be among the handles.
            Owner::Us => Some(Whose::Ours(unsafe { &mut *handle })),
            Owner::Ggml(originals) => Some(Whose::Ggmls(originals, handle.cast())),
        }
    }

    /// The ggml that it belongs to.
    pub(crate) fn ggml(&self) -> &'static Ggml {
        self.ggml
    }

    /// Its buffer types.
    pub(crate) fn types(&self) -> &[BufferType] {
        &self.types
    }

    /// Whether our allocator is in use.
    pub(crate) fn is_ours(&self) -> bool {
        self.instead.is_none() && !self.has_given_up
    }

    /// Frees a handle, whosever it is.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub(crate) unsafe fn free(handle: *mut Self) {
        match HANDLES.remove(handle.addr()).or_else(|| stranger(handle)) {
            // SAFETY: made by `open`, and no longer among the handles.
            Some(Owner::Us) => drop(unsafe { Box::from_raw(handle) }),
            // SAFETY: a handle of ggml's own.
            Some(Owner::Ggml(originals)) => unsafe { (originals.ggml_gallocr_free)(handle.cast()) },
            None => {}
        }
    }

    /// # Safety
    /// A graph of the same ggml's, and null or one number for each node and leaf.
    pub(crate) unsafe fn reserve(&mut self, request: Request) -> bool {
        let Request { graph, nodes, leafs } = request;
        // SAFETY: passed on.
        unsafe {
            self.provide(
                request,
                |ours| ours.reserve(graph, nodes, leafs).map(|()| true),
                |ggmls| (ggmls.ggml.ggml_gallocr_reserve_n)(ggmls.handle, graph, nodes, leafs),
            )
        }
    }

    /// # Safety
    /// A graph of the same ggml's.
    pub(crate) unsafe fn alloc(&mut self, graph: *mut Graph) -> bool {
        // SAFETY: passed on.
        unsafe {
            if self.types.len() > 1 {
                return self.alloc_as_reserved(graph);
            }
            self.provide(
                Request::of(graph),
                |ours| ours.alloc(graph),
                |ggmls| (ggmls.ggml.ggml_gallocr_alloc_graph)(ggmls.handle, graph),
            )
        }
    }

    /// What a reserve would take for each buffer; `None` if no allocator can do anything with the graph. What is allocated
    /// stays in use.
    ///
    /// # Safety
    /// As [`reserve`](Self::reserve).
    pub(crate) unsafe fn reserve_size(&mut self, request: Request) -> Option<Vec<usize>> {
        let count = self.types.len();
        let Request { graph, nodes, leafs } = request;
        let mut why = String::from(INSIDE);
        if !self.has_given_up {
            // SAFETY: passed on.
            match unsafe { self.try_ours(request, |ours| ours.reserve_size(graph, nodes, leafs)) } {
                Tried::Done(sizes) => return Some(sizes),
                Tried::Refused => return None,
                Tried::Beyond(reason) => why = reason,
            }
        }
        // Another handle than the one that is in use, whose buffers ggml would free.
        // SAFETY: passed on.
        match unsafe { self.open_instead(request, &why) }? {
            Instead::Ggmls(own) => {
                let mut sizes = vec![0; count];
                if let Some(reserve) = own.ggml.ggml_gallocr_reserve_n_size {
                    // SAFETY: passed on; one number for each buffer type.
                    unsafe { reserve(own.handle, graph, nodes, leafs, sizes.as_mut_ptr()) };
                }
                Some(sizes)
            }
            Instead::Layout(mut ours) => {
                // SAFETY: passed on.
                catch(|| unsafe { ours.reserve_size(graph, nodes, leafs) }).and_then(Result::ok)
            }
        }
    }

    /// How many bytes the buffers have that are in use.
    pub(crate) fn buffer_size(&self, index: c_int) -> usize {
        let Some(number) = usize::try_from(index).ok().filter(|index| *index < self.types.len()) else {
            let count = self.types.len();
            self.ggml.log(Level::Error, format_args!("buffer {index} is asked for, and there are {count}"));
            return 0;
        };
        match &self.instead {
            // SAFETY: ggml's own handle, and an index that it has.
            Some(Instead::Ggmls(own)) => unsafe { (own.ggml.ggml_gallocr_get_buffer_size)(own.handle, index) },
            Some(Instead::Layout(ours)) => ours.buffer_size(number),
            None => self.ours.as_ref().map_or(0, |ours| ours.buffer_size(number)),
        }
    }

    /// Memory for a graph, by ours if it can plan it, else by what there is instead. False if there is none.
    ///
    /// # Safety
    /// The request's graph is one of this ggml's, and the closures may be called.
    unsafe fn provide(
        &mut self,
        request: Request,
        ours: impl Fn(&mut Galloc) -> Result<bool, Trouble>,
        ggmls: impl Fn(&GgmlsOwn) -> bool,
    ) -> bool {
        // SAFETY: passed on.
        unsafe {
            let mut why = String::from(INSIDE);
            if !self.has_given_up && (self.instead.is_none() || self.fallback.may_come_back(request.graph)) {
                match self.return_and(request, &ours) {
                    Tried::Done(answer) => {
                        if answer {
                            self.fallback.served();
                        }
                        return answer;
                    }
                    Tried::Refused => return false,
                    Tried::Beyond(reason) => why = reason,
                }
            }
            if self.instead.is_none() {
                let Some(instead) = self.open_instead(request, &why) else { return false };
                // First ours go: both together might be too much.
                self.ours.take_if(|ours| !buffers_of(request.graph).iter().any(|buffer| ours.has_buffer(*buffer)));
                self.fallback.leave();
                self.instead = Some(instead);
            }
            self.use_instead(request.graph, ours, ggmls)
        }
    }

    /// Has what there is instead of ours act on a graph, and notes in which buffers it has placed tensors.
    ///
    /// # Safety
    /// As [`provide`](Self::provide).
    unsafe fn use_instead(
        &mut self,
        graph: *mut Graph,
        ours: impl Fn(&mut Galloc) -> Result<bool, Trouble>,
        ggmls: impl Fn(&GgmlsOwn) -> bool,
    ) -> bool {
        let Self { instead, fallback, .. } = self;
        let answer = match instead {
            // SAFETY: passed on.
            Some(Instead::Ggmls(own)) => return unsafe { fallback.note_buffers(graph, || ggmls(own)) },
            // SAFETY: passed on.
            Some(Instead::Layout(galloc)) => unsafe { fallback.note_buffers(graph, || catch(|| ours(galloc))) },
            None => return false,
        };
        match answer {
            Some(Ok(answer)) => answer,
            Some(Err(trouble)) => self.refuse(trouble),
            None => {
                (self.instead, self.has_given_up) = (None, true);
                self.refuse(Trouble::Beyond(INSIDE.into()))
            }
        }
    }

    /// Has ours act on a graph. Where another allocator is in use, that is freed as soon as it is certain that ours has a plan.
    ///
    /// # Safety
    /// As [`provide`](Self::provide).
    unsafe fn return_and<R>(&mut self, request: Request, act: impl Fn(&mut Galloc) -> Result<R, Trouble>) -> Tried<R> {
        let Request { graph, nodes, leafs } = request;
        if self.instead.is_some() {
            // SAFETY: passed on.
            match unsafe { self.try_ours(request, |ours| ours.reserve_size(graph, nodes, leafs)) } {
                Tried::Done(_) => {}
                Tried::Refused => return Tried::Refused,
                Tried::Beyond(why) => {
                    self.say_instead(&why);
                    return Tried::Beyond(why);
                }
            }
            self.instead = None;
            self.fallback.come_back();
        }
        // SAFETY: passed on.
        unsafe { self.try_ours(request, act) }
    }

    /// Has ours act on a graph.
    ///
    /// # Safety
    /// As [`provide`](Self::provide).
    unsafe fn try_ours<R>(&mut self, request: Request, act: impl Fn(&mut Galloc) -> Result<R, Trouble>) -> Tried<R> {
        let answer = catch(|| {
            let ours = match &mut self.ours {
                Some(ours) => ours,
                none => {
                    let known = self.ggml.known().map_err(Trouble::Beyond)?;
                    // SAFETY: the caller's own buffer types.
                    none.insert(unsafe { Galloc::new(known, self.settings, &self.types) }.map_err(Trouble::Beyond)?)
                }
            };
            act(ours)
        });
        match answer {
            Some(Ok(answer)) => Tried::Done(answer),
            Some(Err(Trouble::Beyond(why))) => {
                // SAFETY: passed on.
                unsafe { self.fallback.note_beyond(request.graph) };
                Tried::Beyond(why)
            }
            Some(Err(trouble)) => {
                self.refuse(trouble);
                Tried::Refused
            }
            None => {
                self.has_given_up = true;
                Tried::Beyond(INSIDE.into())
            }
        }
    }

    /// Says why there is no memory for a graph. False, for the caller to answer.
    fn refuse(&self, trouble: Trouble) -> bool {
        match trouble {
            Trouble::Malformed(why) => self.ggml.log(Level::Error, format_args!("the graph is refused: {why}")),
            Trouble::Beyond(why) => self.ggml.log(Level::Error, format_args!("the graph can't be planned: {why}")),
            Trouble::NoMemory(why) => self.ggml.log(Level::Error, format_args!("{why}")),
        }
        false
    }

    /// Says why ours is not used, once for each kind of reason.
    fn say_instead(&self, why: &str) {
        let what = if self.ggml.originals.is_some() { "own allocator" } else { "layout" };
        let how_long = if self.has_given_up { "from now on" } else { "for this graph" };
        let message = format_args!("ggml's {what} is used {how_long}: {why}");
        self.ggml.log_once(&kind_of(why), Level::Warning, message);
    }

    /// Addresses from what was reserved last, with several buffer types.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn alloc_as_reserved(&mut self, graph: *mut Graph) -> bool {
        let request = Request::of(graph);
        // SAFETY: passed on.
        unsafe {
            match &self.instead {
                Some(_) => self.use_instead(
                    graph,
                    |ours| ours.alloc(graph),
                    |ggmls| (ggmls.ggml.ggml_gallocr_alloc_graph)(ggmls.handle, graph),
                ),
                None if self.has_given_up => false,
                None => {
                    let is_served = matches!(self.try_ours(request, |ours| ours.alloc(graph)), Tried::Done(true));
                    if is_served {
                        self.fallback.served();
                    }
                    is_served
                }
            }
        }
    }

    /// What a graph is left to that ours can't plan: ggml's own allocator, or ours with its layout if that can plan it. Where
    /// there is neither, it has been said why.
    ///
    /// # Safety
    /// As [`provide`](Self::provide).
    unsafe fn open_instead(&mut self, request: Request, why: &str) -> Option<Instead> {
        let instead = match &self.ggml.originals {
            // SAFETY: the caller's own buffer types.
            Some(originals) => unsafe { GgmlsOwn::open(originals, &mut self.types) }.map(Instead::Ggmls),
            // SAFETY: passed on.
            None => unsafe { self.open_layout(request) }.map(Instead::Layout),
        };
        match instead {
            Some(_) => self.say_instead(why),
            None => {
                let message = format_args!("the graph can't be allocated, by steeve's or by ggml's allocator: {why}");
                self.ggml.log(Level::Error, message);
            }
        }
        instead
    }

    /// Ours with ggml's layout and a plan for the graph, without memory.
    ///
    /// # Safety
    /// As [`provide`](Self::provide).
    unsafe fn open_layout(&self, request: Request) -> Option<Galloc> {
        let Request { graph, nodes, leafs } = request;
        let planned = catch(|| {
            let known = self.ggml.known().ok()?;
            // SAFETY: the caller's own buffer types.
            let mut ours = unsafe { Galloc::new(known, self.settings.only_ggml(), &self.types) }.ok()?;
            // SAFETY: passed on.
            unsafe { ours.reserve_size(graph, nodes, leafs) }.ok().map(|_| ours)
        });
        planned.flatten()
    }
}

impl GgmlsOwn {
    /// A handle of ggml's own, which is then known as such; `None` if ggml makes none.
    ///
    /// # Safety
    /// The buffer types are this ggml's.
    unsafe fn open(ggml: &'static Originals, types: &mut [BufferType]) -> Option<Self> {
        // SAFETY: ggml's own function, as promised.
        let handle = unsafe { (ggml.ggml_gallocr_new_n)(types.as_mut_ptr(), types.len() as c_int) };
        if handle.is_null() {
            return None;
        }
        HANDLES.insert(handle.addr(), Owner::Ggml(ggml));
        Some(Self { ggml, handle })
    }

    /// A handle of ggml's own for the program to free; null if ggml makes none.
    ///
    /// # Safety
    /// As [`open`](Self::open).
    unsafe fn leaked(ggml: &'static Originals, types: &mut [BufferType]) -> Original {
        // SAFETY: passed on.
        let own = unsafe { Self::open(ggml, types) };
        own.map_or(std::ptr::null_mut(), |own| std::mem::ManuallyDrop::new(own).handle)
    }
}

impl Drop for GgmlsOwn {
    fn drop(&mut self) {
        HANDLES.remove(self.handle.addr());
        // SAFETY: made by `open`, and freed once.
        unsafe { (self.ggml.ggml_gallocr_free)(self.handle) };
    }
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
    crate::log::say!("handle {handle:?} is not known");
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
