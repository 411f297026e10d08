//! The behaviour that the environment asks for, read from variables into typed values.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use crate::burn::{Duty, Whose};
use crate::schedule::Schedule;

const PREFIX: &str = "REFERENCE_";
const DEFAULT_PERIOD: Duration = Duration::from_millis(100);
const MAX_SERVICE_MS: f64 = 60_000.0;
/// The highest CPU time of a request. A worker that burns does not notice SIGTERM, after which
/// everything must end within 2 s.
const MAX_CPU_MS: f64 = 100.0;
const MAX_BURN_US: f64 = 100_000.0;
const MAX_SPIKE_MS: f64 = 86_400_000.0;
const MAX_RPS: f64 = 1_000_000.0;
/// The period in which a spike uses its share. It is short, so that a spike of 20 ms has its share,
/// too.
const SPIKE_PERIOD: Duration = Duration::from_millis(10);

/// How the server behaves; by default it answers at once.
#[derive(Debug, Default, PartialEq)]
pub struct Behaviour {
    pub service: Option<Schedule>,
    pub duty: Option<Duty>,
    pub cpu_per_request: Option<Duration>,
    /// CPU time that each request uses on top of everything else, in the function `known_burn`.
    pub burn_per_request: Option<Duration>,
    pub max_rps: Option<f64>,
    /// Spikes in order of time, none within another.
    pub spikes: Vec<Spike>,
    pub fail_every: Option<u64>,
    pub close_every: Option<u64>,
    pub exit_after: Option<u64>,
    pub hang_after: Option<u64>,
}

/// CPU use for a known time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// When it begins, since the first counted request.
    pub at: Duration,
    pub length: Duration,
    pub duty: Duty,
}

