//! Limits the server to a known maximum rate.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::timer::Timer;

/// Admits requests in the order in which they come, never more than `rate_rps` per second.
///
/// While requests queue, the k-th is admitted exactly k / rate after the first of them, so that the
/// lateness of single ones does not lower the rate. A request whose client leaves the queue uses up
/// no slot.
pub struct Pacer {
    rate_rps: f64,
    /// The request at the head of the queue holds the lock; tokio passes the lock on in order.
    head: Mutex<Option<Busy>>,
}

/// A period in which requests come faster than they are admitted, since `begun`.
struct Busy {
    begun: Instant,
    admitted: u64,
}

impl Pacer {
    pub fn new(rate_rps: f64) -> Self {
        Self { rate_rps, head: Mutex::new(None) }
    }

    /// Waits until the request that came at `now` is admitted, and returns the time at which that
    /// was due.
    pub async fn admit(&self, now: Instant, timer: &Timer) -> Instant {
        let (mut head, has_queued) = match self.head.try_lock() {
            Ok(head) => (head, false),
            Err(_) => (self.head.lock().await, true),
        };
        if let Some(busy) = &mut *head {
            #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 requests")]
            let slot = busy.begun + Duration::from_secs_f64(busy.admitted as f64 / self.rate_rps);
            // A request that has queued gets its slot even if the slot has passed, so the wait need
            // not be precise.
            if has_queued || slot > now {
                timer.wait_past(slot).await;
                busy.admitted += 1;
                return slot;
            }
        }
        *head = Some(Busy { begun: now, admitted: 1 });
        now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::timeout;

    use super::*;

    fn paced_at(rate_rps: f64) -> (Arc<Pacer>, Arc<Timer>) {
        (Arc::new(Pacer::new(rate_rps)), Arc::new(Timer::start().unwrap()))
    }

    #[tokio::test]
    async fn a_queue_is_admitted_in_order_and_at_the_rate() {
        let (pacer, timer) = paced_at(3000.0);
        let begun = Instant::now();
        let start = |_| {
            let (pacer, timer) = (Arc::clone(&pacer), Arc::clone(&timer));
            tokio::spawn(async move { pacer.admit(begun, &timer).await })
        };
        let mut slots = Vec::new();
        for waiting in (0..601).map(start).collect::<Vec<_>>() {
            slots.push(waiting.await.unwrap());
        }
        assert!(slots.is_sorted());
        assert_eq!(slots[600] - slots[0], Duration::from_millis(200));
        assert!(begun.elapsed() >= Duration::from_millis(200));
    }

    #[tokio::test]
    async fn what_comes_slowly_is_admitted_at_once() {
        let (pacer, timer) = paced_at(100.0);
        let begun = Instant::now();
        for ms in [0, 10, 25, 60] {
            let now = begun + Duration::from_millis(ms);
            assert_eq!(pacer.admit(now, &timer).await, now);
        }
    }

    #[tokio::test]
    async fn a_pause_is_not_made_up_for() {
        let (pacer, timer) = paced_at(100.0);
        let begun = Instant::now();
        pacer.admit(begun, &timer).await;
        let later = begun + Duration::from_millis(50);
        assert_eq!(pacer.admit(later, &timer).await, later);
        assert_eq!(pacer.admit(later, &timer).await, later + Duration::from_millis(10));
    }

    #[tokio::test]
    async fn who_leaves_the_queue_takes_no_slot() {
        let (pacer, timer) = paced_at(10.0);
        let begun = Instant::now();
        pacer.admit(begun, &timer).await;
        for _ in 0..5 {
            let left = timeout(Duration::from_millis(2), pacer.admit(begun, &timer)).await;
            assert!(left.is_err());
        }
        assert_eq!(pacer.admit(begun, &timer).await, begun + Duration::from_millis(100));
    }
}
