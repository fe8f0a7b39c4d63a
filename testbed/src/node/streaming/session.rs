//! One command with its streams.
//!
//! The client opens a stream for each of `error`, `stdin`, `stdout`, `stderr` (and `resize` for a terminal) that it uses. The
//! outcome is told on `error` as a Kubernetes Status.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use podresources::cri::v1::ExecRequest;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::spdy::{self, Decoder, Frame};
use crate::node::runtime::Runtime;
use crate::node::runtime::exec::Running;

/// How long the client may take to open its streams.
const OPENING: Duration = Duration::from_secs(30);
/// How long it may take to hang up after the end.
const CLOSING: Duration = Duration::from_secs(10);
/// Frames that may wait on their way.
const QUEUE: usize = 16;

/// The client's streams by their kind.
#[derive(Debug, Default)]
struct Streams {
    by_kind: BTreeMap<String, u32>,
    last: u32,
}

impl Streams {
    fn get(&self, kind: &str) -> Option<u32> {
        self.by_kind.get(kind).copied()
    }

    fn has(&self, wanted: &[&str]) -> bool {
        wanted.iter().all(|kind| self.by_kind.contains_key(*kind))
    }
}

/// The streams that a client opens for a command.
fn wanted(order: &ExecRequest) -> Vec<&'static str> {
    [
        ("error", true),
        ("stdin", order.stdin),
        ("stdout", order.stdout),
        ("stderr", order.stderr && !order.tty),
        ("resize", order.tty),
    ]
    .into_iter()
    .filter_map(|(kind, wanted)| wanted.then_some(kind))
    .collect()
}

/// Runs the command for the client at the other end of `connection`; `first` came with the request's head.
pub(super) async fn run(
    connection: TcpStream,
    first: Vec<u8>,
    order: ExecRequest,
    runtime: &Runtime,
) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let (reader, writer) = connection.into_split();
    let (frames_in, mut frames) = mpsc::channel(QUEUE);
    let (out, frames_out) = mpsc::channel(QUEUE);
    let reading = tokio::spawn(read(reader, first, frames_in));
    let writing = tokio::spawn(write(writer, frames_out));
    let outcome = serve(&mut frames, &out, &order, runtime).await;
    drop(out);
    // Everything is written before the connection is given up.
    let written = writing.await;
    let hang_up = async { while frames.recv().await.is_some() {} };
    // A client that does not hang up is hung up on.
    let _ = tokio::time::timeout(CLOSING, hang_up).await;
    reading.abort();
    outcome.and_then(|()| written.unwrap_or(Ok(())))
}

async fn serve(
    frames: &mut mpsc::Receiver<Frame>,
    out: &mpsc::Sender<Vec<u8>>,
    order: &ExecRequest,
    runtime: &Runtime,
) -> io::Result<()> {
    let wanted = wanted(order);
    let opened = tokio::time::timeout(OPENING, open(frames, out, &wanted));
    let (streams, early_input) = opened.await??;
    let started = runtime
        .start_exec(&order.container_id, order.cmd.clone(), order.stdin)
        .await;
    let status = match started {
        Ok(running) => {
            let Some(exit_code) = attend(running, &streams, early_input, frames, out).await? else {
                return Ok(());
            };
            status(exit_code)
        }
        Err(error) => json!({
            "metadata": {}, "status": "Failure", "reason": "InternalError",
            "message": format!("error executing command in container: {}", error.chain()), "code": 500,
        }),
    };
    for kind in ["stdout", "stderr"] {
        if let Some(stream) = streams.get(kind) {
            send(out, spdy::data(stream, &[], true)).await?;
        }
    }
    if let Some(stream) = streams.get("error") {
        send(out, spdy::data(stream, status.to_string().as_bytes(), true)).await?;
    }
    send(out, spdy::go_away(streams.last)).await
}

/// Accepts streams until all are there. Input may come before that.
async fn open(
    frames: &mut mpsc::Receiver<Frame>,
    out: &mpsc::Sender<Vec<u8>>,
    wanted: &[&str],
) -> io::Result<(Streams, Vec<(u32, Vec<u8>, bool)>)> {
    let mut streams = Streams::default();
    let mut input = Vec::new();
    while !streams.has(wanted) {
        match frames.recv().await.ok_or(io::ErrorKind::UnexpectedEof)? {
            Frame::Open { stream, headers } => {
                send(out, spdy::reply(stream, streams.by_kind.is_empty())).await?;
                let kind = headers.get("streamtype").cloned().unwrap_or_default();
                streams.by_kind.insert(kind, stream);
                streams.last = stream;
            }
            Frame::Data {
                stream,
                bytes,
                last,
            } => input.push((stream, bytes, last)),
            Frame::Ping { id } => send(out, spdy::ping(id)).await?,
            Frame::Reset { .. } | Frame::GoAway | Frame::Other => {}
        }
    }
    Ok((streams, input))
}

