//! Events in, what the program takes out: what is alive together, and of that the moment that counts.
//!
//! A program may make contexts only to see what they would take and free them again, as llama.cpp does with `--fit`, and it may
//! make several real ones one after another. So:
//!
//! - As soon as anything was really reserved, dry runs do not count. Each device's figures are those of the moment at which
//!   most of it was in use with ggml's buffers. (What is freed before the next is made is not counted twice.) With steeve's
//!   buffers another moment may be the fullest; whether a program fits is a question to that one.
//! - Otherwise the last dry run counts, as it was before its allocators were freed.
//! - A plan that there was no memory for counts as a moment of its own, since that is what the program would have taken.
//!   Afterwards everything is as it was before: its buffers never existed.
//!
//! ggml's bytes follow ggml's rule: where the chunks of a memory are too few or too small for a plan, all of them are made anew
//! as that plan needs them.

use std::collections::BTreeMap;

use super::report_reader::{
    ContextContents, DeviceName, HandleOwner, ReportEvent, ReportLine, ReportedMemory, ReserveOutcome,
};

/// A process and an address in it.
type ProcessAddress = (u32, String);

/// What is known of a program's memory so far.
#[derive(Default)]
pub(super) struct UsageLedger {
    handles: BTreeMap<ProcessAddress, GraphAllocatorUse>,
    buffers: BTreeMap<ProcessAddress, ContextBuffer>,
    /// By context and memory: the same size may be asked for any number of times.
    sizes: BTreeMap<(ProcessAddress, String), ContextBuffer>,
    /// Each device when most of it was really in use with ggml's buffers.
    largest: BTreeMap<DeviceName, DeviceUse>,
    /// The most bytes of each device that were in use with steeve's buffers, at whichever moment.
    largest_with_steeve: BTreeMap<DeviceName, u64>,
    last_dry: BTreeMap<DeviceName, DeviceUse>,
    dry_runs: u32,
    pub(super) is_real: bool,
    /// Whether there was no memory for a plan.
    pub(super) has_failed: bool,
    /// Whether a graph made no sense to any allocator.
    pub(super) has_refused: bool,
    /// Why some graphs are planned by ggml's own allocator, of which nothing is reported; `None` if none are.
    pub(super) why_foreign: Option<String>,
    pub(super) ggml_version: Option<String>,
}

/// A graph allocator.
struct GraphAllocatorUse {
    places: Vec<ReportedMemory>,
    is_dry: bool,
    reserved: Option<ReservedBytes>,
}

/// What an allocator has in each memory.
#[derive(Clone)]
struct ReservedBytes {
    /// ggml's chunks; `None` once a plan of its is not known.
    ggml: Option<Vec<Vec<u64>>>,
    steeve: Vec<u64>,
}

/// A buffer, or one that is only asked for.
struct ContextBuffer {
    place: ReportedMemory,
    contents: ContextContents,
    origin: ByteOrigin,
    bytes: u64,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ByteOrigin {
    /// The program made a buffer.
    Allocated,
    /// It asked for the size of one.
    Sized,
    /// It mapped a file.
    Mapped,
}

/// The bytes of one kind in one memory, by where that is known from.
pub(super) type BytesByOrigin = BTreeMap<ByteOrigin, u64>;

/// What is in use of one memory.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryUse {
    pub(super) contents: BTreeMap<ContextContents, BytesByOrigin>,
    pub(super) compute: Option<ComputeUse>,
}

/// The buffers of graph allocators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ComputeUse {
    /// `None` where that is not known.
    pub(super) ggml: Option<u64>,
    pub(super) steeve: u64,
}

/// The memories of one device by name.
pub(super) type DeviceUse = BTreeMap<String, MemoryUse>;

