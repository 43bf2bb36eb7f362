//! Medians of the times that benchmarks measure.
//!
//! Machines are shared, so what is compared takes turns: a slow second then slows all of it.

use std::hint::black_box;
use std::time::Instant;

/// Returns the median of some numbers; the upper one of two, and not a number if there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the median seconds of `runs` calls of `work`, without the time to prepare each and to drop what it used and made.
pub fn median_time<T, R>(runs: usize, mut prepare: impl FnMut() -> T, mut work: impl FnMut(&mut T) -> R) -> f64 {
    let mut timed = || {
        let mut prepared = black_box(prepare());
        let start = Instant::now();
        let made = black_box(work(&mut prepared));
        let time = start.elapsed().as_secs_f64();
        drop(made);
        time
    };
    median((0..runs).map(|_| timed()).collect())
}

/// Returns the median seconds of `act(0)` to `act(count - 1)`, which take turns for so many rounds after one that is not
/// measured.
pub fn medians_in_turn(rounds: usize, count: usize, mut act: impl FnMut(usize)) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(rounds); count];
    (0..count).for_each(&mut act);
    for _ in 0..rounds {
        for (which, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            act(which);
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times.into_iter().map(median).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 4.0);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn whatever_is_compared_takes_turns() {
        let mut turns = Vec::new();
        assert_eq!(medians_in_turn(2, 3, |which| turns.push(which)).len(), 3);
        assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn each_run_has_what_was_prepared_for_it() {
        let mut prepared = 0;
        let prepare = || {
            prepared += 1;
            prepared
        };
        let mut seen = Vec::new();
        assert!(median_time(3, prepare, |number| seen.push(*number)) >= 0.0);
        assert_eq!(seen, [1, 2, 3]);
    }
}
