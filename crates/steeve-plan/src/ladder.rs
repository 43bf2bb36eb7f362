//! Niche search at several capacities: at the lower bound, where a solution is a proof, and on rungs between it and the
//! best known, where one is easier to find.
//!
//! ```text
//!   best known  ----------   every solution lowers it
//!        rungs  - - - - -    one walker each: a solution lowers the best known, a refutation raises the least
//!        least  ----------   the other walkers: a solution is optimal, a refutation raises it
//! ```
//!
//! Items fall into components that never live together; only those that stand above a capacity are searched. The
//! walkers go in rounds. What a round does depends on the rounds before it and on nothing else, so any number of
//! threads gives the same result.

use alloc::vec;
use alloc::vec::Vec;

use crate::Bytes;
use crate::crew::{Task, walk_all};
use crate::fast::lowest_stack;
use crate::items::Item;
use crate::meter::Meter;
use crate::niche::{Answer, NicheSearch};
use crate::packing::Packing;

/// What to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Any packing under a capacity.
    Under(u64),
    /// The lowest packing of all.
    Lowest,
}

/// What it means that no packing of the items fits under a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refutation {
    /// No plan of the problem fits: the items are its blocks.
    Proof,
    /// Nothing: the blocks may do what the items can't.
    Hint,
}

/// What was found.
pub(crate) struct Climbed {
    /// The lowest offsets with their peak, where they are lower than those given.
    pub(crate) offsets: Option<(Vec<u64>, u64)>,
    /// No packing of these items is lower.
    pub(crate) at_least: u64,
}

/// Rounds in which one walker goes alone on a component, because most are solved by then.
const ALONE: u32 = 10;
/// Walkers at the least capacity after that.
const TOGETHER: usize = 2;
/// And one at each of these parts of the way up to the best known.
const RUNGS: [u64; 2] = [6, 2];
/// The first walk has so many nodes for each item, and every few walks they grow by a little: long walks that begin
/// wrong stay wrong.
const NODES_PER_ITEM: f64 = 2.0;
const WALKS_PER_GROWTH: u32 = 5;
const GROWTH: f64 = 1.05;

/// Searches until the aim, the proof or the end of the budget. `offsets` is where the items stand so far.
pub(crate) fn climb(
    items: &[Item],
    offsets: Option<Vec<u64>>,
    aim: Aim,
    refutation: Refutation,
    threads: usize,
    meter: &mut Meter<'_, '_>,
) -> Climbed {
    let packing = Packing::new(items);
    let bound = packing.bound();
    // Merged items are alive with bytes that their blocks no longer need.
    let proved = if refutation == Refutation::Proof { bound } else { 0 };
    // With mixed alignments an item need not rest on anything, and a refutation proves nothing.
    let refutation = if packing.align.is_none() { refutation } else { Refutation::Hint };
    let offsets = offsets.unwrap_or_else(|| lowest_stack(items, 0).offsets);
    let before = packing.peak(&offsets);
    let mut climb = Climb { components: components(&packing), best: before, offsets, proved, at_least: bound, packing };
    climb.run(aim, refutation, threads, meter);
    Climbed { offsets: (climb.best < before).then_some((climb.offsets, climb.best)), at_least: climb.proved }
}

struct Climb {
    packing: Packing,
    components: Vec<Component>,
    offsets: Vec<u64>,
    best: u64,
    /// The least capacity that is not refuted, which is where the search goes on.
    at_least: u64,
    /// What may be told: no plan is smaller.
    proved: u64,
}

/// Items that are cut off from all others in time.
struct Component {
    items: Vec<u32>,
    packing: Packing,
}

impl Climb {
    fn run(&mut self, aim: Aim, refutation: Refutation, threads: usize, meter: &mut Meter<'_, '_>) {
        let mut low = Front::new(match aim {
            Aim::Under(capacity) => capacity,
            Aim::Lowest => self.at_least,
        });
        let mut rungs: Vec<Front> = Vec::new();
        loop {
            meter.note(Bytes(self.best), Bytes(self.proved));
            if self.best <= low.capacity || meter.tell(0) {
                return;
            }
            let alone = low.walks < ALONE;
            low.recruit(self, if alone { 1 } else { TOGETHER });
            if aim == Aim::Lowest && !alone {
                self.set_rungs(&mut rungs, low.capacity);
            }
            if low.walkers.is_empty() {
                return;
            }
            let refuted = self.round(&mut low, &mut rungs, threads, meter);
            if let Some(above) = refuted {
                self.at_least = self.at_least.max(above);
                if refutation == Refutation::Proof {
                    self.proved = self.at_least;
                }
                if aim != Aim::Lowest {
                    return;
                }
                low = Front::new(self.at_least);
            }
        }
    }

    /// One walk of each walker. If a capacity was refuted, the least that remains.
    fn round(
        &mut self,
        low: &mut Front,
        rungs: &mut [Front],
        threads: usize,
        meter: &mut Meter<'_, '_>,
    ) -> Option<u64> {
        let leading = low.walkers.len();
        let mut tasks: Vec<Task<'_>> = Vec::new();
        let mut counts = Vec::new();
        for front in core::iter::once(&mut *low).chain(rungs.iter_mut()) {
            let limit = front.limit(self);
            counts.push(front.walkers.len());
            tasks.extend(front.walkers.iter_mut().map(|walker| Task { walker, limit }));
        }
        let answers = walk_all(tasks, leading, threads, meter);
        let mut answers = answers.into_iter();
        let mut refuted = None;
        for (front, count) in core::iter::once(low).chain(rungs).zip(counts) {
            match front.learn(answers.by_ref().take(count)) {
                Lesson::Nothing => {}
                Lesson::Solved => self.install(front),
                Lesson::Refuted(above) => refuted = refuted.max(Some(above)),
            }
        }
        refuted
    }

