//! Deadlines, precise to a few microseconds: tokio's own timer counts whole milliseconds.
//!
//! One thread serves every waiting request. The kernel wakes a sleeping thread late, by tens of
//! microseconds, so the thread learns how late (`Lead`), asks to be woken that much earlier, and
//! spins for the rest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use tokio::sync::oneshot;

/// The longest that the thread spins before a deadline.
const MAX_LEAD: Duration = Duration::from_micros(100);

/// A timer; its thread lives as long as the process.
pub struct Timer(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    earlier: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The entry with the earliest deadline first; of equal deadlines, the one that came first.
    heap: BinaryHeap<Reverse<Entry>>,
    entries_ever: u64,
}

struct Entry {
    deadline: Instant,
    number: u64,
    spins: bool,
    done: oneshot::Sender<()>,
}

impl Timer {
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name("timer".to_owned()).spawn(move || of_thread.run())?;
        Ok(Self(shared))
    }

    /// Returns at `deadline`, never before it.
    pub async fn wait_until(&self, deadline: Instant) {
        self.wait(deadline, true).await;
    }

    /// Returns some tens of microseconds after `deadline`, for which nothing spins.
    pub async fn wait_past(&self, deadline: Instant) {
        self.wait(deadline, false).await;
    }

    async fn wait(&self, deadline: Instant, spins: bool) {
        if deadline > Instant::now() {
            // The thread never drops a sender that it has not used.
            let _ = self.0.insert(deadline, spins).await;
        }
    }
}

impl Shared {
    fn insert(&self, deadline: Instant, spins: bool) -> oneshot::Receiver<()> {
        let (done, receiver) = oneshot::channel();
        let mut queue = self.lock();
        let number = queue.entries_ever;
        queue.entries_ever += 1;
        let is_first = queue.heap.peek().is_none_or(|Reverse(first)| deadline < first.deadline);
        queue.heap.push(Reverse(Entry { deadline, number, spins, done }));
        drop(queue);
        if is_first {
            self.earlier.notify_one();
        }
        receiver
    }

    fn run(&self) {
        // Without this setting, the kernel may prolong every sleep by 50 µs. If the kernel refuses,
        // only precision is lost.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut lead = Lead::default();
        let mut due = Vec::new();
        loop {
            self.take_due(&mut lead, &mut due);
            for entry in due.drain(..) {
                // This fails if the client has left and its request is dropped.
                let _ = entry.done.send(());
            }
        }
    }

    /// Sleeps until at least one deadline is over, and moves all that are over to `due`.
    fn take_due(&self, lead: &mut Lead, due: &mut Vec<Entry>) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            while let Some(first) = queue.heap.peek_mut()
                && first.0.deadline <= now
            {
                due.push(PeekMut::pop(first).0);
            }
            if !due.is_empty() {
                return;
            }
            let Some(Reverse(first)) = queue.heap.peek() else {
                queue = self.earlier.wait(queue).expect("no holder of the lock panics");
                continue;
            };
            let deadline = first.deadline;
            let alarm = if first.spins { deadline - lead.0 } else { deadline };
            if now >= alarm {
                drop(queue);
                spin_until(deadline);
                queue = self.lock();
                continue;
            }
            let slept = self.earlier.wait_timeout(queue, alarm - now);
            let (held, result) = slept.expect("no holder of the lock panics");
            if result.timed_out() {
                lead.learn(alarm.elapsed());
            }
            queue = held;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder of the lock panics")
    }
}

fn spin_until(deadline: Instant) {
    while Instant::now() < deadline {
        std::hint::spin_loop();
    }
}

/// How long before a deadline the thread wants to be woken: a running estimate of the 75th percentile of the
/// kernel's lateness, found by steps up after late wakings and three times smaller ones down after the others.
#[derive(Default)]
struct Lead(Duration);

impl Lead {
    const STEP: Duration = Duration::from_nanos(1500);

    fn learn(&mut self, lateness: Duration) {
        self.0 = if lateness > self.0 {
            (self.0 + Self::STEP).min(MAX_LEAD)
        } else {
            self.0.saturating_sub(Self::STEP / 3)
        };
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.deadline, self.number).cmp(&(other.deadline, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits `times` times for each of `waits_us`, all at once, and returns the errors in order of size.
    async fn errors(timer: &Arc<Timer>, times: usize, waits_us: &[u64]) -> Vec<Duration> {
        let mut errors = Vec::new();
        for _ in 0..times {
            let begun = Instant::now();
            let wait = |wait_us: &u64| {
                let deadline = begun + Duration::from_micros(*wait_us);
                let timer = Arc::clone(timer);
                tokio::spawn(async move {
                    timer.wait_until(deadline).await;
                    // This panics, so that the test fails, if the timer was early.
                    Instant::now().checked_duration_since(deadline).expect("never early")
                })
            };
            for waiting in waits_us.iter().map(wait).collect::<Vec<_>>() {
                errors.push(waiting.await.unwrap());
            }
        }
        errors.sort();
        errors
    }

    /// Panics unless the median error is below `most_us` in most of five attempts. Other programs,
    /// or a CPU that wakes slowly, may disturb one or two attempts.
    async fn assert_median_error(rounds: usize, waits_us: &[u64], most_us: u64) {
        let timer = Arc::new(Timer::start().unwrap());
        let mut medians = Vec::new();
        for _ in 0..5 {
            let errors = errors(&timer, rounds, waits_us).await;
            medians.push(errors[errors.len() / 2]);
        }
        medians.sort();
        let (count, most) = (waits_us.len(), Duration::from_micros(most_us));
        assert!(medians[2] < most, "{count} waits from {} us on: {medians:?}", waits_us[0]);
    }

    #[tokio::test]
    async fn the_median_error_is_below_200_us() {
        for wait_us in [500, 1000, 5000] {
            assert_median_error(101, &[wait_us], 200).await;
        }
    }

    #[tokio::test]
    async fn thousands_wait_at_once() {
        let waits_us: Vec<u64> = (0..5000).rev().map(|n| 20_000 + 10 * n).collect();
        assert_median_error(1, &waits_us, 1000).await;
    }

    #[tokio::test]
    async fn an_earlier_deadline_overtakes() {
        let timer = Arc::new(Timer::start().unwrap());
        let begun = Instant::now();
        let late = timer.0.insert(begun + Duration::from_secs(60), true);
        timer.wait_until(begun + Duration::from_millis(5)).await;
        assert!(begun.elapsed() < Duration::from_secs(30));
        drop(late);
    }

    #[test]
    fn the_lead_settles_at_the_lateness() {
        let mut lead = Lead::default();
        for _ in 0..1000 {
            lead.learn(Duration::from_micros(40));
        }
        assert!(lead.0.abs_diff(Duration::from_micros(40)) < Duration::from_micros(2));
        for _ in 0..1000 {
            lead.learn(Duration::from_millis(9));
        }
        assert_eq!(lead.0, MAX_LEAD);
    }
}
