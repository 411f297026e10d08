//! The fixed list of devices.

use serde::Serialize;

#[derive(Serialize)]
pub struct Device {
    uuid: &'static str,
    mac: &'static str,
    firmware: &'static str,
}

/// The contract's list; it is serialised anew for every request.
pub const DEVICES: [Device; 5] = [
    Device {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c01",
        mac: "02-00-00-00-00-01",
        firmware: "1.0.0",
    },
    Device {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c02",
        mac: "02-00-00-00-00-02",
        firmware: "1.0.4",
    },
    Device {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c03",
        mac: "02-00-00-00-00-03",
        firmware: "1.2.0",
    },
    Device {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c04",
        mac: "02-00-00-00-00-04",
        firmware: "2.0.1",
    },
    Device {
        uuid: "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c05",
        mac: "02-00-00-00-00-05",
        firmware: "3.1.5",
    },
];
