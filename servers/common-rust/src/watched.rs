//! Streams that scan the bytes read from them for requests with both Content-Length and
//! Transfer-Encoding.
//!
//! By RFC 9112, section 6.3, such a request may be an attempt at request smuggling. A service cannot
//! detect it, because hyper reads the request by its Transfer-Encoding, and deletes Content-Length
//! before it calls the service.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::head_scan::HeadScan;

/// Whether a head with both fields was read from a connection. It is never reset, because the first
/// request that is refused for this reason ends the connection.
#[derive(Clone, Default)]
pub struct TwoLengths(Arc<AtomicBool>);

impl TwoLengths {
    /// Returns whether a chunked request on this connection must be refused.
    // `Relaxed` is enough, because a connection is read and asked by one task.
    pub fn seen(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream that notes whether it has read a head with both fields.
pub struct WatchedStream<S> {
    stream: S,
    scan: HeadScan,
    two_lengths: TwoLengths,
}

impl<S> WatchedStream<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, scan: HeadScan::default(), two_lengths: TwoLengths::default() }
    }

    pub fn two_lengths(&self) -> TwoLengths {
        self.two_lengths.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        buffer: &mut ReadBuf,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.scan.find(&buffer.filled()[before..]) {
            self.two_lengths.0.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        slices: &[IoSlice],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
