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
    /// Makes the request of a graph whose nodes and leafs are all in the first buffer, or where they were reserved.
    pub(crate) fn of(graph: *mut GgmlGraph) -> Self {
        Self { graph, nodes: std::ptr::null(), leafs: std::ptr::null() }
    }
}

/// The outcome of trying our allocator with a graph.
enum PlanAttempt<R> {
    Done(R),
    /// No allocator could do anything with it, and it has been said why.
    Refused,
    /// It is for whatever there is instead, because of this.
    Unplannable(String),
}

/// Why ours is not used again.
const INTERNAL_ERROR: &str = "internal error";

/// The allocator behind a handle.
pub(crate) enum HandleTarget<'a> {
    Ours(&'a mut GallocrHandle),
    Ggmls(&'static OriginalFunctions, OriginalHandle),
}

impl GallocrHandle {
    /// Makes a handle, as C has it. Where our allocator can't be used at all it is one of ggml's own, so that callers of ggml's
    /// own functions may use it; then with the reason.
    ///
    /// # Safety
    /// The buffer types are this ggml's.
    pub(crate) unsafe fn open(
        ggml: &'static GgmlInstance,
        settings: &'static DropInSettings,
        mut types: Vec<GgmlBufferType>,
    ) -> (*mut Self, Option<String>) {
        let settings = match (settings.is_off, &ggml.originals) {
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
                ggml.log(LogLevel::Error, format_args!("no allocator: {why}"));
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

    /// Returns the allocator behind a handle; `None` for null and for an unknown one.
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

    /// Returns the ggml that the handle belongs to.
    pub(crate) fn ggml(&self) -> &'static GgmlInstance {
        self.ggml
    }

    /// Returns the buffer types of the handle.
    pub(crate) fn types(&self) -> &[GgmlBufferType] {
        &self.types
    }

    /// Returns whether our allocator is in use.
    pub(crate) fn is_ours(&self) -> bool {
        self.fallback.is_none() && !self.has_given_up
    }

    /// Frees a handle of ours or of ggml's own. An unknown one is ignored.
    ///
    /// # Safety
    /// The handle is not used after this call.
    pub(crate) unsafe fn free(handle: *mut Self) {
        match HANDLES.remove(handle.addr()).or_else(|| owner_of_unknown(handle)) {
            // SAFETY: made by `open`, and no longer among the handles.
            Some(HandleOwner::Us) => drop(unsafe { Box::from_raw(handle) }),
            // SAFETY: a handle of ggml's own.
            Some(HandleOwner::Ggml(originals)) => unsafe { (originals.ggml_gallocr_free)(handle.cast()) },
            None => {}
        }
    }

    /// Plans a graph and makes the buffers large enough. False, and a log line, if that fails.
    ///
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

    /// Gives every tensor of a graph its address. False if that fails; with several buffer types it must have been reserved.
    ///
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

    /// Returns what a reserve would take for each buffer; `None` if no allocator accepts the graph. What is allocated
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
        // A handle of its own: in the one that is in use, ggml would free the buffers.
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

    /// Returns how many bytes are allocated for a buffer type; 0 for an index out of range.
    pub(crate) fn buffer_size(&self, index: c_int) -> usize {
        let Some(number) = usize::try_from(index).ok().filter(|index| *index < self.types.len()) else {
            let count = self.types.len();
            self.ggml.log(LogLevel::Error, format_args!("buffer {index}: out of range: expected less than {count}"));
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

    /// Allocates memory for a graph, by our allocator if it can plan it, else by the fallback. False if neither can.
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

    /// Lets the fallback act on a graph, and notes in which buffers it has placed tensors.
    ///
    /// # Safety
    /// As [`serve`](Self::serve).
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

    /// Lets our allocator act on a graph. A fallback in use is freed as soon as it is certain that ours has a plan.
    ///
    /// # Safety
    /// As [`serve`](Self::serve).
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

    /// Lets our allocator act on a graph, and makes it first where there is none. A panic ends its use for good.
    ///
    /// # Safety
    /// As [`serve`](Self::serve).
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

    /// Logs why a graph gets no memory. Returns false, for the caller to answer.
    fn log_failure(&self, failure: AllocFailure) -> bool {
        match failure {
            AllocFailure::Malformed(why) => self.ggml.log(LogLevel::Error, format_args!("graph refused: {why}")),
            AllocFailure::Unplannable(why) => {
                self.ggml.log(LogLevel::Error, format_args!("graph cannot be planned: {why}"))
            }
            AllocFailure::OutOfMemory(why) => self.ggml.log(LogLevel::Error, format_args!("{why}")),
        }
        false
    }

    /// Logs why the fallback is used, once for each kind of reason.
    fn log_fallback(&self, why: &str) {
        let what = if self.ggml.originals.is_some() { "own allocator" } else { "layout" };
        let how_long = if self.has_given_up { "from now on" } else { "for this graph" };
        let message = format_args!("ggml's {what} is used {how_long}: {why}");
        self.ggml.log_once(&message_kind(why), LogLevel::Warning, message);
    }

    /// Gives tensors addresses from the last reserve, with several buffer types.
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

    /// Makes the fallback for a graph that our allocator can't plan: ggml's own allocator, or ours with ggml's layout if that can
    /// plan it. `None`, and a log line, where there is neither.
    ///
    /// # Safety
    /// As [`serve`](Self::serve).
    unsafe fn open_fallback(&mut self, request: ReserveRequest, why: &str) -> Option<FallbackAllocator> {
        let fallback = match &self.ggml.originals {
            Some(originals) => {
                // SAFETY: the caller's own buffer types.
                unsafe { OriginalAllocator::open(originals, &mut self.types) }.map(FallbackAllocator::Ggmls)
            }
            // SAFETY: passed on.
            None => unsafe { self.open_ggml_layout(request) }.map(FallbackAllocator::Layout),
        };
        match fallback {
            Some(_) => self.log_fallback(why),
            None => {
                let message = format_args!("graph cannot be allocated by steeve's or ggml's allocator: {why}");
                self.ggml.log(LogLevel::Error, message);
            }
        }
        fallback
    }

    /// Makes an allocator of ours with ggml's layout and a plan for the graph, without memory; `None` if it can't plan it.
    ///
    /// # Safety
    /// As [`serve`](Self::serve).
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
    /// Makes a handle of ggml's own and registers it as such; `None` if ggml makes none.
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

    /// Makes a handle of ggml's own for the program to free; null if ggml makes none.
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

/// Finds the owner of a handle that was not made through the drop-in: the only ggml there is. `None`, and a log line, with two.
fn owner_of_unknown(handle: *mut GallocrHandle) -> Option<HandleOwner> {
    if handle.is_null() {
        return None;
    }
    #[cfg(any(not(feature = "whole"), test))]
    if let Some(originals) = crate::find_ggml::only_ggml().and_then(|ggml| ggml.originals.as_ref()) {
        return Some(HandleOwner::Ggml(originals));
    }
    crate::log::log_stderr!("handle {handle:?}: unknown");
    None
}

/// Runs `act`; `None` if it panicked, for a panic must never cross into C.
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
