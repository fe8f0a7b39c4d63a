//! Attaching to a running process: its output goes to the log and to all listeners.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use cri_runtime::logs::Stream;
use cri_runtime::streaming::session::Attached;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::process::ChildStdin;
use tokio::sync::{Mutex, broadcast};

use super::Input;

/// Number of pieces of output that a listener may lag behind. A slower one loses some, as with a real runtime.
const MAX_LAG: usize = 1024;
/// Size of the buffers to and from a listener, in bytes.
const BUFFER: usize = 64 * 1024;

/// A piece of output.
type Piece = (Stream, Arc<[u8]>);

/// Copies everything that is read from an output to the listeners.
pub(super) struct Tee<R> {
    source: R,
    stream: Stream,
    listeners: broadcast::Sender<Piece>,
}

impl<R> Tee<R> {
    pub(super) fn new(source: R, stream: Stream, listeners: broadcast::Sender<Piece>) -> Self {
        Self {
            source,
            stream,
            listeners,
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Tee<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.source).poll_read(context, buffer))?;
        let fresh = &buffer.filled()[before..];
        if !fresh.is_empty() && self.listeners.receiver_count() > 0 {
            // The last listener may have left at this moment.
            let _ = self.listeners.send((self.stream, fresh.into()));
        }
        Poll::Ready(Ok(()))
    }
}

/// The streams of a process; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    once: bool,
    /// Closed when the outputs are closed.
    output: broadcast::WeakSender<Piece>,
}

impl Streams {
    /// Returns the streams, and the sender that each [`Tee`] needs.
    pub(super) fn new(stdin: Option<ChildStdin>, input: Input) -> (Self, broadcast::Sender<Piece>) {
        let (listeners, _) = broadcast::channel(MAX_LAG);
        let streams = Self {
            stdin: Arc::new(Mutex::new(stdin)),
            once: input == Input::Once,
            output: listeners.downgrade(),
        };
        (streams, listeners)
    }

    /// Attaches to the streams until `end`.
    pub(super) fn attach(&self, end: BoxFuture<'static, i32>) -> Attached {
        let (stdin, fed) = tokio::io::duplex(BUFFER);
        tokio::spawn(feed(fed, Arc::clone(&self.stdin), self.once));
        let (out, stdout) = tokio::io::duplex(BUFFER);
        let (err, stderr) = tokio::io::duplex(BUFFER);
        if let Some(output) = self.output.upgrade() {
            tokio::spawn(listen(output.subscribe(), out, err));
        }
        Attached {
            stdin: Some(Box::new(stdin)),
            stdout: Some(Box::new(stdout)),
            stderr: Some(Box::new(stderr)),
            end,
        }
    }
}

/// Copies input to the process.
async fn feed(mut from: DuplexStream, to: Arc<Mutex<Option<ChildStdin>>>, once: bool) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let mut pipe = to.lock().await;
        let Some(open) = pipe.as_mut() else { return };
        if open.write_all(&buffer[..length]).await.is_err() {
            *pipe = None;
            return;
        }
    }
    if once {
        *to.lock().await = None;
    }
}

/// Copies output to a listener.
async fn listen(
    mut output: broadcast::Receiver<Piece>,
    mut out: DuplexStream,
    mut err: DuplexStream,
) {
    loop {
        let (stream, bytes) = match output.recv().await {
            Ok(piece) => piece,
            Err(broadcast::error::RecvError::Lagged(_)) => continue,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        let to = match stream {
            Stream::Stdout => &mut out,
            Stream::Stderr => &mut err,
        };
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