impl UsageLedger {
    /// Applies an event. Returns whether the program is still planning: after a dry run, loading weights does not mean that.
    pub(super) fn take(&mut self, line: ReportLine) -> bool {
        let is_plan =
            !matches!(line.event, ReportEvent::Buffer { .. } | ReportEvent::Mapped { .. } | ReportEvent::Drop { .. });
        let key = |address: String| (line.process, address);
        match line.event {
            ReportEvent::Open { handle, owner, why, ggml_version, memories } => {
                self.ggml_version = Some(ggml_version).filter(|version| !version.is_empty());
                if owner == HandleOwner::Ggml {
                    let why = why.unwrap_or_else(|| "the drop-in does not say why".to_owned());
                    self.why_foreign.get_or_insert(why);
                }
                let places = memories.into_iter().map(|memory| memory.place).collect();
                self.handles.insert(key(handle), GraphAllocatorUse { places, is_dry: false, reserved: None });
            }
            ReportEvent::Reserve { handle, outcome, ggml, steeve } => self.reserve(&key(handle), outcome, ggml, steeve),
            ReportEvent::Close { handle } => {
                let closed = self.handles.remove(&key(handle));
                let is_over = closed.is_some_and(|it| it.is_dry) && !self.handles.values().any(|it| it.is_dry);
                if is_over {
                    self.dry_runs += 1;
                    self.sizes.clear();
                }
            }
            ReportEvent::Buffer { buffer, context, contents, bytes, place } => {
                // A size that is asked for before the buffer is made counts once.
                self.sizes.remove(&(key(context), place.memory().to_owned()));
                self.buffers
                    .insert(key(buffer), ContextBuffer { place, contents, origin: ByteOrigin::Allocated, bytes });
            }
            ReportEvent::Mapped { buffer, bytes, place } => {
                // What programs map are models.
                let (contents, origin) = (ContextContents::Weights, ByteOrigin::Mapped);
                self.buffers.insert(key(buffer), ContextBuffer { place, contents, origin, bytes });
            }
            ReportEvent::Size { context, contents, bytes, place } => {
                let key = (key(context), place.memory().to_owned());
                self.sizes.insert(key, ContextBuffer { place, contents, origin: ByteOrigin::Sized, bytes });
            }
            ReportEvent::Drop { buffer } => {
                self.buffers.remove(&key(buffer));
            }
        }
        self.record_moment();
        is_plan || self.is_real
    }

    fn reserve(
        &mut self,
        key: &ProcessAddress,
        outcome: ReserveOutcome,
        ggml: Option<Vec<Vec<u64>>>,
        steeve: Vec<u64>,
    ) {
        let Some(handle) = self.handles.get_mut(key) else { return };
        let needed = ReservedBytes { ggml, steeve };
        match outcome {
            ReserveOutcome::Refused => self.has_refused = true,
            // Where there are buffers, asking what others would take changes nothing.
            ReserveOutcome::Dry if handle.reserved.is_some() && !handle.is_dry => {}
            ReserveOutcome::Dry => {
                handle.is_dry = true;
                handle.reserved = Some(match handle.reserved.take() {
                    Some(before) => before.with_largest(needed),
                    None => needed,
                });
            }
            ReserveOutcome::Done => {
                handle.forget_dry_run();
                handle.reserved = Some(match handle.reserved.take() {
                    Some(before) => before.with_buffers(needed),
                    None => needed,
                });
                self.is_real = true;
            }
            ReserveOutcome::Failed => {
                handle.forget_dry_run();
                let before = handle.reserved.clone();
                handle.reserved = Some(match handle.reserved.take() {
                    Some(before) => before.with_largest(needed),
                    None => needed,
                });
                (self.is_real, self.has_failed) = (true, true);
                self.record_moment();
                if let Some(handle) = self.handles.get_mut(key) {
                    handle.reserved = before;
                }
            }
        }
    }

    /// Records the current allocations, if they count.
    fn record_moment(&mut self) {
        if self.is_real {
            for (device, memories) in self.in_use(CountedRuns::Real) {
                let most = self.largest_with_steeve.entry(device.clone()).or_default();
                *most = total(&memories, |compute| compute.steeve).max(*most);
                let largest = self.largest.entry(device).or_default();
                if total(&memories, ComputeUse::with_ggml) >= total(largest, ComputeUse::with_ggml) {
                    *largest = memories;
                }
            }
        } else if self.handles.values().any(|handle| handle.is_dry) {
            self.last_dry = self.in_use(CountedRuns::All);
        }
    }

