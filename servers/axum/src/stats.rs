//! What the server counts, and `GET /stats`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counters since the start, shared by all workers. Clones count together.
#[derive(Clone, Default)]
pub struct Counters(Arc<Totals>);

#[derive(Default)]
struct Totals {
    requests: AtomicU64,
    connections: AtomicU64,
}

impl Counters {
    /// Counts a request and returns how many came before it.
    pub fn count_request(&self) -> u64 {
        self.0.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub fn count_connection(&self) {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub fn stats(&self) -> Stats {
        Stats {
            requests: self.0.requests.load(Ordering::Relaxed),
            connections: self.0.connections.load(Ordering::Relaxed),
            gc: (),
            pool: (),
        }
    }
}

/// The body of `GET /stats`; `()` is written as null.
#[derive(Serialize)]
pub struct Stats {
    requests: u64,
    connections: u64,
    gc: (),
    pool: (),
}
