//! Routes, handlers, and the answers to faulty requests.

use std::fmt;
use std::sync::Arc;

use common::answer::{self, MAX_BODY_BYTES, NOT_FOUND, Refusal};
use common::app::App;
use common::devices::DEVICES;
use common::experiment::Experiment;
use common::json;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;

use crate::conduct::{Conduct, End};

type Answer = Response<Full<Bytes>>;

/// The state that the handlers share.
pub struct State {
    pub app: App,
    pub conduct: Conduct,
}

/// Why a connection is closed without an answer.
#[derive(Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("closed on demand")
    }
}

impl std::error::Error for Closed {}

/// Answers a request; an error closes its connection.
pub async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Answer, Closed> {
    match (request.uri().path(), request.method()) {
        ("/health", &Method::GET | &Method::HEAD) => Ok(ok(&state.app.health())),
        ("/stats", &Method::GET | &Method::HEAD) => Ok(ok(&state.app.stats())),
        ("/health" | "/stats", _) => Ok(method_not_allowed("GET,HEAD")),
        _ => answer_counted(&state, request).await,
    }
}

async fn answer_counted(state: &State, request: Request<Incoming>) -> Result<Answer, Closed> {
    let before = state.app.counters.count_request();
    state.conduct.begin(before);
    let (head, body) = request.into_parts();
    // The body is read even if no handler wants it, because the service begins when the whole
    // request is there.
    let body = read(body).await;
    match state.conduct.go_through(before).await {
        End::Answer => {}
        End::Fail => return Ok(fail()),
        End::Close => return Err(Closed),
    }
    let done = body.and_then(|body| handle(&head, &body, before));
    Ok(done.unwrap_or_else(|refusal| refuse(&refusal)))
}

fn handle(head: &Parts, body: &[u8], before: u64) -> Result<Answer, Refusal> {
    match (head.uri.path(), &head.method) {
        ("/count", &Method::GET | &Method::HEAD) => Ok(ok(&answer::count(before))),
        ("/devices", &Method::GET | &Method::HEAD) => Ok(ok(&DEVICES)),
        ("/experiments", &Method::POST) => Ok(ok(&Experiment::read(body)?)),
        ("/experiments/md5", &Method::POST) => Ok(ok(&Experiment::read(body)?.hashed())),
        ("/count" | "/devices", _) => Ok(method_not_allowed("GET,HEAD")),
        ("/experiments" | "/experiments/md5", _) => Ok(method_not_allowed("POST")),
        _ => Ok(ok(&NOT_FOUND)),
    }
}

async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::too_large()),
        Err(error) => Err(Refusal::bad_request(format!("the body cannot be read: {error}"))),
    }
}

fn ok(value: &impl Serialize) -> Answer {
    with_json(StatusCode::OK, json::write(value).into())
}

fn refuse(refusal: &Refusal) -> Answer {
    let status = StatusCode::from_u16(refusal.status);
    with_json(status.expect("a refusal has a status of HTTP"), json::write(refusal).into())
}

fn method_not_allowed(allowed: &'static str) -> Answer {
    let mut answer = refuse(&Refusal::method_not_allowed());
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn fail() -> Answer {
    let body = Bytes::from_static(br#"{"error":"failure on demand"}"#);
    with_json(StatusCode::INTERNAL_SERVER_ERROR, body)
}

fn with_json(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
