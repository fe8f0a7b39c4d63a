//! Connections to ports of a pod.
//!
//! Over SPDY a client opens two streams for each connection, one for data and one for what went wrong; over websockets there are
//! two channels for each port of the request, and one connection for each of them.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

use form_urlencoded::parse;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::node::streaming::spdy::{self, Frame};
use crate::node::streaming::{spdy_client, websocket_client};

/// The protocol over SPDY.
pub(super) const PROTOCOL: &str = "portforward.k8s.io";
/// Messages that may wait on their way.
const QUEUE: usize = 16;

/// Bytes for the client, or the end of them, on one of the two sides of a connection.
enum Side {
    Data(Vec<u8>),
    DataEnd,
    Problem(String),
}

/// The way to the client, with what makes messages of what goes there.
struct Way<E> {
    out: mpsc::Sender<Vec<u8>>,
    encode: E,
}

impl<E: Fn(Side) -> Vec<Vec<u8>>> Way<E> {
    async fn send(&self, side: Side) -> io::Result<()> {
        for message in (self.encode)(side) {
            self.out.send(message).await.map_err(gone)?;
        }
        Ok(())
    }
}

/// The client has hung up.
fn gone<T>(_: mpsc::error::SendError<T>) -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

/// Carries one connection: bytes from the client come by `from`, an empty message is their end.
async fn carry<E: Fn(Side) -> Vec<Vec<u8>>>(
    address: Ipv4Addr,
    port: u16,
    mut from: mpsc::Receiver<Vec<u8>>,
    to: Way<E>,
) -> io::Result<()> {
    let mut stream = match TcpStream::connect((address, port)).await {
        Ok(stream) => stream,
        Err(error) => {
            let text = format!("an error occurred forwarding {port}: {error}");
            to.send(Side::Problem(text)).await?;
            return to.send(Side::DataEnd).await;
        }
    };
    let (mut reader, mut writer) = stream.split();
    let sending = async {
        while let Some(bytes) = from.recv().await {
            if bytes.is_empty() {
                writer.shutdown().await?;
            } else {
                writer.write_all(&bytes).await?;
            }
        }
        io::Result::Ok(())
    };
    let receiving = async {
        let mut buffer = vec![0; 16 * 1024];
        // A connection that cannot be read has ended as well.
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            to.send(Side::Data(buffer[..length].to_vec())).await?;
        }
        to.send(Side::DataEnd).await
    };
    tokio::pin!(sending);
    tokio::select! {
        received = receiving => received,
        // The client is gone, or the pod takes no more.
        sent = &mut sending => sent,
    }
}

/// The two streams of a connection, until both are there.
#[derive(Default)]
struct Pair {
    data: Option<u32>,
    error: Option<u32>,
}

/// Serves a client that speaks SPDY.
pub(super) async fn spdy<C>(connection: C, address: Ipv4Addr) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Send + 'static,
{
    let (reader, writer) = tokio::io::split(connection);
    let (frames_in, mut frames) = mpsc::channel(QUEUE);
    let (out, frames_out) = mpsc::channel::<Vec<u8>>(QUEUE);
    let reading = tokio::spawn(spdy_client::read(reader, Vec::new(), frames_in));
    let writing = tokio::spawn(spdy_client::write(writer, frames_out));
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut inputs: BTreeMap<u32, mpsc::Sender<Vec<u8>>> = BTreeMap::new();
    let mut connections = JoinSet::new();
    let mut is_first = true;
    while let Some(frame) = frames.recv().await {
        match frame {
            Frame::Open { stream, headers } => {
                out.send(spdy::reply(stream, is_first))
                    .await
                    .map_err(gone)?;
                is_first = false;
                let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
                let pair = pairs.entry(header("requestid")).or_default();
                match header("streamtype").as_str() {
                    "data" => pair.data = Some(stream),
                    "error" => pair.error = Some(stream),
                    _ => {}
                }
                let (Some(data), Some(error)) = (pair.data, pair.error) else {
                    continue;
                };
                pairs.remove(&header("requestid"));
                let port = header("port").parse().unwrap_or_default();
                let (sender, from) = mpsc::channel(QUEUE);
                inputs.insert(data, sender);
                let encode = move |side: Side| match side {
                    Side::Data(bytes) => vec![spdy::data(data, &bytes, false)],
                    Side::DataEnd => {
                        vec![spdy::data(error, &[], true), spdy::data(data, &[], true)]
                    }
                    Side::Problem(text) => vec![spdy::data(error, text.as_bytes(), false)],
                };
                let to = Way {
                    out: out.clone(),
                    encode,
                };
                connections.spawn(async move {
                    if let Err(problem) = carry(address, port, from, to).await {
                        tracing::debug!(%problem, "A forwarded connection ended badly");
                    }
                });
            }
            Frame::Data {
                stream,
                bytes,
                last,
            } => {
                if let Some(input) = inputs.get(&stream) {
                    // A connection that has ended takes no more.
                    if !bytes.is_empty() {
                        let _ = input.send(bytes).await;
                    }
                    if last {
                        let _ = input.send(Vec::new()).await;
                    }
                }
            }
            Frame::Reset { stream } => {
                inputs.remove(&stream);
            }
            Frame::Ping { id } => out.send(spdy::ping(id)).await.map_err(gone)?,
            Frame::GoAway | Frame::Other => {}
        }
    }
    connections.shutdown().await;
    drop(out);
    reading.abort();
    writing.await.unwrap_or(Ok(()))
}

