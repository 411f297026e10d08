//! A server of the lab's HTTP contract whose behaviour is configured and therefore known. Tests
//! compare the lab's measurements of this server with the configured behaviour.

mod behaviour;
mod burn;
mod conduct;
mod pacer;
mod routes;
mod schedule;
mod timer;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use common::app::App;
use common::config::Config;
use common::process::{self, GRACE, Signals};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::behaviour::Behaviour;
use crate::conduct::Conduct;
use crate::routes::State;

/// Pause after a connection could not be accepted, mostly because there were no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    match Behaviour::from_env() {
        Ok(behaviour) => process::run(|config| run(config, behaviour)),
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::from(2)
        }
    }
}

fn run(config: Config, behaviour: Behaviour) -> io::Result<()> {
    let runtime = runtime(&behaviour)?;
    let served = runtime.block_on(async {
        let listener = TcpListener::from_std(process::listen(config.address)?)?;
        let signals = Signals::catch()?;
        let conduct = Conduct::start(behaviour)?;
        let state = Arc::new(State { app: App::new("reference", config), conduct });
        // Accepting runs on a worker, because the connections are served there. If this thread
        // accepted them, it would have to be woken for each connection.
        tokio::spawn(serve(listener, signals, state)).await.map_err(io::Error::other)
    });
    // An ordinary shutdown would wait for requests that hang or burn.
    runtime.shutdown_background();
    served
}

/// Returns a runtime with as many workers as CPUs are left to this process.
fn runtime(behaviour: &Behaviour) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if behaviour.cpu_per_request.is_some() {
        // A worker checks sockets and signals after each task that it polls. By default, it checks
        // them after 61 tasks, each of which may burn CPU time here.
        builder.event_interval(1);
    }
    builder.enable_all().build()
}

/// Serves until a signal, and then lets the requests in flight end.
async fn serve(listener: TcpListener, mut signals: Signals, state: Arc<State>) {
    let connections = GracefulShutdown::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => start_connection(stream, &state, &connections),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            () = signals.received() => break,
        }
    }
    drop(listener);
    // Requests that take longer are cut off.
    let _ = timeout(GRACE, connections.shutdown()).await;
}

fn start_connection(stream: TcpStream, state: &Arc<State>, connections: &GracefulShutdown) {
    state.app.counters.count_connection();
    let state = Arc::clone(state);
    let service = service_fn(move |request| routes::answer(Arc::clone(&state), request));
    // No timeouts: a calibration must not lose an idle connection.
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // Errors of a connection are ignored: either the client caused them, or the configured
    // behaviour did.
    tokio::spawn(connections.watch(connection));
}
