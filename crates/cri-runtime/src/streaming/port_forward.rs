//! Connections to ports of a pod.
//!
//! Over SPDY a client opens two streams for each connection, one for data and one for errors. Over websockets each port of the request has
//! two channels and one connection.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use form_urlencoded::parse;
use futures::{SinkExt as _, StreamExt as _};
use nix::sched::{CloneFlags, setns};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::spdy::{self, Frame};
use super::{spdy_client, websocket_client};
use crate::namespaces::Namespaces;

/// The protocol over SPDY.
pub const PROTOCOL: &str = "portforward.k8s.io";
/// Capacity of the queues, in messages.
const QUEUE: usize = 16;
/// Time limit for a connection to a port.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the ports of a pod are.
#[derive(Clone, Debug)]
pub enum Ports {
    /// At an address of this machine.
    At(Ipv4Addr),
    /// On the loopback device of the pod's own network, or of the node's if it has none.
    Inside(Arc<Namespaces>),
}

impl Ports {
    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let namespaces = match self {
            Self::At(address) => return TcpStream::connect((*address, port)).await,
            Self::Inside(namespaces) => Arc::clone(namespaces),
        };
        let (done, outcome) = oneshot::channel();
        // changing the namespace affects the whole thread, so a thread of its own does it and ends
        std::thread::Builder::new()
            .name("port-forward".to_owned())
            .spawn(move || {
                // the client may have closed the connection
                let _ = done.send(connect_inside(&namespaces, port));
            })?;
        let stream = outcome.await.map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

fn connect_inside(namespaces: &Namespaces, port: u16) -> io::Result<std::net::TcpStream> {
    if let Some(network) = namespaces.network() {
        setns(network, CloneFlags::CLONE_NEWNET)?;
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    std::net::TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
}

/// A message for the client: data of a connection, their end, or an error.
enum ClientMessage {
    Data(Vec<u8>),
    DataEnd,
    Problem(String),
}

/// Sends messages to the client, with an encoder for its messages.
struct ClientSink<E> {
    out: mpsc::Sender<Vec<u8>>,
    encode: E,
}

impl<E: Fn(ClientMessage) -> Vec<Vec<u8>>> ClientSink<E> {
    async fn send(&self, message: ClientMessage) -> io::Result<()> {
        for message in (self.encode)(message) {
            self.out.send(message).await.map_err(disconnected)?;
        }
        Ok(())
    }
}

/// Returns the error for a client that has closed the connection.
fn disconnected<T>(_: mpsc::error::SendError<T>) -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

/// Forwards one connection. `from` yields the client's bytes; an empty message ends them.
async fn forward_connection<E: Fn(ClientMessage) -> Vec<Vec<u8>>>(
    ports: Ports,
    port: u16,
    mut from: mpsc::Receiver<Vec<u8>>,
    to: ClientSink<E>,
) -> io::Result<()> {
    let mut stream = match ports.connect(port).await {
        Ok(stream) => stream,
        Err(error) => {
            let text = format!("an error occurred forwarding {port}: {error}");
            to.send(ClientMessage::Problem(text)).await?;
            return to.send(ClientMessage::DataEnd).await;
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
        // A connection that cannot be read has ended, too.
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            to.send(ClientMessage::Data(buffer[..length].to_vec()))
                .await?;
        }
        to.send(ClientMessage::DataEnd).await
    };
    tokio::pin!(sending);
    tokio::select! {
        received = receiving => received,
        // The client has closed the connection, or the pod accepts no more data.
        sent = &mut sending => sent,
    }
}

/// The two streams of a connection, until both are open.
#[derive(Default)]
struct Pair {
    data: Option<u32>,
    error: Option<u32>,
}

/// Serves a SPDY client; `first` are the bytes that came with the request's head.
pub async fn spdy<C>(connection: C, first: Vec<u8>, ports: Ports) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Send + 'static,
{
    let (reader, writer) = tokio::io::split(connection);
    let (frames_in, mut frames) = mpsc::channel(QUEUE);
    let (out, frames_out) = mpsc::channel::<Vec<u8>>(QUEUE);
    let reading = tokio::spawn(spdy_client::read(reader, first, frames_in));
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
                    .map_err(disconnected)?;
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
                let encode = move |message: ClientMessage| match message {
                    ClientMessage::Data(bytes) => vec![spdy::data(data, &bytes, false)],
                    ClientMessage::DataEnd => {
                        vec![spdy::data(error, &[], true), spdy::data(data, &[], true)]
                    }
                    ClientMessage::Problem(text) => vec![spdy::data(error, text.as_bytes(), false)],
                };
                let to = ClientSink {
                    out: out.clone(),
                    encode,
                };
                let ports = ports.clone();
                connections.spawn(async move {
                    if let Err(problem) = forward_connection(ports, port, from, to).await {
                        tracing::debug!(%problem, "A forwarded connection failed");
                    }
                });
            }
            Frame::Data {
                stream,
                bytes,
                last,
            } => {
                if let Some(input) = inputs.get(&stream) {
                    // A connection that has ended accepts no more data.
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
            Frame::Ping { id } => out.send(spdy::ping(id)).await.map_err(disconnected)?,
            Frame::GoAway | Frame::Other => {}
        }
    }
    connections.shutdown().await;
    drop(out);
    reading.abort();
    writing.await.unwrap_or(Ok(()))
}

/// Returns the ports of a request, which may be separated by commas or given as several parameters.
pub fn listed(query: &str) -> Vec<u16> {
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

/// Serves a websocket client: channel 2n has the data of the n-th port, channel 2n + 1 its errors. `first` are the bytes that came with the
/// request's head.
pub async fn websocket<C>(
    connection: C,
    first: Vec<u8>,
    ports: Ports,
    wanted: &[u16],
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Send + Unpin,
{
    let socket = WebSocketStream::from_partially_read(connection, first, Role::Server, None).await;
    let (mut sink, mut stream) = socket.split();
    let (out, mut messages) = mpsc::channel::<Vec<u8>>(QUEUE);
    let mut inputs = Vec::new();
    let mut connections = JoinSet::new();
    for (index, port) in wanted.iter().copied().enumerate() {
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
        let encode = move |message: ClientMessage| match message {
            ClientMessage::Data(bytes) => vec![framed(data, &bytes)],
            ClientMessage::Problem(text) => vec![framed(error, text.as_bytes())],
            // The protocol has no message for the end of one channel.
            ClientMessage::DataEnd => Vec::new(),
        };
        let to = ClientSink {
            out: out.clone(),
            encode,
        };
        let ports = ports.clone();
        connections.spawn(async move {
            // Each channel begins with its port number.
            for channel in [data, error] {
                let greeting = framed(channel, &port.to_le_bytes());
                if to.out.send(greeting).await.is_err() {
                    return;
                }
            }
            if let Err(problem) = forward_connection(ports, port, from, to).await {
                tracing::debug!(%problem, "A forwarded connection failed");
            }
        });
    }
    drop(out);
    let receiving = async {
        while let Some(Ok(message)) = stream.next().await {
            if let Message::Binary(bytes) = message
                && let [channel, bytes @ ..] = bytes.as_ref()
                && channel % 2 == 0
                && let Some(input) = inputs.get(usize::from(channel / 2))
                && !bytes.is_empty()
            {
                // A connection that has ended accepts no more data.
                let _ = input.send(bytes.to_vec()).await;
            }
        }
    };
    let sending = async {
        while let Some(message) = messages.recv().await {
            sink.send(Message::Binary(Bytes::from(message))).await?;
        }
        sink.send(websocket_client::end()).await
    };
    let sent = tokio::select! {
        () = receiving => Ok(()),
        sent = sending => sent,
    };
    connections.shutdown().await;
    sent.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_in_one_word_or_in_many() {
        assert_eq!(listed("port=80%2C443&port=8080&x=1"), [80, 443, 8080]);
    }
}
