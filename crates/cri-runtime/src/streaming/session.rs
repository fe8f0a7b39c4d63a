//! One command with its streams, independent of the client's protocol.
//!
//! A client has a stream for each of `stdin`, `stdout` and `stderr` that it asked for (and `resize` for a terminal). The stream `error`
//! carries the outcome as a Kubernetes Status.

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// A stream between a client and a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// Standard input of the command.
    Stdin,
    /// Standard output of the command.
    Stdout,
    /// Standard error of the command.
    Stderr,
    /// Outcome of the command.
    Error,
    /// Sizes of the client's terminal.
    Resize,
}

/// The streams that a client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a parameter of the request"
)]
pub struct RequestedStreams {
    /// It sends input.
    pub stdin: bool,
    /// It reads standard output.
    pub stdout: bool,
    /// It reads standard error; with a terminal that is part of standard output.
    pub stderr: bool,
    /// It has a terminal.
    pub tty: bool,
}

impl RequestedStreams {
    /// Returns the streams of a client.
    pub fn channels(self) -> Vec<Channel> {
        [
            (Channel::Error, true),
            (Channel::Stdin, self.stdin),
            (Channel::Stdout, self.stdout),
            (Channel::Stderr, self.stderr && !self.tty),
            (Channel::Resize, self.tty),
        ]
        .into_iter()
        .filter_map(|(channel, wanted)| wanted.then_some(channel))
        .collect()
    }
}

/// Input from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether these bytes are the last.
    pub last: bool,
}

/// A message for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Bytes of a stream.
    Bytes(Channel, Vec<u8>),
    /// The end of a stream.
    End(Channel),
}

/// A client with open streams.
#[derive(Debug)]
pub struct Client {
    /// Its input; closed when the client has disconnected.
    pub input: mpsc::Receiver<Input>,
    /// Messages to the client.
    pub output: mpsc::Sender<Output>,
}

/// A process with attached streams. Dropping this detaches from the process, which ends if it was started for the client.
pub struct Attached {
    /// Its standard input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Its standard output.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its standard error.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its exit code, 128 + signal if a signal ended it.
    pub end: BoxFuture<'static, i32>,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").finish_non_exhaustive()
    }
}

/// Serves a client until the process ends or the client disconnects. If the process cannot start, the client gets the reason.
pub async fn serve(
    client: Client,
    requested: RequestedStreams,
    start: impl Future<Output = Result<Attached, String>>,
) {
    let Client { input, output } = client;
    let status = match start.await {
        Ok(attached) => match forward_streams(attached, requested, input, &output).await {
            Some(exit_code) => outcome(exit_code),
            None => return,
        },
        Err(problem) => internal_error(&problem),
    };
    let sent = async {
        for channel in [Channel::Stdout, Channel::Stderr] {
            if requested.channels().contains(&channel) {
                output.send(Output::End(channel)).await?;
            }
        }
        let status = status.to_string().into_bytes();
        output.send(Output::Bytes(Channel::Error, status)).await?;
        output.send(Output::End(Channel::Error)).await
    };
    if sent.await.is_err() {
        tracing::debug!("Client disconnected before it got the outcome of its command");
    }
}

/// Carries input and output until the process ends and returns its exit code; `None` if the client disconnected.
async fn forward_streams(
    mut attached: Attached,
    requested: RequestedStreams,
    mut input: mpsc::Receiver<Input>,
    output: &mpsc::Sender<Output>,
) -> Option<i32> {
    let mut stdin = attached.stdin.take();
    let (feeder, mut queue) = mpsc::unbounded_channel::<Input>();
    let feeding = tokio::spawn(async move {
        while let Some(Input { bytes, last }) = queue.recv().await {
            let Some(pipe) = &mut stdin else { return };
            // A process that closed its input accepts no more.
            let written = pipe.write_all(&bytes).await.is_ok() && pipe.flush().await.is_ok();
            if !written || last {
                return;
            }
        }
    });
    let channels = requested.channels();
    let open = |channel: Channel| Some(channel).filter(|channel| channels.contains(channel));
    // A terminal has one stream for both.
    let errors = if requested.tty {
        Channel::Stdout
    } else {
        Channel::Stderr
    };
    let pumps = async {
        tokio::join!(
            pump(attached.stdout.take(), open(Channel::Stdout), output),
            pump(attached.stderr.take(), open(errors), output)
        );
        attached.end.await
    };
    tokio::pin!(pumps);
    let exit_code = loop {
        tokio::select! {
            exit_code = &mut pumps => break Some(exit_code),
            received = input.recv() => match received {
                None => break None,
                Some(more) => {
                    // The feeder has ended if the process closed its input.
                    let _ = feeder.send(more);
                }
            },
        }
    };
    feeding.abort();
    exit_code
}

