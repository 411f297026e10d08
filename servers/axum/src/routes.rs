//! Routes, handlers, and the answers to faulty requests.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use common::answer::{self, MAX_BODY_BYTES, Message, NOT_FOUND, Refusal};
use common::app::App;
use common::devices::{DEVICES, FixedDevice};
use common::experiment::Experiment;
use common::stats::Stats;
use common::store::Device;
use tower::util::MapRequestLayer;

pub fn router(app: Arc<App>) -> Router {
    let counted = Router::new()
        .route("/count", get(count))
        .route("/experiments", post(create_experiment))
        .route("/experiments/md5", post(create_hashed_experiment))
        .route("/devices", get(list_devices).post(create_device))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        // All layers are added in one call, because the router boxes the layer of each call.
        .layer((
            MapRequestLayer::new(count_requests(app.clone())),
            DefaultBodyLimit::max(MAX_BODY_BYTES),
        ));
    Router::new()
        .route("/health", get(health))
        .route("/stats", get(stats))
        .method_not_allowed_fallback(method_not_allowed)
        .merge(counted)
        .with_state(app)
}

/// Number of requests that the middleware saw before this one.
#[derive(Clone, Copy)]
struct Before(u64);

// The number is stored with the request, because the counter may have moved on when the handler
// runs. A plain function is used, because `from_fn` would need a boxed future.
fn count_requests(app: Arc<App>) -> impl Fn(Request) -> Request + Clone {
    move |mut request| {
        let before = Before(app.counters.count_request());
        request.extensions_mut().insert(before);
        request
    }
}

async fn count(Extension(Before(before)): Extension<Before>) -> Json<Message<u64>> {
    Json(answer::count(before))
}

async fn not_found() -> Json<Message<&'static str>> {
    Json(NOT_FOUND)
}

async fn health(State(app): State<Arc<App>>) -> Response {
    Json(app.health()).into_response()
}

async fn stats(State(app): State<Arc<App>>) -> Json<Stats> {
    Json(app.stats())
}

async fn list_devices() -> Json<&'static [FixedDevice]> {
    Json(&DEVICES)
}

// The extractor `Json` would also require a Content-Type, which the contract does not require.
type Body = Result<Bytes, BytesRejection>;

async fn create_device(
    State(app): State<Arc<App>>,
    body: Body,
) -> Result<(StatusCode, Json<Device>), ApiError> {
    let device = app.insert_device(&body?).await?;
    Ok((StatusCode::CREATED, Json(device)))
}

async fn create_experiment(body: Body) -> Result<Json<Experiment>, ApiError> {
    Ok(Json(Experiment::read(&body?)?))
}

async fn create_hashed_experiment(body: Body) -> Result<Json<Experiment>, ApiError> {
    Ok(Json(Experiment::read(&body?)?.hashed()))
}

async fn method_not_allowed() -> ApiError {
    ApiError(Refusal::method_not_allowed())
}

pub struct ApiError(Refusal);

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        Self(match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Refusal::too_large(),
            _ => Refusal::bad_request(rejection.body_text()),
        })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(refusal) = self;
        let status = StatusCode::from_u16(refusal.status);
        (status.expect("a refusal has a status of HTTP"), Json(refusal)).into_response()
    }
}
