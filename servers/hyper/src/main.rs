//! The lab's HTTP contract on hyper alone, without a framework.

mod routes;

use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use common::app::App;
use common::config::Config;
use common::process::{self, GRACE, Signals};
use common::watched::WatchedStream;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};

/// Pause after a connection could not be accepted, mostly because there were no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    process::run(serve)
}

// The default runtime starts `available_parallelism()` workers, which is the number of CPUs that
// the CPU affinity and the cgroup's quota leave to this process.
#[tokio::main]
async fn serve(config: Config) -> io::Result<()> {
    let mut signals = Signals::catch()?;
    let listener = TcpListener::from_std(process::listen(config.address)?)?;
    let app = Arc::new(App::new("hyper", config));
    // Without a timer, hyper never closes a connection by itself. With a timer, hyper's timeout for
    // a head would start at the end of the previous answer, and so close connections that are idle
    // during a load.
    let http = http1::Builder::new();

    let graceful = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            stream = accept(&listener) => stream,
            () = signals.received() => break,
        };
        app.counters.count_connection();
        let app = Arc::clone(&app);
        let stream = WatchedStream::new(stream);
        let two_lengths = stream.two_lengths();
        let service = service_fn(move |request| {
            routes::answer(Arc::clone(&app), two_lengths.seen(), request)
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        // Errors of a connection (a reset, bad HTTP, a timeout) are ignored, because they are the
        // client's affair.
        tokio::spawn(graceful.watch(connection));
    }
    drop(listener);
    // Requests in flight that take longer are cut off.
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    Ok(())
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // The client left before its connection was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}
