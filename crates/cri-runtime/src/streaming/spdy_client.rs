//! A SPDY client: it opens a stream for each channel that it uses before any data flows.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::session::{self, Attached, Channel, Client, Input, Output, RequestedStreams};
use super::spdy::{self, Decoder, Frame};

/// Time limit for the client to open its streams.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the client to close the connection after the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Capacity of the queues in both directions, in frames.
const QUEUE: usize = 16;

/// The client's streams by channel.
#[derive(Debug, Default)]
struct Streams {
    by_channel: BTreeMap<Channel, u32>,
    any: bool,
    last: u32,
}

impl Streams {
    fn has(&self, wanted: &[Channel]) -> bool {
        wanted
            .iter()
            .all(|channel| self.by_channel.contains_key(channel))
    }

    fn input(&self, frame: Frame) -> Option<Input> {
        match frame {
            Frame::Data {
                stream,
                bytes,
                last,
            } if self.by_channel.get(&Channel::Stdin) == Some(&stream) => {
                Some(Input { bytes, last })
            }
            _ => None,
        }
    }

    /// Returns a frame for an outgoing message; none for a channel that the client does not have.
    fn frame(&self, output: &Output) -> Option<Vec<u8>> {
        let (channel, bytes, last) = match output {
            Output::Bytes(channel, bytes) => (channel, bytes.as_slice(), false),
            Output::End(channel) => (channel, &[][..], true),
        };
        let stream = self.by_channel.get(channel)?;
        Some(spdy::data(*stream, bytes, last))
    }
}

fn channel(name: &str) -> Option<Channel> {
    Some(match name {
        "stdin" => Channel::Stdin,
        "stdout" => Channel::Stdout,
        "stderr" => Channel::Stderr,
        "error" => Channel::Error,
        "resize" => Channel::Resize,
        _ => return None,
    })
}

/// Serves the client at the other end of an upgraded connection; `first` are the bytes that came with the request's head.
pub async fn run<C>(
    connection: C,
    first: Vec<u8>,
    requested: RequestedStreams,
    start: impl Future<Output = Result<Attached, String>>,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Send + 'static,
{
    let (reader, writer) = tokio::io::split(connection);
    let (frames_in, mut frames) = mpsc::channel(QUEUE);
    let (out, frames_out) = mpsc::channel(QUEUE);
    let reading = tokio::spawn(read(reader, first, frames_in));
    let writing = tokio::spawn(write(writer, frames_out));
    let outcome = serve_session(&mut frames, &out, requested, start).await;
    drop(out);
    // Everything is written before the connection is closed.
    let written = writing.await;
    let hang_up = async { while frames.recv().await.is_some() {} };
    // The connection is closed even if the client does not close it in time.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, hang_up).await;
    reading.abort();
    outcome.and_then(|()| written.unwrap_or(Ok(())))
}

async fn serve_session(
    frames: &mut mpsc::Receiver<Frame>,
    out: &mpsc::Sender<Vec<u8>>,
    requested: RequestedStreams,
    start: impl Future<Output = Result<Attached, String>>,
) -> io::Result<()> {
    let wanted = requested.channels();
    let opened = tokio::time::timeout(OPEN_TIMEOUT, open(frames, out, &wanted));
    let (streams, early) = opened.await??;
    let (input_sender, input_receiver) = mpsc::channel(QUEUE);
    let (output_sender, mut output_receiver) = mpsc::channel(QUEUE);
    let receiving = async {
        // Moved into this future, so that the session notices when it ends.
        let input_sender = input_sender;
        for input in early.into_iter().filter_map(|frame| streams.input(frame)) {
            if input_sender.send(input).await.is_err() {
                return;
            }
        }
        while let Some(frame) = frames.recv().await {
            let answer = match frame {
                Frame::Ping { id } => Some(spdy::ping(id)),
                // A stream that the request did not ask for.
                Frame::Open { stream, .. } => Some(spdy::reply(stream, false)),
                frame => {
                    if let Some(input) = streams.input(frame)
                        && input_sender.send(input).await.is_err()
                    {
                        return;
                    }
                    None
                }
            };
            if let Some(answer) = answer
                && out.send(answer).await.is_err()
            {
                return;
            }
        }
    };
    let serving = async {
        let sending = async {
            while let Some(output) = output_receiver.recv().await {
                if let Some(frame) = streams.frame(&output)
                    && out.send(frame).await.is_err()
                {
                    return;
                }
            }
        };
        tokio::join!(
            session::serve(
                Client {
                    input: input_receiver,
                    output: output_sender
                },
                requested,
                start
            ),
            sending
        );
    };
    tokio::pin!(receiving, serving);
    tokio::select! {
        () = &mut serving => {}
        () = &mut receiving => serving.await,
    }
    send(out, spdy::go_away(streams.last)).await
}

/// Accepts streams until all wanted ones are open. Input may arrive before that.
async fn open(
    frames: &mut mpsc::Receiver<Frame>,
    out: &mpsc::Sender<Vec<u8>>,
    wanted: &[Channel],
) -> io::Result<(Streams, Vec<Frame>)> {
    let mut streams = Streams::default();
    let mut early = Vec::new();
    while !streams.has(wanted) {
        match frames.recv().await.ok_or(io::ErrorKind::UnexpectedEof)? {
            Frame::Open { stream, headers } => {
                send(out, spdy::reply(stream, !streams.any)).await?;
                streams.any = true;
                streams.last = stream;
                let kind = headers.get("streamtype").map_or("", String::as_str);
                if let Some(channel) = channel(kind) {
                    streams.by_channel.insert(channel, stream);
                }
            }
            frame @ Frame::Data { .. } => early.push(frame),
            Frame::Ping { id } => send(out, spdy::ping(id)).await?,
            Frame::Reset { .. } | Frame::GoAway | Frame::Other => {}
        }
    }
    Ok((streams, early))
}

async fn send(out: &mpsc::Sender<Vec<u8>>, frame: Vec<u8>) -> io::Result<()> {
    out.send(frame)
        .await
        .map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// Writes frames until the queue is closed.
pub(crate) async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        writer.write_all(&frame).await?;
        if frames.is_empty() {
            writer.flush().await?;
        }
    }
    writer.flush().await
}

/// Reads frames until the connection ends or sends something invalid.
pub(crate) async fn read(
    mut reader: impl AsyncRead + Unpin,
    first: Vec<u8>,
    frames: mpsc::Sender<Frame>,
) {
    let mut decoder = Decoder::default();
    decoder.feed(&first);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if frames.send(frame).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::info!(%error, "Invalid frame from a client");
                    return;
                }
            }
        }
        match reader.read(&mut buffer).await {
            Ok(length @ 1..) => decoder.feed(&buffer[..length]),
            _ => return,
        }
    }
}
