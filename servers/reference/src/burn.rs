//! CPU time that is used on purpose, measured by the clock of the thread that uses it.

use std::cell::Cell;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};

/// The longest delay that a thread makes up for. If it is further behind its periods, because the
/// CPU was not available, it drops the CPU time that it has missed.
const LONGEST_DEBT: Duration = Duration::from_secs(1);

/// A share of one CPU, from 0 to 1, used at the beginning of each period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duty {
    pub share: f64,
    pub period: Duration,
    pub of: Whose,
}

/// Whose CPU time makes up the share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Whose {
    /// The CPU time of the thread that keeps the share up; CPU time of other threads comes on top.
    Thread,
    /// The CPU time of all threads, which includes the cost of requests.
    Process,
}

impl Whose {
    fn cpu_time(self) -> Duration {
        let clock = match self {
            Self::Thread => ClockId::ThreadCPUTime,
            Self::Process => ClockId::ProcessCPUTime,
        };
        Duration::try_from(clock_gettime(clock)).expect("CPU time is not negative")
    }
}

impl Duty {
    /// Keeps this thread at its share until `end`, or for ever.
    ///
    /// If the thread used too little CPU time in a period, because it was preempted, or too much,
    /// the next periods make up for it.
    pub fn keep_up(self, end: Option<Instant>) {
        // If the kernel refuses, only precision is lost.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let (mut begun, mut begun_cpu, mut periods) = (Instant::now(), self.of.cpu_time(), 0_u32);
        while end.is_none_or(|end| Instant::now() < end) {
            periods += 1;
            let next = begun + self.period * periods;
            let wall = end.map_or(next, |end| end.min(next)) - begun;
            burn_until(self.of, begun_cpu + wall.mul_f64(self.share), end);
            let now = Instant::now();
            if let Some(left) = next.checked_duration_since(now) {
                thread::sleep(end.map_or(left, |end| left.min(end.saturating_duration_since(now))));
            } else if now - next > LONGEST_DEBT {
                (begun, begun_cpu, periods) = (now, self.of.cpu_time(), 0);
            } else if periods == u32::MAX {
                (begun, begun_cpu, periods) = (next, begun_cpu + wall.mul_f64(self.share), 0);
            }
        }
    }
}

thread_local! {
    /// The part of this thread's CPU time that its requests so far account for.
    static PAID: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Uses CPU time on this thread until this request has used `cpu` in total.
///
/// The total includes the CPU time that the thread has used to read and write HTTP since the last
/// call of this function. So a request costs exactly `cpu`, and HTTP adds nothing.
pub fn use_cpu(cpu: Duration) {
    let now = Whose::Thread.cpu_time();
    let paid = PAID.get().unwrap_or(now) + cpu;
    burn_until(Whose::Thread, paid, None);
    PAID.set(Some(paid.max(now)));
}

thread_local! {
    /// The CPU time by which this thread has burnt too much so far; its next requests burn less.
    static TOO_MUCH: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// CPU time of one reading of a thread's clock: a system call, which takes a microsecond on some
/// machines.
static READING: LazyLock<Duration> = LazyLock::new(|| {
    const READINGS: u32 = 2000;
    let begun = Whose::Thread.cpu_time();
    for _ in 0..READINGS {
        black_box(Whose::Thread.cpu_time());
    }
    (Whose::Thread.cpu_time() - begun) / READINGS
});

/// Uses this thread's CPU for `cpu` on top of everything else, so that a profile has a function of
/// known cost.
///
/// The cost includes the first half of the first clock reading and the second half of the last. Both
/// lie outside the measured interval, so `READING` is added for them.
#[inline(never)]
pub fn known_burn(cpu: Duration) {
    let reading = *READING;
    let begun = Whose::Thread.cpu_time();
    let due = cpu.saturating_sub(TOO_MUCH.get() + reading);
    let mut used = Duration::ZERO;
    while used < due {
        for number in 0..500_u32 {
            black_box(number);
        }
        used = Whose::Thread.cpu_time() - begun;
    }
    TOO_MUCH.set((TOO_MUCH.get() + used + reading).saturating_sub(cpu));
}

/// Burns until this thread, or the process, has used `goal` since its start, or until `end`.
fn burn_until(of: Whose, goal: Duration, end: Option<Instant>) {
    while of.cpu_time() < goal && end.is_none_or(|end| Instant::now() < end) {
        // This arithmetic takes a few microseconds, so that most of the time is not spent in the
        // clock's system calls.
        for number in 0..5000_u32 {
            black_box(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used_by(work: impl FnOnce()) -> Duration {
        let before = Whose::Thread.cpu_time();
        work();
        Whose::Thread.cpu_time() - before
    }

    /// Panics unless the median of five measurements is from `least` to below `most` ms: a hypervisor that takes CPU time
    /// away disturbs one or two of them (a guest's clocks count some of it as used).
    fn assert_median_ms(least: u64, most: u64, measure: impl Fn() -> Duration) {
        let mut used: Vec<Duration> = (0..5).map(|_| measure()).collect();
        used.sort();
        let range = Duration::from_millis(least)..Duration::from_millis(most);
        assert!(range.contains(&used[2]), "{used:?}");
    }

    // The CPU may be shared with other tests, so that a duty may lack some of its share, but never has more.
    #[test]
    fn a_duty_uses_its_share() {
        let duty = Duty { share: 0.3, period: Duration::from_millis(10), of: Whose::Thread };
        assert_median_ms(75, 153, || {
            used_by(|| duty.keep_up(Some(Instant::now() + Duration::from_millis(500))))
        });
    }

    #[test]
    fn a_duty_ends_with_its_last_part_of_a_period() {
        let duty = Duty { share: 0.5, period: Duration::from_millis(1000), of: Whose::Thread };
        let begun = Instant::now();
        assert_median_ms(0, 23, || {
            used_by(|| duty.keep_up(Some(Instant::now() + Duration::from_millis(40))))
        });
        assert!(begun.elapsed() < Duration::from_millis(500));
    }

    #[test]
    fn what_other_threads_use_is_a_part_of_the_processs_share() {
        let duty = Duty { share: 0.5, period: Duration::from_millis(10), of: Whose::Process };
        assert_median_ms(0, 105, || {
            let end = Instant::now() + Duration::from_millis(200);
            let others = thread::spawn(move || {
                let share = Duty { share: 0.4, of: Whose::Thread, ..duty };
                used_by(|| share.keep_up(Some(end)))
            });
            used_by(|| duty.keep_up(Some(end))) + others.join().unwrap()
        });
    }

    #[test]
    fn requests_pay_for_the_work_around_them() {
        let cpu = Duration::from_millis(2);
        assert_median_ms(39, 41, || {
            use_cpu(cpu);
            used_by(|| {
                for _ in 0..20 {
                    let own = Whose::Thread.cpu_time() + cpu / 2;
                    burn_until(Whose::Thread, own, None);
                    use_cpu(cpu);
                }
            })
        });
    }

    #[test]
    fn what_is_more_than_paid_for_is_not_owed() {
        use_cpu(Duration::ZERO);
        burn_until(Whose::Thread, Whose::Thread.cpu_time() + Duration::from_millis(5), None);
        use_cpu(Duration::from_millis(1));
        let used = used_by(|| use_cpu(Duration::from_millis(1)));
        assert!(used >= Duration::from_micros(900), "{used:?}");
    }
}