/// Carries input and output until the command ends; `None` when the client went away, which ends the command.
async fn attend(
    mut running: Running,
    streams: &Streams,
    early_input: Vec<(u32, Vec<u8>, bool)>,
    frames: &mut mpsc::Receiver<Frame>,
    out: &mpsc::Sender<Vec<u8>>,
) -> io::Result<Option<i32>> {
    let mut stdin = running.stdin.take();
    let (input, input_queue) = mpsc::unbounded_channel::<(Vec<u8>, bool)>();
    let wants_input = stdin.is_some();
    let feeding = tokio::spawn(async move {
        let mut queue = input_queue;
        while let Some((bytes, last)) = queue.recv().await {
            let Some(pipe) = &mut stdin else { return };
            // A command that closed its input does not want any more.
            if pipe.write_all(&bytes).await.is_err() || last {
                return;
            }
        }
    });
    let feed = |stream: u32, bytes: Vec<u8>, last: bool| {
        if wants_input && streams.get("stdin") == Some(stream) {
            // The feeder is done when the command closed its input.
            let _ = input.send((bytes, last));
        }
    };
    for (stream, bytes, last) in early_input {
        feed(stream, bytes, last);
    }
    // With a terminal there is one stream for both.
    let errors_to = streams.get("stderr").or_else(|| streams.get("stdout"));
    let pumps = async {
        tokio::join!(
            pump(running.stdout.take(), streams.get("stdout"), out),
            pump(running.stderr.take(), errors_to, out)
        );
        running.wait().await
    };
    tokio::pin!(pumps);
    let exit_code = loop {
        tokio::select! {
            exit_code = &mut pumps => break Some(exit_code),
            frame = frames.recv() => match frame {
                None => break None,
                Some(Frame::Data { stream, bytes, last }) => feed(stream, bytes, last),
                Some(Frame::Ping { id }) => send(out, spdy::ping(id)).await?,
                // A stream more than was asked for.
                Some(Frame::Open { stream, .. }) => send(out, spdy::reply(stream, false)).await?,
                Some(Frame::Reset { .. } | Frame::GoAway | Frame::Other) => {}
            },
        }
    };
    feeding.abort();
    Ok(exit_code)
}

/// Carries output until it ends; without a stream it is read and dropped.
async fn pump(
    source: Option<impl AsyncRead + Unpin>,
    stream: Option<u32>,
    out: &mpsc::Sender<Vec<u8>>,
) {
    let Some(mut source) = source else { return };
    let mut buffer = vec![0; 16 * 1024];
    // A pipe that cannot be read has ended as well.
    while let Ok(length @ 1..) = source.read(&mut buffer).await {
        if let Some(stream) = stream
            && send(out, spdy::data(stream, &buffer[..length], false))
                .await
                .is_err()
        {
            return;
        }
    }
}

/// What `error` says about an exit code.
fn status(exit_code: i32) -> serde_json::Value {
    if exit_code == 0 {
        return json!({ "metadata": {}, "status": "Success" });
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {exit_code}"),
        "details": { "causes": [{ "reason": "ExitCode", "message": exit_code.to_string() }] },
    })
}

async fn send(out: &mpsc::Sender<Vec<u8>>, frame: Vec<u8>) -> io::Result<()> {
    out.send(frame)
        .await
        .map_err(|_| io::ErrorKind::BrokenPipe.into())
}

async fn write(mut writer: OwnedWriteHalf, mut frames: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        writer.write_all(&frame).await?;
    }
    Ok(())
}

/// Reads frames until the connection ends or makes no sense any more.
async fn read(mut reader: OwnedReadHalf, first: Vec<u8>, frames: mpsc::Sender<Frame>) {
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
                    tracing::info!(%error, "Client of a command is not understood");
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::output_only(false, true, true, false, &["error", "stdout", "stderr"])]
    #[case::interactive(true, true, true, false, &["error", "stdin", "stdout", "stderr"])]
    #[case::terminal(true, true, true, true, &["error", "stdin", "stdout", "resize"])]
    fn streams_of_a_command(
        #[case] stdin: bool,
        #[case] stdout: bool,
        #[case] stderr: bool,
        #[case] tty: bool,
        #[case] expected: &[&str],
    ) {
        let order = ExecRequest {
            stdin,
            stdout,
            stderr,
            tty,
            ..Default::default()
        };
        assert_eq!(wanted(&order), expected);
    }

    #[test]
    fn exit_code_is_the_cause_of_a_failure() {
        assert_eq!(status(0)["status"], "Success");
        let failure = status(3);
        assert_eq!(failure["reason"], "NonZeroExitCode");
        assert_eq!(failure["details"]["causes"][0]["message"], "3");
    }
}
