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

use crate::address_registry::{HANDLES, HandleOwner};
use crate::drop_in_settings::DropInSettings;
use crate::fallback_history::{FallbackHistory, buffers_of};
use crate::function_tables::OriginalFunctions;
use crate::ggml_abi::{GgmlBufferType, GgmlGraph, OriginalHandle};
use crate::ggml_instance::GgmlInstance;
use crate::log::{LogLevel, message_kind};
use crate::planned_allocator::{AllocFailure, PlannedAllocator};
use crate::usage_report::ReportState;

/// `ggml_gallocr`
pub(crate) struct GallocrHandle {
    ggml: &'static GgmlInstance,
    settings: &'static DropInSettings,
    types: Vec<GgmlBufferType>,
    /// Our allocator, made again when it is needed. While another is in use it has buffers only where tensors are in them.
    ours: Option<PlannedAllocator>,
    /// What is in use instead of ours.
    fallback: Option<FallbackAllocator>,
    history: FallbackHistory,
    /// Ours has panicked, or could not be made at all.
    has_given_up: bool,
    /// What was reported of it.
    pub(crate) report_state: ReportState,
}

/// An allocator for what ours can't plan.
enum FallbackAllocator {
    Ggmls(OriginalAllocator),
    /// Ours with ggml's layout, where ggml's own can't be reached.
    Layout(PlannedAllocator),
}

/// A handle of ggml's own, which is freed with this.
struct OriginalAllocator {
    ggml: &'static OriginalFunctions,
    handle: OriginalHandle,
}

/// A graph, and where its nodes and leafs go: what `reserve` is called with.
#[derive(Clone, Copy)]
pub(crate) struct ReserveRequest {
    pub(crate) graph: *mut GgmlGraph,
    pub(crate) nodes: *const c_int,
    pub(crate) leafs: *const c_int,
}

impl ReserveRequest {
    /// A graph whose nodes and leafs are all in the first buffer, or where they were reserved.
    pub(crate) fn of(graph: *mut GgmlGraph) -> Self {
        Self { graph, nodes: std::ptr::null(), leafs: std::ptr::null() }
    }
}

/// What ours has made of a graph.
enum PlanAttempt<R> {
    Done(R),
    /// No allocator could do anything with it, and it has been said why.
    Refused,
    /// It is for whatever there is instead, because of this.
    Unplannable(String),
}

/// Why ours is not used again.
const INTERNAL_ERROR: &str = "something went wrong inside";

