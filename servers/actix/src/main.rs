//! The lab's HTTP contract on actix-web, written the way actix's users write it.

mod routes;

use std::io;
use std::process::ExitCode;

use actix_web::HttpServer;
use actix_web::dev::Service;
use actix_web::http::KeepAlive;
use actix_web::web::Data;
use common::app::App;
use common::config::Config;
use common::process::{self, HEADER_TIMEOUT};

/// The longest time for requests in flight after SIGTERM; by the contract everything must end
/// within 2 s.
const SHUTDOWN_TIMEOUT_S: u64 = 1;

fn main() -> ExitCode {
    process::run(serve)
}

// actix starts `available_parallelism()` workers, which is the number of CPUs that the CPU affinity
// and the cgroup's quota leave to this process. It ends by itself on SIGTERM and SIGINT.
#[actix_web::main]
async fn serve(config: Config) -> io::Result<()> {
    let listener = process::listen(config.address)?;
    let app = Data::new(App::new("actix", config));
    let counting = app.clone();
    HttpServer::new(move || {
        let counting = app.clone();
        actix_web::App::new()
            .configure(|services| routes::configure(services, app.clone()))
            .wrap_fn(move |request, service| {
                routes::count_request(&counting, &request);
                service.call(request)
            })
    })
    .on_connect(move |_, _| counting.counters.count_connection())
    // Idle connections are kept without a time limit of the server, because a timer would have to
    // be set again for every request.
    .keep_alive(KeepAlive::Os)
    .client_request_timeout(HEADER_TIMEOUT)
    .shutdown_timeout(SHUTDOWN_TIMEOUT_S)
    // By default, a worker stops accepting at 25,600 connections.
    .max_connections(usize::MAX)
    .listen(listener)?
    .run()
    .await
}
