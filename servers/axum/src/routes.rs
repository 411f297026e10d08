//! Routes, handlers, and the answers to what goes wrong.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;

use crate::devices::{DEVICES, Device};
use crate::experiment::{Experiment, hashed_name};
use crate::object::Object;
use crate::stats::{Counters, Stats};

const MAX_BODY_BYTES: usize = 64 * 1024;

/// What the handlers share.
pub struct App {
    nonce: String,
    pub counters: Counters,
}

impl App {
    pub fn new(nonce: String) -> Self {
        Self { nonce, counters: Counters::default() }
    }
}

pub fn router(app: Arc<App>) -> Router {
    let counted = Router::new()
        .route("/count", get(count))
        .route("/experiments", post(create_experiment))
        .route("/experiments/md5", post(create_hashed_experiment))
        .route("/devices", get(list_devices))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(app.clone(), count_request))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
    Router::new()
        .route("/health", get(health))
        .route("/stats", get(stats))
        .method_not_allowed_fallback(method_not_allowed)
        .merge(counted)
        .with_state(app)
}

/// How many requests the middleware saw before this one.
#[derive(Clone, Copy)]
struct Before(u64);

// The number travels with the request: a handler that read the counter again would also see
// the requests that came in between.
async fn count_request(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let before = Before(app.counters.count_request());
    request.extensions_mut().insert(before);
    next.run(request).await
}

#[derive(Serialize)]
struct Message<T> {
    code: u16,
    message: T,
}

async fn count(Extension(Before(message)): Extension<Before>) -> Json<Message<u64>> {
    Json(Message { code: 200, message })
}

async fn not_found() -> Json<Message<&'static str>> {
    Json(Message { code: 404, message: "not found" })
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    server: &'static str,
    nonce: String,
}

async fn health(State(app): State<Arc<App>>) -> Json<Health> {
    Json(Health { status: "ok", server: "axum", nonce: app.nonce.clone() })
}

async fn stats(State(app): State<Arc<App>>) -> Json<Stats> {
    Json(app.counters.stats())
}

async fn list_devices() -> Json<&'static [Device]> {
    Json(&DEVICES)
}

async fn create_experiment(body: Body) -> Result<Json<Experiment>, ApiError> {
    read_experiment(body).map(Json)
}

async fn create_hashed_experiment(body: Body) -> Result<Json<Experiment>, ApiError> {
    let mut experiment = read_experiment(body)?;
    // A clock before 1970 counts as 1970.
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    experiment.name = hashed_name(&experiment.name, unix_s);
    Ok(Json(experiment))
}

type Body = Result<Bytes, BytesRejection>;

// `Json` as an extractor would also demand a Content-Type, which the contract does not.
fn read_experiment(body: Body) -> Result<Experiment, ApiError> {
    let Json(Object(experiment)) = Json::<Object<Experiment>>::from_bytes(&body?)
        .map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    experiment.validate().map_err(ApiError::bad_request)?;
    Ok(experiment)
}

async fn method_not_allowed() -> ApiError {
    ApiError { status: StatusCode::METHOD_NOT_ALLOWED, error: "method not allowed".to_owned() }
}

struct ApiError {
    status: StatusCode,
    error: String,
}

impl ApiError {
    fn bad_request(error: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error }
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        let status = rejection.status();
        let error = match status {
            StatusCode::PAYLOAD_TOO_LARGE => "the body must have at most 64 KiB".to_owned(),
            _ => rejection.body_text(),
        };
        Self { status, error }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct ErrorBody {
            error: String,
        }
        (self.status, Json(ErrorBody { error: self.error })).into_response()
    }
}
