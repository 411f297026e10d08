//! Carries out the behaviour: what a counted request goes through before its answer.

use std::future;
use std::io;
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use crate::behaviour::{Behaviour, Spike};
use crate::burn;
use crate::pacer::Pacer;
use crate::timer::Timer;

/// The exit code of a server that was asked to exit.
const EXIT_CODE: i32 = 3;

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Answer,
    Fail,
    Close,
}

pub struct Conduct {
    behaviour: Behaviour,
    timer: Timer,
    pacer: Option<Pacer>,
    /// Tells the thread of the spikes when the first request came.
    first_request: Option<mpsc::Sender<Instant>>,
}

impl Conduct {
    /// Starts the threads that the behaviour needs.
    pub fn start(behaviour: Behaviour) -> io::Result<Self> {
        if let Some(duty) = behaviour.duty {
            thread::Builder::new().name("duty".to_owned()).spawn(move || duty.keep_up(None))?;
        }
        let first_request = if behaviour.spikes.is_empty() {
            None
        } else {
            Some(start_spikes(behaviour.spikes.clone())?)
        };
        let pacer = behaviour.max_rps.map(Pacer::new);
        Ok(Self { timer: Timer::start()?, pacer, first_request, behaviour })
    }

    /// Notes that a request came; `before` is the number of earlier requests.
    pub fn begin(&self, before: u64) {
        if before == 0
            && let Some(first_request) = &self.first_request
        {
            // The thread of the spikes waits for this.
            let _ = first_request.send(Instant::now());
        }
        if self.behaviour.exit_after.is_some_and(|nth| before + 1 >= nth) {
            process::exit(EXIT_CODE);
        }
    }

    /// Delays the request, which has been read completely, and says how it ends.
    pub async fn go_through(&self, before: u64) -> End {
        let behaviour = &self.behaviour;
        if behaviour.hang_after.is_some_and(|nth| before + 1 >= nth) {
            future::pending::<()>().await;
        }
        let now = Instant::now();
        let admitted = match &self.pacer {
            Some(pacer) => pacer.admit(now, &self.timer).await,
            None => now,
        };
        let service = behaviour.service.as_ref().map(|schedule| schedule.time_of(before));
        // The service time counts from the time at which the admission was due, so that a late
        // admission does not add to the lateness of the answer.
        self.timer.wait_until(admitted + service.unwrap_or_default()).await;
        if let Some(cpu) = behaviour.cpu_per_request {
            burn::use_cpu(cpu);
        }
        if let Some(cpu) = behaviour.burn_per_request {
            burn::known_burn(cpu);
        }
        end_of(behaviour, before + 1)
    }
}

fn end_of(behaviour: &Behaviour, number: u64) -> End {
    let is_nth = |every: Option<u64>| every.is_some_and(|every| number.is_multiple_of(every));
    if is_nth(behaviour.close_every) {
        End::Close
    } else if is_nth(behaviour.fail_every) {
        End::Fail
    } else {
        End::Answer
    }
}

fn start_spikes(spikes: Vec<Spike>) -> io::Result<mpsc::Sender<Instant>> {
    let (first_request, received) = mpsc::channel::<Instant>();
    thread::Builder::new().name("spikes".to_owned()).spawn(move || {
        let Ok(begun) = received.recv() else { return };
        for Spike { at, length, duty } in spikes {
            thread::sleep((begun + at).saturating_duration_since(Instant::now()));
            duty.keep_up(Some(begun + at + length));
        }
    })?;
    Ok(first_request)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::schedule::Schedule;

    #[test]
    fn every_nth_ends_as_asked_and_closing_goes_first() {
        let behaviour =
            Behaviour { fail_every: Some(2), close_every: Some(3), ..Behaviour::default() };
        let ends: Vec<End> = (1..=6).map(|number| end_of(&behaviour, number)).collect();
        assert_eq!(ends, [End::Answer, End::Fail, End::Close, End::Fail, End::Answer, End::Close]);
    }

    #[tokio::test]
    async fn service_follows_admission() {
        let behaviour = || Behaviour {
            service: Some(Schedule::new(&[(1, Duration::from_millis(20))])),
            max_rps: Some(50.0),
            ..Behaviour::default()
        };
        // The second is admitted 20 ms after the first and served for 20 ms; a busy machine makes one or two of five late.
        let mut took = Vec::new();
        for _ in 0..5 {
            let conduct = Conduct::start(behaviour()).unwrap();
            let begun = Instant::now();
            let times = tokio::join!(conduct.go_through(0), conduct.go_through(1));
            assert_eq!(times, (End::Answer, End::Answer));
            took.push(begun.elapsed());
        }
        took.sort();
        assert!(took[0] >= Duration::from_millis(40), "{took:?}");
        assert!(took[2] < Duration::from_millis(60), "{took:?}");
    }

    #[tokio::test]
    async fn the_nth_request_hangs() {
        let behaviour = Behaviour { hang_after: Some(2), ..Behaviour::default() };
        let conduct = Conduct::start(behaviour).unwrap();
        assert_eq!(conduct.go_through(0).await, End::Answer);
        let waiting = tokio::time::timeout(Duration::from_millis(20), conduct.go_through(1));
        assert!(waiting.await.is_err());
    }
}