    /// Keeps a front at each rung between the least and the best known; one that is reached or refuted moves.
    fn set_rungs(&self, rungs: &mut Vec<Front>, low: u64) {
        rungs.retain(|front| low < front.capacity && front.capacity < self.best);
        for part in RUNGS {
            let capacity = self.at_least + (self.best - self.at_least) / part;
            let gap = (self.best - self.at_least) / 8;
            let near = |front: &Front| front.capacity.abs_diff(capacity) <= gap;
            if low < capacity && rungs.len() < RUNGS.len() && !rungs.iter().any(near) {
                rungs.push(Front::new(capacity));
            }
        }
        for front in rungs {
            front.recruit(self, 1);
        }
    }

    /// Moves the items of the components that a front has solved, if that lowers the peak.
    fn install(&mut self, front: &Front) {
        let mut offsets = self.offsets.clone();
        for (index, found) in &front.solved {
            for (item, offset) in self.components[*index].items.iter().zip(found) {
                offsets[*item as usize] = *offset;
            }
        }
        let peak = self.packing.peak(&offsets);
        if peak < self.best {
            (self.offsets, self.best) = (offsets, peak);
        }
    }

    fn peak_of(&self, component: &Component) -> u64 {
        let top = |item: &u32| self.offsets[*item as usize] + self.packing.size[*item as usize];
        component.items.iter().map(top).max().unwrap_or(0)
    }
}

/// A capacity, and how far the search under it has come.
struct Front {
    capacity: u64,
    /// Components done so far, with their offsets.
    solved: Vec<(usize, Vec<u64>)>,
    /// The component that is searched now, and by whom.
    current: usize,
    walkers: Vec<NicheSearch>,
    walks: u32,
    growth: f64,
}

impl Front {
    fn new(capacity: u64) -> Self {
        Self { capacity, solved: Vec::new(), current: 0, walkers: Vec::new(), walks: 0, growth: 1.0 }
    }

    /// Sees to it that `crew` walkers work on a component that stands too high; nobody, if none does or if it can't be
    /// searched.
    fn recruit(&mut self, climb: &Climb, crew: usize) {
        if self.walkers.is_empty() {
            let open = |index: &usize| {
                let solved = self.solved.iter().any(|(done, _)| done == index);
                !solved && climb.peak_of(&climb.components[*index]) > self.capacity
            };
            let Some(current) = (0..climb.components.len()).find(open) else { return };
            (self.current, self.walks, self.growth) = (current, 0, 1.0);
        }
        let packing = &climb.components[self.current].packing;
        while self.walkers.len() < crew {
            let seed = self.walkers.len() as u64 + 1;
            let Some(walker) = NicheSearch::new(packing, self.capacity, seed) else { return };
            self.walkers.push(walker);
        }
    }

    /// The nodes of the next walk.
    fn limit(&mut self, climb: &Climb) -> u64 {
        self.walks += 1;
        if self.walks.is_multiple_of(WALKS_PER_GROWTH) {
            self.growth *= GROWTH;
        }
        let items = climb.components[self.current].items.len();
        (NODES_PER_ITEM * items as f64 * self.growth) as u64 + 1
    }

    /// Takes in what the walkers found: the first of them that knows decides.
    fn learn(&mut self, answers: impl Iterator<Item = Answer>) -> Lesson {
        let known = self.walkers.iter().zip(answers).find(|(_, answer)| *answer != Answer::Open);
        match known {
            Some((walker, Answer::Refuted)) => Lesson::Refuted(walker.next_capacity(self.capacity)),
            Some((_, Answer::Found(offsets))) => {
                self.solved.push((self.current, offsets));
                self.walkers.clear();
                Lesson::Solved
            }
            _ => Lesson::Nothing,
        }
    }
}

/// What a round has taught a front.
enum Lesson {
    Nothing,
    /// A component fits.
    Solved,
    /// Nothing fits: the least capacity that remains.
    Refuted(u64),
}

/// Cuts the packing where no item crosses from one section to the next.
fn components(packing: &Packing) -> Vec<Component> {
    let mut reach = vec![0; packing.sections];
    for (lo, hi) in packing.lo.iter().zip(&packing.hi) {
        reach[*lo as usize] = (*hi).max(reach[*lo as usize]);
    }
    // For each section, the component it belongs to.
    let mut component = vec![0; packing.sections];
    let (mut end, mut count) = (0, 0usize);
    for section in 0..packing.sections {
        if section as u32 >= end {
            count += 1;
        }
        end = reach[section].max(end);
        component[section] = count - 1;
    }
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (item, lo) in (0..).zip(&packing.lo) {
        members[component[*lo as usize]].push(item);
    }
    let build = |items: Vec<u32>| Component { packing: packing.part(&items), items };
    members.into_iter().map(build).collect()
}