/// Forwards output until it ends; without a channel it is read and dropped.
async fn pump(
    source: Option<impl AsyncRead + Unpin>,
    channel: Option<Channel>,
    output: &mpsc::Sender<Output>,
) {
    let Some(mut source) = source else { return };
    let mut buffer = vec![0; 16 * 1024];
    // A pipe that cannot be read has ended, too.
    while let Ok(length @ 1..) = source.read(&mut buffer).await {
        if let Some(channel) = channel
            && output
                .send(Output::Bytes(channel, buffer[..length].to_vec()))
                .await
                .is_err()
        {
            return;
        }
    }
}

/// Returns the Status for an exit code.
fn outcome(exit_code: i32) -> Value {
    if exit_code == 0 {
        return json!({ "metadata": {}, "status": "Success" });
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {exit_code}"),
        "details": { "causes": [{ "reason": "ExitCode", "message": exit_code.to_string() }] },
    })
}

/// Returns the Status for a process that could not be started or attached to.
pub fn internal_error(problem: &str) -> Value {
    json!({
        "metadata": {}, "status": "Failure", "reason": "InternalError",
        "message": format!("Internal error occurred: {problem}"),
        "details": { "causes": [{ "message": problem }] }, "code": 500,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::output_only(false, false, &[Channel::Error, Channel::Stdout, Channel::Stderr])]
    #[case::interactive(true, false, &[Channel::Error, Channel::Stdin, Channel::Stdout, Channel::Stderr])]
    #[case::terminal(true, true, &[Channel::Error, Channel::Stdin, Channel::Stdout, Channel::Resize])]
    fn streams_of_a_command(#[case] stdin: bool, #[case] tty: bool, #[case] expected: &[Channel]) {
        let requested = RequestedStreams {
            stdin,
            stdout: true,
            stderr: true,
            tty,
        };
        assert_eq!(requested.channels(), expected);
    }

    #[test]
    fn exit_code_is_the_cause_of_a_failure() {
        assert_eq!(outcome(0)["status"], "Success");
        let failure = outcome(3);
        assert_eq!(failure["reason"], "NonZeroExitCode");
        assert_eq!(failure["details"]["causes"][0]["message"], "3");
    }

    fn mk_client() -> (Client, mpsc::Sender<Input>, mpsc::Receiver<Output>) {
        let (input_sender, input) = mpsc::channel(8);
        let (output, output_receiver) = mpsc::channel(8);
        (Client { input, output }, input_sender, output_receiver)
    }

    const ALL: RequestedStreams = RequestedStreams {
        stdin: true,
        stdout: true,
        stderr: false,
        tty: false,
    };

    #[tokio::test]
    async fn input_reaches_the_process_and_its_output_the_client() {
        let (client, input_sender, mut output) = mk_client();
        let (stdin, process) = tokio::io::duplex(64);
        let (stdout, out) = tokio::io::duplex(64);
        let echo = async move {
            let (mut process, mut out) = (process, out);
            tokio::io::copy(&mut process, &mut out).await.unwrap();
            7
        };
        let attached = Attached {
            stdin: Some(Box::new(stdin)),
            stdout: Some(Box::new(stdout)),
            stderr: None,
            end: Box::pin(async { 7 }),
        };
        let process = tokio::spawn(echo);
        let input = Input {
            bytes: b"hello".to_vec(),
            last: true,
        };
        input_sender.send(input).await.unwrap();
        serve(client, ALL, async { Ok(attached) }).await;
        process.await.unwrap();
        let first = output.recv().await.unwrap();
        assert_eq!(first, Output::Bytes(Channel::Stdout, b"hello".to_vec()));
        assert_eq!(output.recv().await.unwrap(), Output::End(Channel::Stdout));
        let Output::Bytes(Channel::Error, status) = output.recv().await.unwrap() else {
            panic!("no outcome");
        };
        let status: Value = serde_json::from_slice(&status).unwrap();
        assert_eq!(status["details"]["causes"][0]["message"], "7");
    }

    #[tokio::test]
    async fn client_that_leaves_ends_the_conversation() {
        let (client, input_sender, mut output) = mk_client();
        let attached = Attached {
            stdin: None,
            stdout: None,
            stderr: None,
            end: Box::pin(std::future::pending()),
        };
        drop(input_sender);
        serve(client, ALL, async { Ok(attached) }).await;
        assert_eq!(output.recv().await, None);
    }
}
