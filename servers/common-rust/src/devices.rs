//! The fixed list of devices, and the devices in the bodies of `POST /devices`.

use serde::{Deserialize, Serialize};

use crate::answer::Refusal;
use crate::json;

const MAX_TEXT_CHARS: usize = 100;

/// A device of the fixed list.
#[derive(Serialize)]
pub struct FixedDevice {
    uuid: &'static str,
    mac: &'static str,
    firmware: &'static str,
}

/// The contract's list; it is serialised anew for every request.
pub const DEVICES: [FixedDevice; 5] = [
    FixedDevice {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c01",
        mac: "02-00-00-00-00-01",
        firmware: "1.0.0",
    },
    FixedDevice {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c02",
        mac: "02-00-00-00-00-02",
        firmware: "1.0.4",
    },
    FixedDevice {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c03",
        mac: "02-00-00-00-00-03",
        firmware: "1.2.0",
    },
    FixedDevice {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c04",
        mac: "02-00-00-00-00-04",
        firmware: "2.0.1",
    },
    FixedDevice {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c05",
        mac: "02-00-00-00-00-05",
        firmware: "3.1.5",
    },
];

/// The body of `POST /devices`.
#[derive(Debug, Deserialize)]
pub struct NewDevice {
    pub mac: String,
    pub firmware: String,
}

impl NewDevice {
    /// Reads and validates a body.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let device: Self = json::read_object(body).map_err(Refusal::bad_request)?;
        for (field, text) in [("mac", &device.mac), ("firmware", &device.firmware)] {
            validate(field, text).map_err(Refusal::bad_request)?;
        }
        Ok(device)
    }
}

fn validate(field: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.chars().count() > MAX_TEXT_CHARS {
        return Err(format!("{field} must have 1 to {MAX_TEXT_CHARS} characters"));
    }
    if text.contains('\0') {
        return Err(format!("{field} must not contain U+0000, which PostgreSQL cannot store"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(mac: &str, firmware: &str) -> Result<NewDevice, Refusal> {
        NewDevice::read(format!(r#"{{"mac":"{mac}","firmware":"{firmware}"}}"#).as_bytes())
    }

    fn error(mac: &str, firmware: &str) -> String {
        String::from_utf8(json::write(&device(mac, firmware).unwrap_err())).unwrap()
    }

    #[test]
    fn texts_are_counted_in_characters() {
        assert!(device("x", "y").is_ok());
        for letter in ["x", "é", "😀"] {
            assert!(device(&letter.repeat(100), &letter.repeat(100)).is_ok());
            assert!(error(&letter.repeat(101), "y").contains("mac must have"));
            assert!(error("x", &letter.repeat(101)).contains("firmware must have"));
        }
        assert!(error("", "y").contains("mac must have"));
        assert!(error("x", "").contains("firmware must have"));
    }

    #[test]
    fn null_characters_are_refused() {
        assert!(error("a\\u0000b", "y").contains("mac must not contain U+0000"));
        assert!(error("x", "\\u0000").contains("firmware must not contain U+0000"));
    }

    #[test]
    fn fields_are_strings() {
        let refusal = NewDevice::read(br#"{"mac":"x","firmware":1}"#).unwrap_err();
        assert_eq!(refusal.status, 400);
        assert!(String::from_utf8(json::write(&refusal)).unwrap().contains("firmware"));
    }
}
