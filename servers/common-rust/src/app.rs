//! The state that the handlers of a server share.

use crate::answer::{Health, Refusal};
use crate::config::Config;
use crate::devices::NewDevice;
use crate::stats::{Counters, Stats};
use crate::store::{Device, Store};

pub struct App {
    server: &'static str,
    nonce: String,
    pub counters: Counters,
    store: Option<Store>,
}

impl App {
    /// Makes the state that handlers share; `server` is the name of the server's folder.
    pub fn new(server: &'static str, config: Config) -> Self {
        Self {
            server,
            nonce: config.nonce,
            counters: Counters::default(),
            store: config.database.map(Store::new),
        }
    }

    /// The body of `GET /health`.
    pub fn health(&self) -> Health<'_> {
        Health { status: "ok", server: self.server, nonce: &self.nonce }
    }

    /// The body of `GET /stats`.
    pub fn stats(&self) -> Stats {
        self.counters.stats(self.store.as_ref().map(Store::stats))
    }

    /// Answers `POST /devices`. Needs a tokio runtime.
    pub async fn insert_device(&self, body: &[u8]) -> Result<Device, Refusal> {
        let device = NewDevice::read(body)?;
        let Some(store) = &self.store else {
            return Err(Refusal::unavailable("there is no database: DATABASE_URL is not set"));
        };
        store.insert(device.mac, device.firmware).await.map_err(Refusal::from)
    }
}
