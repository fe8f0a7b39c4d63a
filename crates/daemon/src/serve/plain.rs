//! Tells a client that speaks plain HTTP to a TLS port so, in the words of Go's HTTP server, instead of closing the connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What Go's server answers.
const ANSWER: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// The first bytes of requests, as many as a TLS record has in its header. A TLS client begins with none of them.
const BEGINNINGS: [&[u8; BEGINNING]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
const BEGINNING: usize = 5;
/// How long the client may take to read the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns whether the client begins with a plain HTTP request. Waits for its first bytes and leaves them in the stream.
pub(super) async fn is_spoken(stream: &TcpStream) -> io::Result<bool> {
    let mut seen = [0; BEGINNING];
    let length = stream.peek(&mut seen).await?;
    let seen = &seen[..length];
    Ok(!seen.is_empty() && BEGINNINGS.iter().any(|all| all.starts_with(seen)))
}

/// Reads the beginning of the request, answers it and closes the connection.
pub(super) async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    let mut beginning = [0; BEGINNING];
    stream.read_exact(&mut beginning).await?;
    if !BEGINNINGS.contains(&&beginning) {
        return Ok(());
    }
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    // a connection that is closed with unread data is reset, and the client may lose the answer
    let mut nowhere = tokio::io::sink();
    let rest = tokio::io::copy(&mut stream, &mut nowhere);
    match tokio::time::timeout(PATIENCE, rest).await {
        Ok(read) => read.map(drop),
        Err(_) => Ok(()),
    }
}
