//! Passes requests to helper processes, which report whether they could run them.
//!
//! The helper's standard input is a socket. It carries the request as JSON until the sender shuts down its side. The answer is everything
//! that the helper writes until its side is closed, which `exec` does by itself: `READY` right before the attempt, then the reason, but
//! only if something failed.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Written when everything is prepared and the program is about to be executed.
const READY: u8 = b'R';

/// Why a helper did not run its request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request could not be encoded.
    #[error("cannot encode the request")]
    Encode(#[source] serde_json::Error),
    /// The socket failed.
    #[error("cannot communicate with the helper process")]
    Socket(#[source] io::Error),
    /// The helper's own reason.
    #[error("{0}")]
    Refused(String),
    /// The helper ended without an answer.
    #[error("helper process died before it was ready")]
    Died,
}

/// Sends `request` to a helper and waits until it has executed its program.
pub async fn send(socket: UnixStream, request: &impl Serialize) -> Result<(), Error> {
    let request = serde_json::to_vec(request).map_err(Error::Encode)?;
    let answer = async {
        socket.set_nonblocking(true)?;
        let mut socket = tokio::net::UnixStream::from_std(socket)?;
        socket.write_all(&request).await?;
        socket.shutdown().await?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    check_answer(&answer.await.map_err(Error::Socket)?)
}

fn check_answer(answer: &[u8]) -> Result<(), Error> {
    match answer {
        [] => Err(Error::Died),
        [READY] => Ok(()),
        [READY, reason @ ..] | reason => {
            Err(Error::Refused(String::from_utf8_lossy(reason).into_owned()))
        }
    }
}

/// The helper's side of the answer.
#[derive(Debug)]
pub struct Reply(UnixStream);

impl Reply {
    /// Reports that the program is about to be executed.
    pub fn ready(&mut self) -> io::Result<()> {
        self.0.write_all(&[READY])
    }

    /// Ends the answer, for a helper that executes nothing.
    pub fn end(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Both)
    }

    /// Reports why the program cannot be executed.
    pub fn refuse(&mut self, reason: &anyhow::Error) {
        // If this fails, nobody is left to read the reason.
        let _ = write!(self.0, "{reason:#}");
    }
}

/// Reads the request from standard input, which is `/dev/null` afterwards.
pub fn receive<T: DeserializeOwned>() -> anyhow::Result<(T, Reply)> {
    let stdin = io::stdin();
    let mut request = Vec::new();
    stdin
        .lock()
        .read_to_end(&mut request)
        .context("cannot read the request")?;
    // The copy is closed on exec.
    let socket = stdin
        .as_fd()
        .try_clone_to_owned()
        .context("cannot keep the socket")?;
    let null = File::open("/dev/null").context("cannot open /dev/null")?;
    nix::unistd::dup2_stdin(&null).context("cannot replace standard input")?;
    let request = serde_json::from_slice(&request).context("cannot parse the request")?;
    Ok((request, Reply(UnixStream::from(socket))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_and_nothing_more_is_success() {
        assert!(check_answer(b"R").is_ok());
    }

    #[test]
    fn reason_is_passed_on_before_and_after_ready() {
        for answer in [&b"Rno such file"[..], b"no such file"] {
            let error = check_answer(answer).unwrap_err();
            assert_eq!(error.to_string(), "no such file");
        }
    }

    #[test]
    fn silence_is_a_death() {
        assert!(matches!(check_answer(b""), Err(Error::Died)));
    }

    #[tokio::test]
    async fn request_arrives_whole_and_answer_comes_back() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let helper = std::thread::spawn(move || {
            let mut request = String::new();
            theirs.read_to_string(&mut request).unwrap();
            theirs.write_all(&[READY]).unwrap();
            request
        });
        send(ours, &["x".repeat(300_000)]).await.unwrap();
        assert_eq!(helper.join().unwrap().len(), 300_004);
    }
}
