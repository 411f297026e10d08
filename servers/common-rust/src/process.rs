//! The process around a server: its exit codes, its listening socket, the signals that end it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::Config;

/// The longest time for requests in flight after SIGTERM; by the contract everything must end
/// within 2 s.
pub const GRACE: Duration = Duration::from_millis(1500);
/// The longest time in which a client may send the head of a request.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of connections that may wait to be accepted; the kernel lowers it to its somaxconn.
const BACKLOG: i32 = 65_535;

/// Reads the configuration, serves, and says in one sentence on stderr what went wrong.
pub fn run(serve: impl FnOnce(Config) -> io::Result<()>) -> ExitCode {
    let config = match Config::from_env() {
        Ok(config) => config,
        Err(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::from(2);
        }
    };
    // Go's runtime raises the soft limit of open files by itself, Rust's does not. If the kernel
    // refuses, the limit stays as it was.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let address = config.address;
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("The server cannot serve on {address}: {error}.");
            ExitCode::FAILURE
        }
    }
}

/// Returns a listening socket that does not block. Its connections send small answers at once
/// (TCP_NODELAY).
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    // Linux copies the option to the accepted connections, which saves a call for each of them.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// SIGTERM and SIGINT, which are caught from `Signals::catch` on.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches the signals. Needs a tokio runtime.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the first signal.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn accepted_connections_inherit_nodelay() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(listener.accept().unwrap().0.nodelay().unwrap());
    }

    #[test]
    fn a_port_is_listened_on_once() {
        let first = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let second = listen(first.local_addr().unwrap());
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
