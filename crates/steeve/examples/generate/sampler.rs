//! Which token comes next.

/// Chooses tokens by their scores.
pub(crate) struct Sampler {
    temperature: f32,
    state: u64,
}

impl Sampler {
    pub(crate) fn new(temperature: f32, seed: u64) -> Self {
        Self { temperature, state: seed }
    }

    /// Chooses the likeliest token, or any, as often as the temperature makes it likely.
    pub(crate) fn choose(&mut self, scores: &[f32]) -> i32 {
        if self.temperature <= 0.0 {
            return likeliest(scores, 1).first().map_or(0, |(token, _)| *token);
        }
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (temperature, random) = (self.temperature, self.random());
        let weight = |score: f32| f64::from((score - largest) / temperature).exp();
        let mut left = random * scores.iter().copied().map(weight).sum::<f64>();
        let chosen = scores.iter().position(|score| {
            left -= weight(*score);
            left < 0.0
        });
        chosen.map_or_else(|| likeliest(scores, 1)[0].0, |token| token as i32)
    }

    /// Returns a number from 0 up to 1: SplitMix64 (Steele, Lea and Flood 2014).
    fn random(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns the likeliest tokens with the logarithms of their probabilities, the likeliest first; of equals the first.
pub(crate) fn likeliest(scores: &[f32], count: usize) -> Vec<(i32, f64)> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|score| f64::from(score - largest).exp()).sum();
    let mut best: Vec<(usize, f32)> = Vec::new();
    for (token, score) in scores.iter().copied().enumerate() {
        let place = best.partition_point(|(_, other)| *other >= score);
        if place < count {
            best.insert(place, (token, score));
            best.truncate(count);
        }
    }
    best.into_iter().map(|(token, score)| (token as i32, f64::from(score - largest) - sum.ln())).collect()
}
