//! The bodies of answers, and the refusals.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// The largest body that a server reads; a longer one is `Refusal::too_large`.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// The body of `GET /count` and of an unknown path.
#[derive(Serialize)]
pub struct Message<T> {
    code: u16,
    message: T,
}

/// The body of `GET /count`: how many requests came before this one.
pub fn count(before: u64) -> Message<u64> {
    Message { code: 200, message: before }
}

/// The body of every unknown path. Its status is 200, as the contract says.
pub const NOT_FOUND: Message<&str> = Message { code: 404, message: "not found" };

/// The body of `GET /health`.
#[derive(Serialize)]
pub struct Health<'a> {
    pub(crate) status: &'static str,
    pub(crate) server: &'static str,
    pub(crate) nonce: &'a str,
}

/// A refused request: the status of its answer; serialised, it is the answer's body.
#[derive(Debug, Serialize)]
pub struct Refusal {
    #[serde(skip)]
    pub status: u16,
    error: Cow<'static, str>,
}

impl Refusal {
    pub fn bad_request(error: impl Into<Cow<'static, str>>) -> Self {
        Self { status: 400, error: error.into() }
    }

    /// Returns the refusal of a request with both Content-Length and Transfer-Encoding; the
    /// connection ends with it.
    pub fn two_lengths() -> Self {
        Self::bad_request("Transfer-Encoding excludes Content-Length")
    }

    pub fn method_not_allowed() -> Self {
        Self { status: 405, error: "method not allowed".into() }
    }

    pub fn too_large() -> Self {
        Self { status: 413, error: "the body must have at most 64 KiB".into() }
    }

    pub fn unavailable(error: impl Into<Cow<'static, str>>) -> Self {
        Self { status: 503, error: error.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.error)
    }
}