    /// Sums up what is allocated now, by device and memory.
    fn in_use(&self, count: CountedRuns) -> BTreeMap<DeviceName, DeviceUse> {
        let mut devices: BTreeMap<DeviceName, DeviceUse> = BTreeMap::new();
        let mut memory = |place: &ReportedMemory, change: &mut dyn FnMut(&mut MemoryUse)| {
            change(devices.entry(place.device()).or_default().entry(place.memory().to_owned()).or_default());
        };
        let sizes = self.sizes.values().filter(|_| count == CountedRuns::All);
        for it in self.buffers.values().chain(sizes) {
            memory(&it.place, &mut |memory| {
                *memory.contents.entry(it.contents).or_default().entry(it.origin).or_default() += it.bytes;
            });
        }
        for handle in self.handles.values().filter(|handle| count == CountedRuns::All || !handle.is_dry) {
            let Some(reserved) = &handle.reserved else { continue };
            for (index, (place, steeve)) in handle.places.iter().zip(&reserved.steeve).enumerate() {
                let ggml = reserved.ggml.as_ref().and_then(|ggml| Some(ggml.get(index)?.iter().sum::<u64>()));
                memory(place, &mut |memory| {
                    let before = memory.compute.unwrap_or(ComputeUse { ggml: Some(0), steeve: 0 });
                    let ggml = before.ggml.zip(ggml).map(|(before, ggml)| before + ggml);
                    memory.compute = Some(ComputeUse { ggml, steeve: before.steeve + steeve });
                });
            }
        }
        devices
    }

    /// Returns whether there is an answer: something was planned.
    pub(super) fn has_plans(&self) -> bool {
        !self.figures().is_empty()
    }

    /// Returns whether the program need not be watched further, if nothing more happens for a while. After several dry runs
    /// it is about to settle for something that none of them need have been.
    pub(super) fn is_settled(&self) -> bool {
        let is_dry = self.has_plans() && self.dry_runs() == 1;
        self.is_real || is_dry || (self.why_foreign.is_some() && !self.has_plans())
    }

    /// Returns how many dry runs there were, with the one that is not over yet.
    pub(super) fn dry_runs(&self) -> u32 {
        self.dry_runs + u32::from(self.handles.values().any(|handle| handle.is_dry))
    }

    /// Returns the figures of each device, the host last.
    pub(super) fn figures(&self) -> &BTreeMap<DeviceName, DeviceUse> {
        if self.is_real { &self.largest } else { &self.last_dry }
    }

    /// Returns the most bytes of a device that were in use at any moment that counts, with steeve's buffers.
    pub(super) fn peak_with_steeve(&self, device: &DeviceName) -> u64 {
        if self.is_real {
            return self.largest_with_steeve.get(device).copied().unwrap_or_default();
        }
        self.last_dry.get(device).map_or(0, |memories| total(memories, |compute| compute.steeve))
    }
}

impl GraphAllocatorUse {
    /// Forgets the sizes of a dry run, which made no buffers.
    fn forget_dry_run(&mut self) {
        if self.is_dry {
            (self.is_dry, self.reserved) = (false, None);
        }
    }
}

impl ReservedBytes {
    /// Returns what there is after a plan: steeve's buffers are as they are, ggml's by its rule.
    fn with_buffers(self, now: Self) -> Self {
        let ggml = self.ggml.zip(now.ggml).map(|(before, needed)| remade(before, needed));
        Self { ggml, steeve: now.steeve }
    }

