//! A small generator of pseudo-random numbers with a fixed seed: the same numbers everywhere, always.

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016).
#[derive(Clone, Debug)]
pub(crate) struct RandomGenerator(u64);

impl RandomGenerator {
    pub(crate) fn new(seed: u64) -> Self {
        // The state must not be 0; an odd factor spreads small seeds.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number that is at least 0 and below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
