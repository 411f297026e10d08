//! Refuses requests that have both Content-Length and Transfer-Encoding.

use std::convert::Infallible;
use std::io;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{CONNECTION, TRANSFER_ENCODING};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::serve::Listener;
use common::answer::Refusal;
use common::watched::{TwoLengths, WatchedStream};
use tower::{Service, service_fn};

use crate::routes::ApiError;

/// A listener that accepts the connections of another one, and watches what is read from them.
pub struct WatchedListener<L>(pub L);

impl<L: Listener> Listener for WatchedListener<L> {
    type Io = WatchedStream<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = self.0.accept().await;
        (WatchedStream::new(stream), address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// Returns the service of one connection, which refuses requests with both fields. A middleware of
/// the router would have to look up the connection in every request's extensions; this service has
/// it.
pub fn guarded(
    mut router: Router,
    two_lengths: TwoLengths,
) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone {
    service_fn(move |request: Request| {
        let is_faulty = two_lengths.seen() && request.headers().contains_key(TRANSFER_ENCODING);
        // Both branches have the same type of future, so a request that is not refused costs
        // nothing more.
        if is_faulty { any(refuse).call(request) } else { router.call(request) }
    })
}

async fn refuse() -> Response {
    ([(CONNECTION, "close")], ApiError::from(Refusal::two_lengths())).into_response()
}
