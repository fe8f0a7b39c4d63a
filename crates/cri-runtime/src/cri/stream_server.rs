//! The server of streams to containers and ports (`crate::streaming`). It is that of a container runtime: it returns to the kubelet an address with a one-time token, and the kubelet proxies the
//! client's connection to it. For a command the connection uses SPDY/3.1 with remote command protocol version 4, because a real API server
//! translates the websockets of newer clients. For ports the API server forwards either protocol.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podresources::cri::v1::ExecRequest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::namespaces::Namespaces;
use crate::runtime::Runtime;
use crate::streaming::port_forward::{self, Ports};
use crate::streaming::session::{Attached, RequestedStreams};
use crate::streaming::spdy_client;
use crate::streaming::websocket_client::Version;

/// How long an address is valid, and how long the head of a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Longest head of a request, in bytes.
const HEAD_LIMIT: usize = 16 * 1024;
/// The only supported version of the remote command protocol.
const PROTOCOL: &str = Version::V4.protocol();

/// A stream request that waits for its client.
#[derive(Debug)]
pub enum StreamRequest {
    /// A command.
    Command(ExecRequest),
    /// Ports of a pod.
    Ports {
        /// Where the ports are.
        namespaces: Arc<Namespaces>,
        /// The port numbers; a client that speaks SPDY names them itself.
        wanted: Vec<u16>,
    },
}

impl StreamRequest {
    fn kind(&self) -> Kind {
        match self {
            Self::Command(_) => Kind::Command,
            Self::Ports { .. } => Kind::Ports,
        }
    }
}

/// The kind of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Command,
    Ports,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Command, Self::Ports];

    /// Returns the path prefix of such addresses.
    fn path(self) -> &'static str {
        match self {
            Self::Command => "/exec/",
            Self::Ports => "/portforward/",
        }
    }

    /// Returns the protocol over SPDY.
    fn protocol(self) -> &'static str {
        match self {
            Self::Command => PROTOCOL,
            Self::Ports => port_forward::PROTOCOL,
        }
    }
}

type Requests = Mutex<BTreeMap<String, StreamRequest>>;

/// The streaming server.
#[derive(Debug)]
pub struct Streaming {
    address: SocketAddr,
    requests: Arc<Requests>,
}

impl Streaming {
    /// Starts a server on the node's loopback device, which runs until the process ends.
    pub async fn start(runtime: Arc<Runtime>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let streaming = Self {
            address: listener.local_addr()?,
            requests: Arc::default(),
        };
        let requests = Arc::clone(&streaming.requests);
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((connection, _)) => {
                        let (runtime, requests) = (Arc::clone(&runtime), Arc::clone(&requests));
                        tokio::spawn(async move {
                            if let Err(error) =
                                serve_connection(connection, &runtime, &requests).await
                            {
                                tracing::info!(%error, "Streaming connection failed");
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "Cannot accept a streaming connection");
                        // Most likely there are no file descriptors left; some will soon be free again.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(streaming)
    }

    /// Returns an address for the client of `request`. It is valid for a minute and for one client.
    pub fn register(&self, request: StreamRequest) -> String {
        let path = request.kind().path();
        let token = uuid::Uuid::new_v4().simple().to_string();
        self.requests.lock().insert(token.clone(), request);
        let (requests, expired) = (Arc::clone(&self.requests), token.clone());
        tokio::spawn(async move {
            tokio::time::sleep(REQUEST_TIMEOUT).await;
            requests.lock().remove(&expired);
        });
        format!("http://{}{path}{token}", self.address)
    }
}

/// The relevant parts of a request's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Head {
    path: String,
    upgrade: String,
    protocols: Vec<String>,
    /// Key of a websocket client, which the answer has to prove.
    key: String,
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Spdy,
    Websocket,
}

/// Status line and reason of a refusal.
type Refusal = (&'static str, String);

impl Head {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split("\r\n");
        let mut head = Self {
            path: lines.next()?.split(' ').nth(1)?.to_owned(),
            ..Self::default()
        };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "upgrade" => head.upgrade = value.trim().to_ascii_lowercase(),
                "sec-websocket-key" => value.trim().clone_into(&mut head.key),
                "x-stream-protocol-version" | "sec-websocket-protocol" => {
                    head.protocols
                        .extend(value.split(',').map(|one| one.trim().to_owned()));
                }
                _ => {}
            }
        }
        Some(head)
    }

    /// Returns kind, token and protocol of the request.
    fn check(&self) -> Result<(Kind, &str, Transport), Refusal> {
        let mut kinds = Kind::ALL.into_iter();
        let found = kinds.find_map(|kind| Some((kind, self.path.strip_prefix(kind.path())?)));
        let (kind, rest) = found.ok_or_else(|| ("404 Not Found", "not found".to_owned()))?;
        let token = rest.split('?').next().unwrap_or(rest);
        let (transport, protocol) = match (self.upgrade.as_str(), kind) {
            ("spdy/3.1", _) => (Transport::Spdy, kind.protocol()),
            ("websocket", Kind::Ports) => (Transport::Websocket, PROTOCOL),
            _ => {
                let reason = format!("cannot upgrade to {:?}", self.upgrade);
                return Err(("400 Bad Request", reason));
            }
        };
        if !self.protocols.iter().any(|offered| offered == protocol) {
            let reason = format!("none of {:?} is {protocol}", self.protocols);
            return Err(("403 Forbidden", reason));
        }
        Ok((kind, token, transport))
    }

