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
            return best(scores);
        }
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (temperature, random) = (self.temperature, self.random());
        let weight = |score: f32| f64::from((score - largest) / temperature).exp();
        let mut left = random * scores.iter().copied().map(weight).sum::<f64>();
        let chosen = scores.iter().position(|score| {
            left -= weight(*score);
            left < 0.0
        });
        chosen.map_or_else(|| best(scores), |token| token as i32)
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

/// Returns the token with the largest score; of equals the first.
fn best(scores: &[f32]) -> i32 {
    let larger = |best: (usize, f32), (token, score): (usize, f32)| if score > best.1 { (token, score) } else { best };
    scores.iter().copied().enumerate().fold((0, f32::NEG_INFINITY), larger).0 as i32
}

/// Returns the likeliest tokens with the logarithms of their probabilities, the likeliest first; of equals the first.
pub(crate) fn likeliest(scores: &[f32], count: usize) -> Vec<(i32, f64)> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|score| f64::from((score - largest).exp())).sum();
    let mut best: Vec<(usize, f32)> = Vec::new();
    for (token, score) in scores.iter().copied().enumerate() {
        // Most are less likely than all that have been found.
        if best.len() < count || best.last().is_some_and(|(_, last)| *last < score) {
            let place = best.partition_point(|(_, other)| *other >= score);
            best.insert(place, (token, score));
            best.truncate(count);
        }
    }
    best.into_iter().map(|(token, score)| (token as i32, f64::from(score - largest) - sum.ln())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores with equals, and some that can't be chosen.
    fn scores(seed: u64) -> Vec<f32> {
        let mut random = Sampler::new(1.0, seed);
        let mut score =
            || if random.random() < 0.1 { f32::NEG_INFINITY } else { (random.random() * 20.0).round() as f32 / 4.0 };
        (0..50).map(|_| score()).chain([0.0]).collect()
    }

    #[test]
    fn the_likeliest_are_the_first_of_all_in_order() {
        for seed in 0..200 {
            let scores = scores(seed);
            let mut all: Vec<(i32, f32)> = (0..).zip(scores.iter().copied()).collect();
            all.sort_by(|(one, a), (other, b)| b.total_cmp(a).then(one.cmp(other)));
            let found = likeliest(&scores, scores.len());
            assert!(found.iter().map(|(token, _)| *token).eq(all.iter().map(|(token, _)| *token)));
            assert_eq!(likeliest(&scores, 5), found[..5]);
            let sum: f64 = found.iter().map(|(_, log)| log.exp()).sum();
            assert!((sum - 1.0).abs() < 1e-6, "{sum}");
            assert_eq!(Sampler::new(0.0, seed).choose(&scores), found[0].0);
        }
    }

    #[test]
    fn a_seed_chooses_the_same_and_tokens_come_as_often_as_they_are_likely() {
        let scores = [0.0, 1.0, f32::NEG_INFINITY, 2.0];
        for temperature in [0.5, 1.0, 3.0] {
            let drawn = |seed| {
                let mut sampler = Sampler::new(temperature, seed);
                (0..20_000).map(|_| sampler.choose(&scores)).collect::<Vec<_>>()
            };
            assert_eq!(drawn(7), drawn(7));
            assert_ne!(drawn(7), drawn(8));
            for (token, log) in likeliest(&scores.map(|score| score / temperature), 4) {
                let share = drawn(7).iter().filter(|it| **it == token).count() as f64 / 20_000.0;
                assert!((share - log.exp()).abs() < 0.015, "{temperature} {token}: {share}, expected {}", log.exp());
            }
        }
    }
}
