//! Service times: how long each request takes.

use std::time::Duration;

/// A mixture of service times in a fixed order.
///
/// The order repeats after as many requests as the sum of the weights. So any sequence of that many
/// consecutive requests has each service time exactly as often as its weight says. Each service
/// time is spread as evenly as possible.
#[derive(Debug, PartialEq)]
pub struct Schedule {
    times: Vec<Duration>,
    /// For each request of a round, the index of its service time in `times`.
    round: Vec<u8>,
}

impl Schedule {
    pub const MAX_TIMES: usize = 100;
    pub const MAX_WEIGHT: u32 = 100_000;

    /// `parts` are weights and service times: at most `MAX_TIMES`, whose weights are at least 1 and sum to at
    /// most `MAX_WEIGHT`.
    pub fn new(parts: &[(u32, Duration)]) -> Self {
        let total: i64 = parts.iter().map(|(weight, _)| i64::from(*weight)).sum();
        let mut credits = vec![0_i64; parts.len()];
        let mut round = Vec::new();
        // Smooth weighted round robin: in each step, the credit of each part grows by the part's
        // weight. The part with the highest credit is chosen, and its credit falls by the sum of
        // all weights.
        for _ in 0..total {
            for (credit, (weight, _)) in credits.iter_mut().zip(parts) {
                *credit += i64::from(*weight);
            }
            let richest = (0..credits.len()).rev().max_by_key(|place| credits[*place]).unwrap_or(0);
            credits[richest] -= total;
            round.push(u8::try_from(richest).expect("there are at most 100 times"));
        }
        Self { times: parts.iter().map(|(_, time)| *time).collect(), round }
    }

    /// Returns the service time of a request; `before` is the number of earlier requests.
    pub fn time_of(&self, before: u64) -> Duration {
        let place = before % self.round.len() as u64;
        self.times[usize::from(self.round[usize::try_from(place).expect("smaller than the round")])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times_ms(parts: &[(u32, u64)], requests: u64) -> Vec<u128> {
        let part = |(weight, ms): &(u32, u64)| (*weight, Duration::from_millis(*ms));
        let schedule = Schedule::new(&parts.iter().map(part).collect::<Vec<_>>());
        (0..requests).map(|before| schedule.time_of(before).as_millis()).collect()
    }

    #[test]
    fn any_window_of_the_total_weight_is_exact() {
        for window in times_ms(&[(99, 1), (1, 100)], 1000).windows(100) {
            assert_eq!(window.iter().filter(|time| **time == 100).count(), 1);
        }
    }

    #[test]
    fn times_are_spread_evenly() {
        assert_eq!(times_ms(&[(3, 1), (1, 2)], 8), [1, 1, 2, 1, 1, 1, 2, 1]);
        assert_eq!(times_ms(&[(1, 1), (1, 2), (2, 3)], 4), [3, 1, 2, 3]);
    }

    #[test]
    fn one_time_is_always_the_same() {
        assert_eq!(times_ms(&[(7, 5)], 3), [5, 5, 5]);
    }
}