impl Behaviour {
    /// Reads the environment, or returns a sentence that says which variable is wrong.
    pub fn from_env() -> Result<Self, String> {
        // A value that is not UTF-8 becomes a text that no variable allows.
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        Self::from_variables(env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    fn from_variables(all: impl Iterator<Item = (String, String)>) -> Result<Self, String> {
        let mut given = Given(all.filter(|(name, _)| name.starts_with(PREFIX)).collect());
        let duty_percent = given.take("CPU_PCT", "a number above 0, up to 100", percent)?;
        let period = given.take("CPU_PERIOD_MS", "a number from 1 to 1000", |text| {
            milliseconds(text, 1000.0).filter(|period| *period >= Duration::from_millis(1))
        })?;
        let period = period.unwrap_or(DEFAULT_PERIOD);
        let mut behaviour = Self {
            service: given.take("SERVICE_MS", SERVICE_FORM, service)?,
            duty: duty_percent.map(|percent| Duty {
                share: percent / 100.0,
                period,
                of: Whose::Process,
            }),
            cpu_per_request: given.take(
                "CPU_MS_PER_REQUEST",
                "a number from 0 to 100",
                |text| milliseconds(text, MAX_CPU_MS),
            )?,
            burn_per_request: given.take(
                "BURN_US_PER_REQUEST",
                "a number from 0 to 100000",
                |text| microseconds(text, MAX_BURN_US),
            )?,
            max_rps: given.take("MAX_RPS", "a number from 0.001 to 1000000", |text| {
                number(text).filter(|rate| (0.001..=MAX_RPS).contains(rate))
            })?,
            spikes: given.take("SPIKE", SPIKE_FORM, spikes)?.unwrap_or_default(),
            fail_every: given.take("FAIL_EVERY", COUNT_FORM, count)?,
            close_every: given.take("CLOSE_EVERY", COUNT_FORM, count)?,
            exit_after: given.take("EXIT_AFTER", COUNT_FORM, count)?,
            hang_after: given.take("HANG_AFTER", COUNT_FORM, count)?,
        };
        given.refuse_unknown()?;
        if behaviour.cpu_per_request.is_some() || !behaviour.spikes.is_empty() {
            behaviour.duty = behaviour.duty.map(|duty| Duty { of: Whose::Thread, ..duty });
        }
        Ok(behaviour)
    }
}

const SERVICE_FORM: &str = "milliseconds from 0 to 60000, such as 5, or at most 100 pairs of a whole weight and \
    milliseconds, such as 99:1,1:100, whose weights sum to at most 100000";
const SPIKE_FORM: &str = "at_ms:length_ms:percent, such as 2000:300:100, or several with commas between them, in \
    order and none within another";
const COUNT_FORM: &str = "a whole number of at least 1";

/// The variables that nothing has read yet.
struct Given(BTreeMap<String, String>);

impl Given {
    fn take<T>(
        &mut self,
        name: &str,
        form: impl Display,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let name = format!("{PREFIX}{name}");
        let Some(text) = self.0.remove(&name) else { return Ok(None) };
        match read(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("{name} must be {form}, but it is {text:?}.")),
        }
    }

    /// Refuses the variables that are left: a misspelt one would leave the server without the
    /// expected behaviour.
    fn refuse_unknown(self) -> Result<(), String> {
        match self.0.into_keys().next() {
            Some(name) => Err(format!("There is no variable {name}; server.toml lists them.")),
            None => Ok(()),
        }
    }
}

fn service(text: &str) -> Option<Schedule> {
    if let Some(time) = milliseconds(text, MAX_SERVICE_MS) {
        return Some(Schedule::new(&[(1, time)]));
    }
    let pair = |part: &str| {
        let (weight, time) = part.split_once(':')?;
        let weight = whole::<u32>(weight).filter(|weight| *weight >= 1)?;
        Some((weight, milliseconds(time, MAX_SERVICE_MS)?))
    };
    let parts = text.split(',').map(pair).collect::<Option<Vec<_>>>()?;
    let total: u64 = parts.iter().map(|(weight, _)| u64::from(*weight)).sum();
    let fits = parts.len() <= Schedule::MAX_TIMES && total <= u64::from(Schedule::MAX_WEIGHT);
    fits.then(|| Schedule::new(&parts))
}

fn spikes(text: &str) -> Option<Vec<Spike>> {
    let spikes = text.split(',').map(spike).collect::<Option<Vec<_>>>()?;
    let apart = spikes.windows(2).all(|pair| pair[0].at + pair[0].length <= pair[1].at);
    apart.then_some(spikes)
}

fn spike(text: &str) -> Option<Spike> {
    let mut parts = text.split(':');
    let at = milliseconds(parts.next()?, MAX_SPIKE_MS)?;
    let length = milliseconds(parts.next()?, MAX_SPIKE_MS).filter(|length| !length.is_zero())?;
    let share = percent(parts.next()?)? / 100.0;
    let complete = parts.next().is_none();
    complete.then_some(Spike {
        at,
        length,
        duty: Duty { share, period: SPIKE_PERIOD, of: Whose::Thread },
    })
}

fn percent(text: &str) -> Option<f64> {
    number(text).filter(|percent| *percent > 0.0 && *percent <= 100.0)
}

fn milliseconds(text: &str, at_most: f64) -> Option<Duration> {
    let given = number(text).filter(|milliseconds| *milliseconds <= at_most)?;
    Some(Duration::from_secs_f64(given / 1e3))
}

fn microseconds(text: &str, at_most: f64) -> Option<Duration> {
    let given = number(text).filter(|microseconds| *microseconds <= at_most)?;
    Some(Duration::from_secs_f64(given / 1e6))
}

fn count(text: &str) -> Option<u64> {
    whole(text).filter(|count| *count >= 1)
}

/// Reads digits with at most one point among them, but no signs, exponents and infinities, which
/// Rust also reads.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

fn whole<T: FromStr>(text: &str) -> Option<T> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Behaviour, String> {
        let owned =
            |(name, value): &(&str, &str)| (format!("REFERENCE_{name}"), (*value).to_owned());
        Behaviour::from_variables(variables.iter().map(owned))
    }

    fn assert_refused(name: &str, values: &[&str]) {
        for value in values {
            let sentence = read(&[(name, value)]).expect_err(value);
            assert!(sentence.starts_with(&format!("REFERENCE_{name} must be ")), "{sentence}");
            assert!(sentence.ends_with('.') && sentence.lines().count() == 1, "{sentence}");
        }
    }

