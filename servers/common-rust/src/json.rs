//! Reads values from JSON, and writes them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Deserializer;

use crate::object::Object;

/// Reads a JSON object, or returns a sentence that names the wrong field.
pub fn read_object<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    // The whole body is checked, because serde_json does not check the fields that it skips.
    let text = str::from_utf8(body).map_err(|error| format!("the body is not UTF-8: {error}"))?;
    match serde_json::from_str(text) {
        Ok(Object(value)) => Ok(value),
        Err(error) => Err(named::<T>(text).unwrap_or_else(|| error.to_string())),
    }
}

/// Reads an invalid text a second time, more slowly, to get an error with the path to the field.
fn named<T: DeserializeOwned>(text: &str) -> Option<String> {
    let mut deserializer = Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, Object<T>>(&mut deserializer).err()?;
    Some(error.to_string())
}

/// Writes a value as compact JSON.
///
/// # Panics
///
/// Never for the bodies of this crate: they have no maps, and memory takes every write.
pub fn write(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("the contract's bodies are JSON")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Outer {
        #[expect(dead_code, reason = "only its type matters")]
        items: Vec<u8>,
    }

    fn error(body: &[u8]) -> String {
        read_object::<Outer>(body).unwrap_err()
    }

    #[test]
    fn errors_name_the_field() {
        assert!(error(br#"{"items":[1,"2"]}"#).starts_with("items[1]: "));
        assert!(error(b"{}").contains("`items`"));
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        assert!(error(b"[[1]]").contains("expected an object"));
        assert!(error(b"").contains("EOF"));
        assert!(error(br#"{"items":[]}x"#).contains("trailing characters"));
    }

    #[test]
    fn unknown_fields_are_ignored_but_are_utf_8() {
        assert!(read_object::<Outer>(br#"{"items":[],"more":{"x":null}}"#).is_ok());
        assert!(error(b"{\"items\":[],\"more\":\"\xff\"}").contains("not UTF-8"));
    }
}
