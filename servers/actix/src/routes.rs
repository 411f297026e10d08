//! Routes, handlers, and the answers to faulty requests.

use std::fmt;

use actix_web::dev::ServiceRequest;
use actix_web::error::{Error, PayloadError};
use actix_web::guard::{Any, Get, Head};
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue};
use actix_web::web::{self, Bytes, Data, Json, PayloadConfig, ReqData, ServiceConfig};
use actix_web::{HttpMessage, HttpResponse, Resource, ResponseError, Route};
use common::answer::{self, MAX_BODY_BYTES, Message, NOT_FOUND, Refusal};
use common::app::App;
use common::devices::{DEVICES, FixedDevice};
use common::experiment::Experiment;
use common::stats::Stats;

/// Adds the contract's routes for `app`.
pub fn configure(services: &mut ServiceConfig, app: Data<App>) {
    services
        .app_data(app)
        .app_data(PayloadConfig::new(MAX_BODY_BYTES))
        .service(resource("/count", "GET,HEAD").route(get().to(count)))
        .service(resource("/experiments", "POST").route(web::post().to(create_experiment)))
        .service(
            resource("/experiments/md5", "POST").route(web::post().to(create_hashed_experiment)),
        )
        .service(
            resource("/devices", "GET,HEAD,POST")
                .route(get().to(list_devices))
                .route(web::post().to(create_device)),
        )
        .service(resource("/health", "GET,HEAD").route(get().to(health)))
        .service(resource("/stats", "GET,HEAD").route(get().to(stats)))
        .default_service(web::to(not_found));
}

/// Returns a resource that refuses all methods for which the caller adds no route; `allowed` lists
/// the others.
fn resource(path: &str, allowed: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move || async move {
        let mut answer = ApiError(Refusal::method_not_allowed()).error_response();
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        answer
    }))
}

fn get() -> Route {
    web::route().guard(Any(Get()).or(Head()))
}

/// Number of requests that the middleware saw before this one.
#[derive(Clone, Copy)]
struct Before(u64);

/// Counts a request, unless it watches the server, and stores the number of requests before it.
// The number is stored with the request, because the counter may have moved on when the handler
// runs.
pub fn count_request(app: &App, request: &ServiceRequest) {
    if !matches!(request.path(), "/health" | "/stats") {
        let before = Before(app.counters.count_request());
        request.extensions_mut().insert(before);
    }
}

async fn count(before: ReqData<Before>) -> Json<Message<u64>> {
    let Before(before) = before.into_inner();
    Json(answer::count(before))
}

async fn not_found() -> Json<Message<&'static str>> {
    Json(NOT_FOUND)
}

async fn health(app: Data<App>) -> HttpResponse {
    HttpResponse::Ok().json(app.health())
}

async fn stats(app: Data<App>) -> Json<Stats> {
    Json(app.stats())
}

async fn list_devices() -> Json<&'static [FixedDevice]> {
    Json(&DEVICES)
}

// The extractor `Json` would also require a Content-Type, which the contract does not require.
type Body = Result<Bytes, ApiError>;

async fn create_device(app: Data<App>, body: Body) -> Result<HttpResponse, ApiError> {
    let device = app.insert_device(&body?).await?;
    Ok(HttpResponse::Created().json(device))
}

async fn create_experiment(body: Body) -> Result<Json<Experiment>, ApiError> {
    Ok(Json(Experiment::read(&body?)?))
}

async fn create_hashed_experiment(body: Body) -> Result<Json<Experiment>, ApiError> {
    Ok(Json(Experiment::read(&body?)?.hashed()))
}

#[derive(Debug)]
struct ApiError(Refusal);

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

// The error of the extractor `Bytes`, which reads a body.
impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self(match error.as_error() {
            Some(PayloadError::Overflow) => Refusal::too_large(),
            _ => Refusal::bad_request(error.to_string()),
        })
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).expect("a refusal has a status of HTTP")
    }

    fn error_response(&self) -> HttpResponse {
        HttpResponse::build(self.status_code()).json(&self.0)
    }
}