    #[test]
    fn without_variables_there_is_no_behaviour() {
        assert_eq!(read(&[]), Ok(Behaviour::default()));
        let others = [("ADDR".to_owned(), "x".to_owned())];
        assert_eq!(Behaviour::from_variables(others.into_iter()), Ok(Behaviour::default()));
    }

    #[test]
    fn service_time_is_one_or_a_mixture() {
        let behaviour = read(&[("SERVICE_MS", "0.5")]).unwrap();
        assert_eq!(behaviour.service.unwrap().time_of(7), Duration::from_micros(500));
        let mixture = read(&[("SERVICE_MS", "99:1,1:100")]).unwrap().service.unwrap();
        let longest = (0..100).map(|before| mixture.time_of(before)).max();
        assert_eq!(longest, Some(Duration::from_millis(100)));
        let wrong =
            ["", "-1", "1e3", "inf", "NaN", "5ms", "60001", "1:", ":1", "0:5", "1:5,", "1.5:5"];
        assert_refused("SERVICE_MS", &wrong);
        assert_refused("SERVICE_MS", &["1:1:1", "100001:1", "4294967295:1,4294967295:1", " 5"]);
        assert_refused("SERVICE_MS", &["1:1,".repeat(101).trim_end_matches(',')]);
    }

    #[test]
    fn duty_has_a_percentage_and_a_period() {
        let duty =
            |share, ms| Some(Duty { share, period: Duration::from_millis(ms), of: Whose::Process });
        assert_eq!(read(&[("CPU_PCT", "30")]).unwrap().duty, duty(0.3, 100));
        let both = [("CPU_PCT", "100"), ("CPU_PERIOD_MS", "10")];
        assert_eq!(read(&both).unwrap().duty, duty(1.0, 10));
        for on_top in [("CPU_MS_PER_REQUEST", "1"), ("SPIKE", "10:10:50")] {
            let of = read(&[("CPU_PCT", "30"), on_top]).unwrap().duty.unwrap().of;
            assert_eq!(of, Whose::Thread, "{on_top:?}");
        }
        assert_refused("CPU_PCT", &["0", "100.1", "-5", "x"]);
        assert_refused("CPU_PERIOD_MS", &["0", "0.5", "1001"]);
    }

    #[test]
    fn spikes_are_apart() {
        let spikes = read(&[("SPIKE", "100:50:80,150:20.5:100")]).unwrap().spikes;
        assert_eq!(spikes[0].at, Duration::from_millis(100));
        assert_eq!(spikes[1].length, Duration::from_micros(20_500));
        assert!((spikes[0].duty.share - 0.8).abs() < 1e-12);
        assert_refused("SPIKE", &["", "1:2", "1:2:3:4", "1:0:50", "1:1:0", "1:1:101"]);
        assert_refused("SPIKE", &["100:50:80,149:1:80", "200:1:1,100:1:1", "1:1:1,"]);
    }

    #[test]
    fn rates_and_counts_are_positive() {
        let all = [("MAX_RPS", "0.5"), ("CPU_MS_PER_REQUEST", "1.5"), ("FAIL_EVERY", "10")];
        let behaviour = read(&all).unwrap();
        assert_eq!(behaviour.max_rps, Some(0.5));
        assert_eq!(behaviour.cpu_per_request, Some(Duration::from_micros(1500)));
        let burn = read(&[("BURN_US_PER_REQUEST", "2.5")]).unwrap().burn_per_request;
        assert_eq!(burn, Some(Duration::from_nanos(2500)));
        assert_refused("BURN_US_PER_REQUEST", &["-1", "100001"]);
        assert_eq!(behaviour.fail_every, Some(10));
        assert_refused("MAX_RPS", &["0", "0.0001", "1000001", "."]);
        assert_refused("CPU_MS_PER_REQUEST", &["-1", "100.1"]);
        for name in ["FAIL_EVERY", "CLOSE_EVERY", "EXIT_AFTER", "HANG_AFTER"] {
            assert_refused(name, &["", "0", "-1", "+1", "1.5", "99999999999999999999"]);
        }
    }

    #[test]
    fn unknown_variables_are_refused() {
        let sentence = read(&[("SERVCE_MS", "5")]).unwrap_err();
        assert!(sentence.contains("REFERENCE_SERVCE_MS"), "{sentence}");
    }
}
