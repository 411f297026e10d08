//! Experiments: their form, their validation, and the MD5 of their name.

use std::time::{SystemTime, UNIX_EPOCH};

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize, Serializer};

use crate::answer::Refusal;
use crate::json;
use crate::object::Object;

const MAX_NAME_CHARS: usize = 200;
const MAX_VARIANTS: usize = 100;
/// The contract's 0.01 plus a little for the rounding of binary fractions, so that three times
/// 33.33 is valid.
const SUM_TOLERANCE: f64 = 0.01 + 1e-9;

/// The body of `POST /experiments`, and of the answer.
#[derive(Debug, Deserialize, Serialize)]
pub struct Experiment {
    name: String,
    variants: Vec<Object<Variant>>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Variant {
    name: String,
    #[serde(serialize_with = "shortest_number")]
    allocation_percent: f64,
}

impl Experiment {
    /// Reads and validates a body.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let experiment: Self = json::read_object(body).map_err(Refusal::bad_request)?;
        experiment.validate().map_err(Refusal::bad_request)?;
        Ok(experiment)
    }

    /// Returns the experiment with the MD5 of its name and the present time: the answer to `POST
    /// /experiments/md5`.
    pub fn hashed(self) -> Self {
        // A clock before 1970 counts as 1970.
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
        Self { name: hashed_name(&self.name, unix_s), ..self }
    }

    /// Returns a sentence that names the first invalid field, if there is one.
    fn validate(&self) -> Result<(), String> {
        if !has_valid_length(&self.name) {
            return Err(format!("name must have 1 to {MAX_NAME_CHARS} characters"));
        }
        if self.variants.is_empty() || self.variants.len() > MAX_VARIANTS {
            return Err(format!("variants must have 1 to {MAX_VARIANTS} items"));
        }
        let mut sum = 0.0;
        for (index, Object(variant)) in self.variants.iter().enumerate() {
            if !has_valid_length(&variant.name) {
                return Err(format!(
                    "variants[{index}].name must have 1 to {MAX_NAME_CHARS} characters"
                ));
            }
            if !(0.0..=100.0).contains(&variant.allocation_percent) {
                return Err(format!("variants[{index}].allocation_percent must be from 0 to 100"));
            }
            sum += variant.allocation_percent;
        }
        if (sum - 100.0).abs() > SUM_TOLERANCE {
            return Err("the allocation_percent of all variants must sum to 100".to_owned());
        }
        Ok(())
    }
}

/// Returns the lowercase hex MD5 of `NAME-UNIXSECONDS`.
fn hashed_name(name: &str, unix_s: u64) -> String {
    let digest = Md5::digest(format!("{name}-{unix_s}"));
    format!("{:032x}", u128::from_be_bytes(digest.into()))
}

fn has_valid_length(name: &str) -> bool {
    // A character has at most four bytes, so a very long name is refused without counting.
    !name.is_empty() && name.len() <= 4 * MAX_NAME_CHARS && name.chars().count() <= MAX_NAME_CHARS
}

/// Writes 50.0 as `50`, like Go and JavaScript, so that all servers send the same bytes.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn shortest_number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        return serializer.serialize_i64(*value as i64);
    }
    serializer.serialize_f64(*value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(name: &str, percents: &[f64]) -> Experiment {
        let variant = |allocation_percent: &f64| {
            Object(Variant { name: "blue".to_owned(), allocation_percent: *allocation_percent })
        };
        Experiment { name: name.to_owned(), variants: percents.iter().map(variant).collect() }
    }

    fn error(name: &str, percents: &[f64]) -> String {
        experiment(name, percents).validate().unwrap_err()
    }

    fn assert_valid(name: &str, percents: &[f64]) {
        assert_eq!(experiment(name, percents).validate(), Ok(()));
    }

    #[test]
    fn name_is_counted_in_characters() {
        assert_valid("x", &[100.0]);
        for letter in ["x", "é", "😀"] {
            assert_valid(&letter.repeat(200), &[100.0]);
            assert!(error(&letter.repeat(201), &[100.0]).starts_with("name "));
        }
        assert!(error("", &[100.0]).starts_with("name "));
    }

    #[test]
    fn variants_number_1_to_100() {
        assert_valid("x", &[1.0; 100]);
        assert!(error("x", &[]).starts_with("variants "));
        assert!(error("x", &[1.0; 101]).starts_with("variants "));
    }

    #[test]
    fn percent_is_finite_and_from_0_to_100() {
        assert_valid("x", &[0.0, 100.0]);
        for percent in [-0.01, 100.01, f64::NAN, f64::INFINITY] {
            assert!(error("x", &[percent]).starts_with("variants[0].allocation_percent "));
        }
    }

    #[test]
    fn sum_is_100_within_a_hundredth() {
        assert_valid("x", &[33.33, 33.33, 33.33]);
        assert_valid("x", &[50.0, 50.01]);
        assert!(error("x", &[50.0, 49.98]).contains("sum"));
        assert!(error("x", &[50.0, 50.02]).contains("sum"));
    }

    #[test]
    fn arrays_are_not_objects() {
        let error = |body: &str| json::read_object::<Experiment>(body.as_bytes()).unwrap_err();
        assert!(error(r#"["x", [["blue", 100]]]"#).contains("expected an object"));
        let inner = error(r#"{"name": "x", "variants": [["blue", 100]]}"#);
        assert!(inner.starts_with("variants[0]: ") && inner.contains("expected an object"));
    }

    #[test]
    fn numbers_are_written_short() {
        let text = json::write(&experiment("x", &[50.0, 49.5, 0.5]));
        assert_eq!(
            String::from_utf8(text).unwrap(),
            concat!(
                r#"{"name":"x","variants":[{"name":"blue","allocation_percent":50},"#,
                r#"{"name":"blue","allocation_percent":49.5},"#,
                r#"{"name":"blue","allocation_percent":0.5}]}"#
            )
        );
    }

    #[test]
    fn md5_is_that_of_md5sum() {
        // printf new_home_page-1700000000 | md5sum
        assert_eq!(hashed_name("new_home_page", 1_700_000_000), "8cee5114650cd4092bbf5ccb020dd8c1");
    }
}