/// Whose handle it is. ggml's own functions may call each other through us (0.9.4 does), with a handle of their own.
pub(crate) enum HandleTarget<'a> {
    Ours(&'a mut GallocrHandle),
    Ggmls(&'static OriginalFunctions, OriginalHandle),
}

impl GallocrHandle {
    /// A new handle, as C has it. Where ours can't be used from the start it is ggml's own, so that ggml's functions may be
    /// called with it by whoever does not call ours; then with the reason.
    ///
    /// # Safety
    /// The buffer types are this ggml's.
    pub(crate) unsafe fn open(
        ggml: &'static GgmlInstance,
        settings: &'static DropInSettings,
        mut types: Vec<GgmlBufferType>,
    ) -> (*mut Self, Option<String>) {
        let settings = match (settings.off, &ggml.originals) {
            (false, _) => settings,
            (true, Some(originals)) => {
                // SAFETY: passed on.
                let handle = unsafe { OriginalAllocator::open_for_program(originals, &mut types) };
                return (handle.cast(), Some("STEEVE_OFF is set".into()));
            }
            // Without ggml's own allocator its layout will do.
            (true, None) => settings.with_ggml_layout(),
        };
        // SAFETY: passed on.
        let ours = catch_panic(|| unsafe { PlannedAllocator::new(ggml.known()?, settings, &types) });
        let ours = match (ours.unwrap_or_else(|| Err(INTERNAL_ERROR.into())), &ggml.originals) {
            (Ok(ours), _) => Some(ours),
            (Err(why), Some(originals)) => {
                ggml.log_once(&why, LogLevel::Warning, format_args!("ggml's own allocator is used: {why}"));
                // SAFETY: passed on.
                let handle = unsafe { OriginalAllocator::open_for_program(originals, &mut types) };
                return (handle.cast(), Some(why));
            }
            (Err(why), None) => {
                ggml.log(LogLevel::Error, format_args!("nothing can be allocated: {why}"));
                None
            }
        };
        let has_given_up = ours.is_none();
        let history = FallbackHistory::default();
        let report_state = ReportState::default();
        let handle =
            Box::new(Self { ggml, settings, types, ours, fallback: None, history, has_given_up, report_state });
        let handle = Box::into_raw(handle);
        HANDLES.insert(handle.addr(), HandleOwner::Us);
        (handle, None)
    }

    /// Whose handle it is; `None` for null and for one that nobody knows.
    ///
    /// # Safety
    /// No other thread uses it meanwhile.
    pub(crate) unsafe fn resolve<'a>(handle: *mut Self) -> Option<HandleTarget<'a>> {
        let owner = HANDLES.get(handle.addr()).or_else(|| {
            let owner = owner_of_unknown(handle)?;
            HANDLES.insert(handle.addr(), owner);
            Some(owner)
        })?;
        match owner {
            // SAFETY: made by `open` and not freed yet, or it would not be among the handles.
            HandleOwner::Us => Some(HandleTarget::Ours(unsafe { &mut *handle })),
            HandleOwner::Ggml(originals) => Some(HandleTarget::Ggmls(originals, handle.cast())),
        }
    }

    /// The ggml that it belongs to.
    pub(crate) fn ggml(&self) -> &'static GgmlInstance {
        self.ggml
    }

    /// Its buffer types.
    pub(crate) fn types(&self) -> &[GgmlBufferType] {
        &self.types
    }

    /// Whether our allocator is in use.
    pub(crate) fn is_ours(&self) -> bool {
        self.fallback.is_none() && !self.has_given_up
    }

    /// Frees a handle, whosever it is.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub(crate) unsafe fn free(handle: *mut Self) {
        match HANDLES.remove(handle.addr()).or_else(|| owner_of_unknown(handle)) {
            // SAFETY: made by `open`, and no longer among the handles.
            Some(HandleOwner::Us) => drop(unsafe { Box::from_raw(handle) }),
            // SAFETY: a handle of ggml's own.
            Some(HandleOwner::Ggml(originals)) => unsafe { (originals.ggml_gallocr_free)(handle.cast()) },
            None => {}
        }
    }

    /// # Safety
    /// A graph of the same ggml's, and null or one number for each node and leaf.
    pub(crate) unsafe fn reserve(&mut self, request: ReserveRequest) -> bool {
        let ReserveRequest { graph, nodes, leafs } = request;
        // SAFETY: passed on.
        unsafe {
            self.serve(
                request,
                |ours| ours.reserve(graph, nodes, leafs).map(|()| true),
                |ggmls| (ggmls.ggml.ggml_gallocr_reserve_n)(ggmls.handle, graph, nodes, leafs),
            )
        }
    }

    /// # Safety
    /// A graph of the same ggml's.
    pub(crate) unsafe fn alloc(&mut self, graph: *mut GgmlGraph) -> bool {
        // SAFETY: passed on.
        unsafe {
            if self.types.len() > 1 {
                return self.alloc_as_reserved(graph);
            }
            self.serve(
                ReserveRequest::of(graph),
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
    pub(crate) unsafe fn reserve_size(&mut self, request: ReserveRequest) -> Option<Vec<usize>> {
        let count = self.types.len();
        let ReserveRequest { graph, nodes, leafs } = request;
        let mut why = String::from(INTERNAL_ERROR);
        if !self.has_given_up {
            // SAFETY: passed on.
            match unsafe { self.try_own(request, |ours| ours.reserve_size(graph, nodes, leafs)) } {
                PlanAttempt::Done(sizes) => return Some(sizes),
                PlanAttempt::Refused => return None,
                PlanAttempt::Unplannable(reason) => why = reason,
            }
        }
        // Another handle than the one that is in use, whose buffers ggml would free.
        // SAFETY: passed on.
        match unsafe { self.open_fallback(request, &why) }? {
            FallbackAllocator::Ggmls(own) => {
                let mut sizes = vec![0; count];
                if let Some(reserve) = own.ggml.ggml_gallocr_reserve_n_size {
                    // SAFETY: passed on; one number for each buffer type.
                    unsafe { reserve(own.handle, graph, nodes, leafs, sizes.as_mut_ptr()) };
                }
                Some(sizes)
            }
            FallbackAllocator::Layout(mut ours) => {
                // SAFETY: passed on.
                catch_panic(|| unsafe { ours.reserve_size(graph, nodes, leafs) }).and_then(Result::ok)
            }
        }
    }

    /// How many bytes the buffers have that are in use.
    pub(crate) fn buffer_size(&self, index: c_int) -> usize {
        let Some(number) = usize::try_from(index).ok().filter(|index| *index < self.types.len()) else {
            let count = self.types.len();
            self.ggml.log(LogLevel::Error, format_args!("buffer {index} is asked for, and there are {count}"));
            return 0;
        };
        match &self.fallback {
            // SAFETY: ggml's own handle, and an index that it has.
            Some(FallbackAllocator::Ggmls(own)) => unsafe {
                (own.ggml.ggml_gallocr_get_buffer_size)(own.handle, index)
            },
            Some(FallbackAllocator::Layout(ours)) => ours.buffer_size(number),
            None => self.ours.as_ref().map_or(0, |ours| ours.buffer_size(number)),
        }
    }

    /// Memory for a graph, by ours if it can plan it, else by what there is instead. False if there is none.
    ///
    /// # Safety
    /// The request's graph is one of this ggml's, and the closures may be called.
    unsafe fn serve(
        &mut self,
        request: ReserveRequest,
        ours: impl Fn(&mut PlannedAllocator) -> Result<bool, AllocFailure>,
        ggmls: impl Fn(&OriginalAllocator) -> bool,
    ) -> bool {
        // SAFETY: passed on.
        unsafe {
            let mut why = String::from(INTERNAL_ERROR);
            if !self.has_given_up && (self.fallback.is_none() || self.history.may_return_to_own(request.graph)) {
                match self.return_to_own_and(request, &ours) {
                    PlanAttempt::Done(answer) => {
                        if answer {
                            self.history.served();
                        }
                        return answer;
                    }
                    PlanAttempt::Refused => return false,
                    PlanAttempt::Unplannable(reason) => why = reason,
                }
            }
            if self.fallback.is_none() {
                let Some(fallback) = self.open_fallback(request, &why) else { return false };
                // First ours go: both together might be too much.
                self.ours.take_if(|ours| !buffers_of(request.graph).iter().any(|buffer| ours.has_buffer(*buffer)));
                self.history.switch_to_fallback();
                self.fallback = Some(fallback);
            }
            self.use_fallback(request.graph, ours, ggmls)
        }
    }

    /// Has what there is instead of ours act on a graph, and notes in which buffers it has placed tensors.
    ///
    /// # Safety
    /// As [`serve`](Self::provide).
    unsafe fn use_fallback(
        &mut self,
        graph: *mut GgmlGraph,
        ours: impl Fn(&mut PlannedAllocator) -> Result<bool, AllocFailure>,
        ggmls: impl Fn(&OriginalAllocator) -> bool,
    ) -> bool {
        let Self { fallback, history, .. } = self;
        let answer = match fallback {
            // SAFETY: passed on.
            Some(FallbackAllocator::Ggmls(own)) => return unsafe { history.note_buffers(graph, || ggmls(own)) },
            // SAFETY: passed on.
            Some(FallbackAllocator::Layout(galloc)) => unsafe {
                history.note_buffers(graph, || catch_panic(|| ours(galloc)))
            },
            None => return false,
        };
        match answer {
            Some(Ok(answer)) => answer,
            Some(Err(failure)) => self.log_failure(failure),
            None => {
                (self.fallback, self.has_given_up) = (None, true);
                self.log_failure(AllocFailure::Unplannable(INTERNAL_ERROR.into()))
            }
        }
    }

    /// Has ours act on a graph. Where another allocator is in use, that is freed as soon as it is certain that ours has a plan.
    ///
    /// # Safety
    /// As [`serve`](Self::provide).
    unsafe fn return_to_own_and<R>(
        &mut self,
        request: ReserveRequest,
        act: impl Fn(&mut PlannedAllocator) -> Result<R, AllocFailure>,
    ) -> PlanAttempt<R> {
        let ReserveRequest { graph, nodes, leafs } = request;
        if self.fallback.is_some() {
            // SAFETY: passed on.
            match unsafe { self.try_own(request, |ours| ours.reserve_size(graph, nodes, leafs)) } {
                PlanAttempt::Done(_) => {}
                PlanAttempt::Refused => return PlanAttempt::Refused,
                PlanAttempt::Unplannable(why) => {
                    self.log_fallback(&why);
                    return PlanAttempt::Unplannable(why);
                }
            }
            self.fallback = None;
            self.history.return_to_own();
        }
        // SAFETY: passed on.
        unsafe { self.try_own(request, act) }
    }

    /// Has ours act on a graph.
    ///
    /// # Safety
    /// As [`serve`](Self::provide).
    unsafe fn try_own<R>(
        &mut self,
        request: ReserveRequest,
        act: impl Fn(&mut PlannedAllocator) -> Result<R, AllocFailure>,
    ) -> PlanAttempt<R> {
        let answer = catch_panic(|| {
            let ours = match &mut self.ours {
                Some(ours) => ours,
                none => {
                    let known = self.ggml.known().map_err(AllocFailure::Unplannable)?;
                    // SAFETY: the caller's own buffer types.
                    none.insert(
                        unsafe { PlannedAllocator::new(known, self.settings, &self.types) }
                            .map_err(AllocFailure::Unplannable)?,
                    )
                }
            };
            act(ours)
        });
        match answer {
            Some(Ok(answer)) => PlanAttempt::Done(answer),
            Some(Err(AllocFailure::Unplannable(why))) => {
                // SAFETY: passed on.
                unsafe { self.history.note_unplannable(request.graph) };
                PlanAttempt::Unplannable(why)
            }
            Some(Err(failure)) => {
                self.log_failure(failure);
                PlanAttempt::Refused
            }
            None => {
                self.has_given_up = true;
                PlanAttempt::Unplannable(INTERNAL_ERROR.into())
            }
        }
    }

    /// Says why there is no memory for a graph. False, for the caller to answer.
    fn log_failure(&self, failure: AllocFailure) -> bool {
        match failure {
            AllocFailure::Malformed(why) => self.ggml.log(LogLevel::Error, format_args!("the graph is refused: {why}")),
            AllocFailure::Unplannable(why) => {
                self.ggml.log(LogLevel::Error, format_args!("the graph can't be planned: {why}"))
            }
            AllocFailure::OutOfMemory(why) => self.ggml.log(LogLevel::Error, format_args!("{why}")),
        }
        false
    }

    /// Says why ours is not used, once for each kind of reason.
    fn log_fallback(&self, why: &str) {
        let what = if self.ggml.originals.is_some() { "own allocator" } else { "layout" };
        let how_long = if self.has_given_up { "from now on" } else { "for this graph" };
        let message = format_args!("ggml's {what} is used {how_long}: {why}");
        self.ggml.log_once(&message_kind(why), LogLevel::Warning, message);
    }

    /// Addresses from what was reserved last, with several buffer types.
    ///
    /// # Safety
    /// A graph of this ggml's.
    unsafe fn alloc_as_reserved(&mut self, graph: *mut GgmlGraph) -> bool {
        let request = ReserveRequest::of(graph);
        // SAFETY: passed on.
        unsafe {
            match &self.fallback {
                Some(_) => self.use_fallback(
                    graph,
                    |ours| ours.alloc(graph),
                    |ggmls| (ggmls.ggml.ggml_gallocr_alloc_graph)(ggmls.handle, graph),
                ),
                None if self.has_given_up => false,
                None => {
                    let is_served = matches!(self.try_own(request, |ours| ours.alloc(graph)), PlanAttempt::Done(true));
                    if is_served {
                        self.history.served();
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
    /// As [`serve`](Self::provide).
    unsafe fn open_fallback(&mut self, request: ReserveRequest, why: &str) -> Option<FallbackAllocator> {
        let fallback = match &self.ggml.originals {
            // SAFETY: the caller's own buffer types.
            Some(originals) => {
                unsafe { OriginalAllocator::open(originals, &mut self.types) }.map(FallbackAllocator::Ggmls)
            }
            // SAFETY: passed on.
            None => unsafe { self.open_ggml_layout(request) }.map(FallbackAllocator::Layout),
        };
        match fallback {
            Some(_) => self.log_fallback(why),
            None => {
                let message = format_args!("the graph can't be allocated, by steeve's or by ggml's allocator: {why}");
                self.ggml.log(LogLevel::Error, message);
            }
        }
        fallback
    }

    /// Ours with ggml's layout and a plan for the graph, without memory.
    ///
    /// # Safety
    /// As [`serve`](Self::provide).
    unsafe fn open_ggml_layout(&self, request: ReserveRequest) -> Option<PlannedAllocator> {
        let ReserveRequest { graph, nodes, leafs } = request;
        let planned = catch_panic(|| {
            let known = self.ggml.known().ok()?;
            // SAFETY: the caller's own buffer types.
            let mut ours =
                unsafe { PlannedAllocator::new(known, self.settings.with_ggml_layout(), &self.types) }.ok()?;
            // SAFETY: passed on.
            unsafe { ours.reserve_size(graph, nodes, leafs) }.ok().map(|_| ours)
        });
        planned.flatten()
    }
}

impl OriginalAllocator {
    /// A handle of ggml's own, which is then known as such; `None` if ggml makes none.
    ///
    /// # Safety
    /// The buffer types are this ggml's.
    unsafe fn open(ggml: &'static OriginalFunctions, types: &mut [GgmlBufferType]) -> Option<Self> {
        // SAFETY: ggml's own function, as promised.
        let handle = unsafe { (ggml.ggml_gallocr_new_n)(types.as_mut_ptr(), types.len() as c_int) };
        if handle.is_null() {
            return None;
        }
        HANDLES.insert(handle.addr(), HandleOwner::Ggml(ggml));
        Some(Self { ggml, handle })
    }

    /// A handle of ggml's own for the program to free; null if ggml makes none.
    ///
    /// # Safety
    /// As [`open`](Self::open).
    unsafe fn open_for_program(ggml: &'static OriginalFunctions, types: &mut [GgmlBufferType]) -> OriginalHandle {
        // SAFETY: passed on.
        let own = unsafe { Self::open(ggml, types) };
        own.map_or(std::ptr::null_mut(), |own| std::mem::ManuallyDrop::new(own).handle)
    }
}

impl Drop for OriginalAllocator {
    fn drop(&mut self) {
        HANDLES.remove(self.handle.addr());
        // SAFETY: made by `open`, and freed once.
        unsafe { (self.ggml.ggml_gallocr_free)(self.handle) };
    }
}

/// The owner of a handle that did not pass through us: the only ggml there is. With two of them nobody can say.
fn owner_of_unknown(handle: *mut GallocrHandle) -> Option<HandleOwner> {
    if handle.is_null() {
        return None;
    }
    #[cfg(any(not(feature = "whole"), test))]
    if let Some(originals) = crate::find_ggml::only_ggml().and_then(|ggml| ggml.originals.as_ref()) {
        return Some(HandleOwner::Ggml(originals));
    }
    crate::log::log_stderr!("handle {handle:?} is not known");
    None
}

/// The answer, or `None` if it panicked: that never crosses into C.
pub(crate) fn catch_panic<R>(act: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_here() {
        assert_eq!(catch_panic(|| 7), Some(7));
        assert_eq!(catch_panic(|| [1, 2, 3][std::hint::black_box(3)]), None);
    }

    #[test]
    fn nobodys_handles_are_refused() {
        // SAFETY: there is no ggml that could take a handle for its own.
        unsafe {
            assert!(GallocrHandle::resolve(std::ptr::null_mut()).is_none());
            assert!(GallocrHandle::resolve(std::ptr::dangling_mut()).is_none());
            GallocrHandle::free(std::ptr::null_mut());
            GallocrHandle::free(std::ptr::dangling_mut());
        }
    }
}