    /// Returns what there would be after a plan without buffers: of steeve's, the largest so far.
    fn with_largest(self, needed: Self) -> Self {
        let steeve = self.steeve.iter().zip(&needed.steeve).map(|(before, now)| *before.max(now)).collect();
        self.with_buffers(Self { steeve, ..needed })
    }
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountedRuns {
    Real,
    All,
}

/// Returns what ggml's buffers are after a plan that needs these: in each memory as before, or if that is too little, as needed.
fn remade(before: Vec<Vec<u64>>, needed: Vec<Vec<u64>>) -> Vec<Vec<u64>> {
    let fits = |before: &[u64], needed: &[u64]| {
        before.len() >= needed.len() && before.iter().zip(needed).all(|(before, needed)| before >= needed)
    };
    let each = before.into_iter().zip(needed);
    each.map(|(before, needed)| if fits(&before, &needed) { before } else { needed }).collect()
}

impl ComputeUse {
    /// Returns ggml's bytes, or steeve's where those are not known.
    fn with_ggml(self) -> u64 {
        self.ggml.unwrap_or(self.steeve)
    }
}

/// Sums up the bytes of a device, with `compute` of its graph allocators.
fn total(memories: &DeviceUse, compute: fn(ComputeUse) -> u64) -> u64 {
    let memory = |memory: &MemoryUse| {
        let contents: u64 = memory.contents.values().flat_map(BTreeMap::values).sum();
        contents + memory.compute.map_or(0, compute)
    };
    memories.values().map(memory).sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn ledger(lines: &[&str]) -> UsageLedger {
        let mut ledger = UsageLedger::default();
        for line in lines {
            let line = format!(r#"{{"report":1,"process":1,{line}}}"#);
            ledger.take(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")));
        }
        ledger
    }

    const OPEN: &str = r#""event":"open","handle":"h","owner":"steeve","ggml_version":"0.9.4","memories":[{"memory":"CUDA0","device":"CUDA0","host":false,"shared":false},{"memory":"CPU","host":true,"shared":false}]"#;

    fn reserve(outcome: &str, ggml: &str, steeve: &str) -> String {
        format!(r#""event":"reserve","handle":"h","outcome":"{outcome}","ggml":{ggml},"steeve":{steeve}"#)
    }

    fn compute(ledger: &UsageLedger) -> Vec<(String, Option<u64>, u64)> {
        let memories = ledger.figures().values().flatten();
        memories.filter_map(|(name, it)| Some((name.clone(), it.compute?.ggml, it.compute?.steeve))).collect()
    }

    #[test]
    fn ggmls_buffers_are_made_anew_as_a_plan_needs_them() {
        let ledger = ledger(&[
            OPEN,
            &reserve("done", "[[50,50],[8]]", "[90,8]"),
            &reserve("done", "[[70,40],[4]]", "[90,8]"),
            &reserve("done", "[[20],[16]]", "[90,16]"),
        ]);
        // The second plan needs a larger chunk, so the chunks are as it needs them; the third fits there.
        assert_eq!(compute(&ledger), [("CUDA0".into(), Some(110), 90), ("CPU".into(), Some(16), 16)]);
    }

    #[test]
    fn dry_runs_do_not_count_once_something_is_reserved() {
        let dry = reserve("dry", "[[1000],[10]]", "[900,10]");
        let size = r#""event":"size","context":"c","memory":"CUDA0","device":"CUDA0","host":false,"contents":"weights","bytes":5000"#;
        let close = r#""event":"close","handle":"h""#;
        let only_dry = ledger(&[OPEN, &dry, size, size, close]);
        assert!(only_dry.is_settled() && only_dry.dry_runs() == 1);
        assert_eq!(compute(&only_dry), [("CUDA0".into(), Some(1000), 900), ("CPU".into(), Some(10), 10)]);
        let weights = &only_dry.figures().values().next().unwrap()["CUDA0"].contents[&ContextContents::Weights];
        assert_eq!(weights.values().sum::<u64>(), 5000, "a size that is asked for twice is one size");
        let smaller = reserve("dry", "[[100],[10]]", "[90,10]");
        let two = ledger(&[OPEN, &dry, size, close, OPEN, &smaller, close]);
        assert!(!two.is_settled(), "the program is still looking for something that fits");
        assert_eq!(compute(&two)[0], ("CUDA0".into(), Some(100), 90));
        let real = ledger(&[OPEN, &dry, size, close, OPEN, &reserve("done", "[[70],[10]]", "[60,10]"), close]);
        assert!(real.is_settled());
        assert_eq!(compute(&real), [("CUDA0".into(), Some(70), 60), ("CPU".into(), Some(10), 10)]);
        assert!(real.figures().values().flatten().all(|(_, memory)| memory.contents.is_empty()));
    }

    #[test]
    fn what_is_freed_before_the_next_is_made_is_not_counted_twice() {
        let buffer = |name: &str, bytes: u64| {
            format!(
                r#""event":"buffer","buffer":"{name}","context":"c","memory":"CUDA0","device":"CUDA0","host":false,"contents":"caches","bytes":{bytes}"#
            )
        };
        let (drop, reserved) = (r#""event":"drop","buffer":"a""#, reserve("done", "[[7],[0]]", "[5,0]"));
        let ledger = ledger(&[OPEN, &reserved, &buffer("a", 100), drop, &buffer("b", 40), &buffer("a", 80)]);
        let caches = &ledger.figures().values().next().unwrap()["CUDA0"].contents[&ContextContents::Caches];
        assert_eq!(caches[&ByteOrigin::Allocated], 120);
    }

    #[test]
    fn the_fullest_moment_with_steeve_may_be_another_than_with_ggml() {
        let buffer = r#""event":"buffer","buffer":"a","context":"c","memory":"CUDA0","device":"CUDA0","host":false,"contents":"caches","bytes":30"#;
        let other = OPEN.replace(r#""handle":"h""#, r#""handle":"g""#);
        let smaller = reserve("done", "[[60],[0]]", "[60,0]").replace(r#""handle":"h""#, r#""handle":"g""#);
        let close = r#""event":"close","handle":"h""#;
        // With ggml 100 and then 90 bytes, with steeve 50 and then 90.
        let ledger = ledger(&[OPEN, &reserve("done", "[[100],[0]]", "[50,0]"), close, &other, &smaller, buffer]);
        let device = ledger.figures().keys().next().unwrap();
        assert_eq!(compute(&ledger)[0], ("CUDA0".into(), Some(100), 50));
        assert_eq!(ledger.peak_with_steeve(device), 90);
    }

    #[test]
    fn buffers_that_could_not_be_had_are_not_there_afterwards() {
        let buffer = r#""event":"buffer","buffer":"a","context":"c","memory":"CUDA0","device":"CUDA0","host":false,"contents":"caches","bytes":950"#;
        let (failed, done) = (reserve("failed", "[[900],[0]]", "[800,0]"), reserve("done", "[[70],[0]]", "[60,0]"));
        let only_failed = ledger(&[OPEN, &failed]);
        assert!(only_failed.has_failed && only_failed.is_real);
        assert_eq!(compute(&only_failed)[0], ("CUDA0".into(), Some(900), 800), "what it would have taken");
        let smaller = ledger(&[OPEN, &failed, &done, buffer]);
        assert_eq!(compute(&smaller)[0], ("CUDA0".into(), Some(70), 60));
        let device = smaller.figures().keys().next().unwrap();
        assert_eq!(smaller.peak_with_steeve(device), 1010);
    }

    #[test]
    fn a_dry_run_makes_no_buffers_that_a_later_plan_would_fit_into() {
        let (dry, done) = (reserve("dry", "[[900],[8]]", "[800,8]"), reserve("done", "[[70],[4]]", "[60,4]"));
        let ledger = ledger(&[OPEN, &dry, &done]);
        assert_eq!(compute(&ledger), [("CUDA0".into(), Some(70), 60), ("CPU".into(), Some(4), 4)]);
    }

    #[test]
    fn a_graph_that_is_refused_takes_nothing() {
        let refused = reserve("refused", "null", "[0,0]");
        let nothing = ledger(&[OPEN, &refused]);
        assert!(nothing.has_refused && !nothing.has_failed && !nothing.has_plans());
        let after = ledger(&[OPEN, &reserve("done", "[[70],[4]]", "[60,4]"), &refused]);
        assert_eq!(compute(&after), [("CUDA0".into(), Some(70), 60), ("CPU".into(), Some(4), 4)]);
    }

    #[test]
    fn a_plan_of_ggmls_that_is_not_known_makes_its_bytes_unknown() {
        let ledger = ledger(&[OPEN, &reserve("done", "null", "[90,8]")]);
        assert_eq!(compute(&ledger), [("CUDA0".into(), None, 90), ("CPU".into(), None, 8)]);
    }
}
