//! The lab's HTTP contract on axum, written the way axum's users write it.

mod guard;
mod routes;

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use axum::serve::{IncomingStream, ListenerExt};
use common::app::App;
use common::config::Config;
use common::process::{self, GRACE, Signals};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tower::service_fn;

use crate::guard::{WatchedListener, guarded};

fn main() -> ExitCode {
    process::run(serve)
}

// The default runtime starts `available_parallelism()` workers, which is the number of CPUs that
// the CPU affinity and the cgroup's quota leave to this process.
#[tokio::main]
async fn serve(config: Config) -> io::Result<()> {
    let signals = Signals::catch()?;
    let listener = TcpListener::from_std(process::listen(config.address)?)?;
    let app = Arc::new(App::new("axum", config));

    let counting = Arc::clone(&app);
    let listener = listener.tap_io(move |_| counting.counters.count_connection());

    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop).notified_owned();
    let router = routes::router(app);
    let make_service = service_fn(move |stream: IncomingStream<WatchedListener<_>>| {
        ready(Ok::<_, Infallible>(guarded(router.clone(), stream.io().two_lengths())))
    });
    let server =
        axum::serve(WatchedListener(listener), make_service).with_graceful_shutdown(stopped);
    tokio::select! {
        result = server.into_future() => result,
        () = grace_after(signals, &stop) => Ok(()),
    }
}

/// Waits for a signal, tells the server to stop, and returns once the grace period is over.
async fn grace_after(mut signals: Signals, stop: &Notify) {
    signals.received().await;
    stop.notify_one();
    tokio::time::sleep(GRACE).await;
}
