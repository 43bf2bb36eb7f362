//! Numbers that look random and are the same in every run, and how long work takes.

use std::time::{Duration, Instant};

/// SplitMix64, by Sebastiano Vigna.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Below `end`, which is not zero, as an index.
    pub fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// Once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// The latency of a task.
#[derive(Clone, Copy, Debug, Default)]
pub enum Latency {
    /// None.
    #[default]
    Quick,
    /// So long.
    Slow(Duration),
    /// Anything from 0 to below this many microseconds, by the seed.
    Jitter {
        /// Which numbers.
        seed: u64,
        /// The end of the range; not 0.
        micros: u64,
    },
}

/// A pace with what is left of its numbers.
#[derive(Debug)]
pub(super) struct LatencySource {
    pace: Latency,
    latency: Random,
}

impl LatencySource {
    /// `number` makes the numbers of two streams differ.
    pub(super) fn new(pace: Latency, number: u64) -> Self {
        let seed = if let Latency::Jitter { seed, .. } = pace { seed } else { 0 };
        Self { pace, latency: Random::new(seed ^ number.wrapping_mul(0x5851_F42D_4C95_7F2D)) }
    }

    /// Returns the next latency.
    pub(super) fn next(&mut self) -> Duration {
        match self.pace {
            Latency::Quick => Duration::ZERO,
            Latency::Slow(time) => time,
            Latency::Jitter { micros, .. } => Duration::from_micros(self.latency.below(micros.max(1))),
        }
    }
}

/// Lets time pass. A system sleeps for some fifty microseconds at least, so what is shorter is spent giving way.
pub(super) fn pause(time: Duration) {
    if time >= Duration::from_micros(200) {
        return std::thread::sleep(time);
    }
    let start = Instant::now();
    while start.elapsed() < time {
        std::thread::yield_now();
    }
}
