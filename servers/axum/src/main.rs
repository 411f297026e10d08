//! The lab's HTTP contract on axum, written the way axum's users write it.

mod devices;
mod experiment;
mod object;
mod routes;
mod stats;

use std::env;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::routes::App;

/// Connections that the kernel may queue before they are accepted; it lowers this to its somaxconn.
const BACKLOG: u32 = 65_535;
/// How long requests in flight may take after SIGTERM; the contract ends everything after 2 s.
const GRACE: Duration = Duration::from_millis(1500);

// The default runtime starts `available_parallelism()` workers, which is what the CPU affinity and the
// cgroup's quota leave to this process.
#[tokio::main]
async fn main() -> ExitCode {
    let address = match address() {
        Ok(address) => address,
        Err(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::from(2);
        }
    };
    match run(address).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("The server cannot serve on {address}: {error}.");
            ExitCode::FAILURE
        }
    }
}

fn address() -> Result<SocketAddr, String> {
    let given = env::var("ADDR").unwrap_or_default();
    given
        .parse()
        .map_err(|_| format!("ADDR must be IP:PORT, such as 127.0.0.1:8080, but it is {given:?}."))
}

/// Serves until SIGTERM or SIGINT.
async fn run(address: SocketAddr) -> io::Result<()> {
    // Go raises the soft limit by itself, Rust does not. A refusal leaves the limit as it was.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let app = Arc::new(App::new(env::var("LAB_NONCE").unwrap_or_default()));

    let counters = app.counters.clone();
    let listener = listen(address)?.tap_io(move |stream| {
        counters.count_connection();
        // Fails only on a connection that its client has already reset; serving it finds out.
        let _ = stream.set_nodelay(true);
    });

    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop).notified_owned();
    let server = axum::serve(listener, routes::router(app)).with_graceful_shutdown(stopped);
    tokio::select! {
        result = server.into_future() => result,
        () = grace_after(signals, &stop) => Ok(()),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Waits for a signal, tells the server to stop, and returns once the grace period is over.
async fn grace_after((mut terminate, mut interrupt): (Signal, Signal), stop: &Notify) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.notify_one();
    tokio::time::sleep(GRACE).await;
}