/// The ports of a request, separated by commas or not.
fn ports(query: &str) -> Vec<u16> {
    let pairs = parse(query.as_bytes());
    pairs
        .filter(|(name, _)| name == "port" || name == "ports")
        .flat_map(|(_, value)| {
            let words = value.split(',').map(str::trim);
            words
                .filter_map(|word| word.parse().ok())
                .collect::<Vec<u16>>()
        })
        .collect()
}

/// Serves a client that speaks websockets: channel 2n has the data of the n-th port, channel 2n + 1 its problems.
pub(super) async fn websocket<C>(connection: C, address: Ipv4Addr, query: &str) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Send + Unpin,
{
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, None).await;
    let (mut sink, mut stream) = socket.split();
    let (out, mut messages) = mpsc::channel::<Vec<u8>>(QUEUE);
    let mut inputs = Vec::new();
    let mut connections = JoinSet::new();
    for (index, port) in ports(query).into_iter().enumerate() {
        let Ok(data) = u8::try_from(index * 2) else {
            break;
        };
        let error = data.saturating_add(1);
        let (sender, from) = mpsc::channel(QUEUE);
        inputs.push(sender);
        let framed = |channel: u8, bytes: &[u8]| {
            let mut message = vec![channel];
            message.extend_from_slice(bytes);
            message
        };
        let encode = move |side: Side| match side {
            Side::Data(bytes) => vec![framed(data, &bytes)],
            Side::Problem(text) => vec![framed(error, text.as_bytes())],
            // There is no message for the end of one channel.
            Side::DataEnd => Vec::new(),
        };
        let to = Way {
            out: out.clone(),
            encode,
        };
        connections.spawn(async move {
            // Each channel begins with its port.
            for channel in [data, error] {
                let greeting = framed(channel, &port.to_le_bytes());
                if to.out.send(greeting).await.is_err() {
                    return;
                }
            }
            if let Err(problem) = carry(address, port, from, to).await {
                tracing::debug!(%problem, "A forwarded connection ended badly");
            }
        });
    }
    drop(out);
    let hearing = async {
        while let Some(Ok(message)) = stream.next().await {
            if let Message::Binary(bytes) = message
                && let [channel, bytes @ ..] = bytes.as_ref()
                && channel % 2 == 0
                && let Some(input) = inputs.get(usize::from(channel / 2))
                && !bytes.is_empty()
            {
                // A connection that has ended takes no more.
                let _ = input.send(bytes.to_vec()).await;
            }
        }
    };
    let speaking = async {
        while let Some(message) = messages.recv().await {
            sink.send(Message::Binary(Bytes::from(message))).await?;
        }
        sink.send(websocket_client::end()).await
    };
    let spoken = tokio::select! {
        () = hearing => Ok(()),
        spoken = speaking => spoken,
    };
    connections.shutdown().await;
    spoken.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_in_one_word_or_in_many() {
        assert_eq!(ports("port=80%2C443&port=8080&x=1"), [80, 443, 8080]);
    }
}