    /// Returns the response that accepts the upgrade.
    fn accepted(&self, kind: Kind, transport: Transport) -> String {
        let how = match transport {
            Transport::Spdy => format!(
                "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {}",
                kind.protocol()
            ),
            Transport::Websocket => format!(
                "Upgrade: websocket\r\nSec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: {PROTOCOL}",
                derive_accept_key(self.key.as_bytes())
            ),
        };
        format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{how}\r\n\r\n")
    }
}

async fn serve_connection(
    mut connection: TcpStream,
    runtime: &Runtime,
    requests: &Requests,
) -> io::Result<()> {
    let read = tokio::time::timeout(REQUEST_TIMEOUT, read_head(&mut connection));
    let (head, rest) = read.await??;
    let taken = head.check().and_then(|(kind, token, transport)| {
        let mut requests = requests.lock();
        let is_known = requests
            .get(token)
            .is_some_and(|request| request.kind() == kind);
        let request = is_known.then(|| requests.remove(token)).flatten();
        let request =
            request.ok_or_else(|| ("404 Not Found", "unknown or expired token".to_owned()))?;
        Ok((request, transport))
    });
    let (request, transport) = match taken {
        Ok(taken) => taken,
        Err(refusal) => return refuse(connection, refusal).await,
    };
    let accepted = head.accepted(request.kind(), transport);
    connection.write_all(accepted.as_bytes()).await?;
    connection.set_nodelay(true)?;
    match request {
        StreamRequest::Command(command) => {
            let requested = RequestedStreams {
                stdin: command.stdin,
                stdout: command.stdout,
                stderr: command.stderr,
                tty: command.tty,
            };
            let start = async {
                let running = runtime.start_exec(&command.container_id, command.cmd, command.stdin);
                running.await.map(Attached::from).map_err(|error| {
                    format!("error executing command in container: {}", error.chain())
                })
            };
            spdy_client::run(connection, rest, requested, start).await
        }
        StreamRequest::Ports { namespaces, wanted } => {
            let ports = Ports::Inside(namespaces);
            match transport {
                Transport::Spdy => port_forward::spdy(connection, rest, ports).await,
                Transport::Websocket => {
                    port_forward::websocket(connection, rest, ports, &wanted).await
                }
            }
        }
    }
}

async fn refuse(mut connection: TcpStream, (status, reason): Refusal) -> io::Result<()> {
    let refusal = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{reason}\n",
        reason.len() + 1
    );
    connection.write_all(refusal.as_bytes()).await?;
    connection.shutdown().await
}

/// Reads the head of a request; the bytes after it belong to the upgraded protocol.
async fn read_head(connection: &mut TcpStream) -> io::Result<(Head, Vec<u8>)> {
    const END: &[u8] = b"\r\n\r\n";
    let broken = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(END.len()).position(|window| window == END) {
            let rest = bytes.split_off(at + END.len());
            let text = String::from_utf8(bytes).map_err(|_| broken("head is not text"))?;
            let head = Head::parse(&text).ok_or_else(|| broken("head is not HTTP"))?;
            return Ok((head, rest));
        }
        if bytes.len() > HEAD_LIMIT {
            return Err(broken("head is too long"));
        }
        if connection.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GOOD: &str = "POST /exec/abc?x=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
        X-Stream-Protocol-Version: v5.channel.k8s.io\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

    #[test]
    fn token_is_found_in_a_good_request() {
        let expected = (Kind::Command, "abc", Transport::Spdy);
        assert_eq!(Head::parse(GOOD).unwrap().check(), Ok(expected));
    }

    #[test]
    fn ports_are_asked_for_by_websockets_too() {
        let text = GOOD
            .replace("/exec/", "/portforward/")
            .replace("SPDY/3.1", "websocket")
            .replace("X-Stream-Protocol-Version", "Sec-WebSocket-Protocol")
            // key and proof are those of RFC 6455, 1.3
            .replace(
                "\r\n\r\n",
                "\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            );
        let head = Head::parse(&text).unwrap();
        let expected = (Kind::Ports, "abc", Transport::Websocket);
        assert_eq!(head.check(), Ok(expected));
        let accepted = head.accepted(Kind::Ports, Transport::Websocket);
        assert!(accepted.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    }

    #[rstest]
    #[case::path("/exec/", "/attach/", "404 Not Found")]
    #[case::websocket("SPDY/3.1", "websocket", "400 Bad Request")]
    #[case::old_protocols("v4.channel", "v3.channel", "403 Forbidden")]
    fn other_requests_are_refused(#[case] from: &str, #[case] to: &str, #[case] status: &str) {
        let head = Head::parse(&GOOD.replace(from, to)).unwrap();
        assert_eq!(head.check().unwrap_err().0, status);
    }

    #[test]
    fn what_is_not_http_has_no_head() {
        assert_eq!(Head::parse("nonsense"), None);
    }
}
