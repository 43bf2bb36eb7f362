//! A hash against chance, not against forgery: 64 bits, the same in every run.

const START: u64 = 0xCBF2_9CE4_8422_2325;
const PRIME: u64 = 0x100_0000_01B3;

/// Returns the FNV-1a hash of some bytes.
pub(crate) fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(START, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// A hash of numbers in the manner of FNV-1a, a word at a time.
pub(crate) struct WordHash(u64);

impl WordHash {
    pub(crate) fn new() -> Self {
        Self(START)
    }

    pub(crate) fn add(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(PRIME);
        // A product has nothing of a factor's high bits in its low ones.
        self.0 = mixed ^ mixed >> 32;
    }

    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv_1a(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv_1a(b"a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(fnv_1a(b"foobar"), 0x8594_4171_F739_67E8);
    }

    #[test]
    fn every_bit_of_a_word_counts_and_so_does_the_order() {
        let hash = |words: &[u64]| {
            let mut hash = WordHash::new();
            words.iter().for_each(|word| hash.add(*word));
            hash.finish()
        };
        let mut seen: Vec<u64> = (0..64).map(|bit| hash(&[1 << bit, 0])).collect();
        seen.extend([hash(&[]), hash(&[0]), hash(&[0, 0]), hash(&[0, 1])]);
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
