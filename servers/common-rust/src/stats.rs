//! What a server counts, and the body of `GET /stats`.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counters since the start, shared by all workers.
#[derive(Default)]
pub struct Counters {
    requests: AtomicU64,
    connections: AtomicU64,
}

impl Counters {
    /// Counts a request and returns how many came before it.
    pub fn count_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts an accepted connection.
    pub fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, pool: Option<PoolStats>) -> Stats {
        Stats {
            requests: self.requests.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            gc: (),
            pool,
        }
    }
}

/// The body of `GET /stats`; `()` is written as null, because Rust has no garbage collector.
#[derive(Serialize)]
pub struct Stats {
    requests: u64,
    connections: u64,
    gc: (),
    pool: Option<PoolStats>,
}

/// The pool of database connections: `in_use` and `idle` ones are open, at most `size` of them.
#[derive(Debug, PartialEq, Serialize)]
pub struct PoolStats {
    pub size: usize,
    pub in_use: usize,
    pub idle: usize,
    /// Requests that wait for a connection, or for its opening.
    pub waiting: usize,
}
