//! Routing by `match`, and the answers.

use std::convert::Infallible;
use std::sync::Arc;

use common::answer::{self, MAX_BODY_BYTES, NOT_FOUND, Refusal};
use common::app::App;
use common::devices::DEVICES;
use common::experiment::Experiment;
use common::json;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, TRANSFER_ENCODING};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;

type Answer = Response<Full<Bytes>>;

/// Answers a request, and also a faulty one. `two_lengths` says whether its connection has read a
/// head with both Content-Length and Transfer-Encoding.
pub async fn answer(
    app: Arc<App>,
    two_lengths: bool,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    if two_lengths && request.headers().contains_key(TRANSFER_ENCODING) {
        return Ok(refuse_and_close(&Refusal::two_lengths()));
    }
    let answered = match (request.uri().path(), request.method()) {
        ("/health", &Method::GET | &Method::HEAD) => Ok(ok(&app.health())),
        ("/stats", &Method::GET | &Method::HEAD) => Ok(ok(&app.stats())),
        ("/health" | "/stats", _) => Ok(method_not_allowed("GET,HEAD")),
        _ => {
            let before = app.counters.count_request();
            answer_counted(&app, before, request).await
        }
    };
    Ok(answered.unwrap_or_else(|refusal| refuse(&refusal)))
}

/// `before` is the number of requests that came before this one.
async fn answer_counted(
    app: &App,
    before: u64,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    match (request.uri().path(), request.method()) {
        ("/count", &Method::GET | &Method::HEAD) => Ok(ok(&answer::count(before))),
        ("/devices", &Method::GET | &Method::HEAD) => Ok(ok(&DEVICES)),
        ("/devices", &Method::POST) => {
            let body = read(request.into_body()).await?;
            let device = app.insert_device(&body).await?;
            Ok(with_json(StatusCode::CREATED, &device))
        }
        ("/experiments", &Method::POST) => {
            let body = read(request.into_body()).await?;
            Ok(ok(&Experiment::read(&body)?))
        }
        ("/experiments/md5", &Method::POST) => {
            let body = read(request.into_body()).await?;
            Ok(ok(&Experiment::read(&body)?.hashed()))
        }
        ("/count", _) => Ok(method_not_allowed("GET,HEAD")),
        ("/devices", _) => Ok(method_not_allowed("GET,HEAD,POST")),
        ("/experiments" | "/experiments/md5", _) => Ok(method_not_allowed("POST")),
        _ => Ok(ok(&NOT_FOUND)),
    }
}

async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::too_large()),
        Err(error) => Err(Refusal::bad_request(format!("the body cannot be read: {error}"))),
    }
}

fn ok(value: &impl Serialize) -> Answer {
    with_json(StatusCode::OK, value)
}

fn with_json(status: StatusCode, value: &impl Serialize) -> Answer {
    let mut answer = Response::new(Full::from(json::write(value)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn refuse(refusal: &Refusal) -> Answer {
    let status = StatusCode::from_u16(refusal.status);
    with_json(status.expect("a refusal has a status of HTTP"), refusal)
}

fn refuse_and_close(refusal: &Refusal) -> Answer {
    let mut answer = refuse(refusal);
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn method_not_allowed(allowed: &'static str) -> Answer {
    let mut answer = refuse(&Refusal::method_not_allowed());
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}
