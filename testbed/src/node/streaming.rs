//! Commands in containers with streams: what `kubectl exec` and API clients use.
//!
//! A session ([`session`]) is the same whatever the client speaks: SPDY ([`spdy_client`]) or websockets ([`websocket_client`]).
//! There are no terminals: with `tty` a command runs all the same, on pipes.
//!
//! The server here is that of a container runtime: it hands the kubelet an address with a one-time token, and the kubelet passes
//! the client's connection on to it. What arrives is SPDY/3.1 with remote command protocol version 4: a real API server
//! translates the websockets of newer clients.

pub mod session;
pub mod spdy;
pub mod spdy_client;
pub mod websocket_client;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use podresources::cri::v1::ExecRequest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use self::session::{Attached, Wants};
use super::runtime::Runtime;

/// How long an address is good for, and how long the head of a request may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longest head of a request.
const HEAD_LIMIT: usize = 16 * 1024;
/// The one version of the remote command protocol that is spoken.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// Where commands are.
const PATH: &str = "/exec/";

/// The server.
#[derive(Debug)]
pub struct Streaming {
    address: SocketAddr,
    orders: Arc<Mutex<BTreeMap<String, ExecRequest>>>,
}

impl Streaming {
    /// Serves on the loopback device of the node until the process ends.
    pub async fn start(runtime: Arc<Runtime>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let streaming = Self {
            address: listener.local_addr()?,
            orders: Arc::default(),
        };
        let orders = Arc::clone(&streaming.orders);
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((connection, _)) => {
                        let (runtime, orders) = (Arc::clone(&runtime), Arc::clone(&orders));
                        tokio::spawn(async move {
                            if let Err(error) = converse(connection, &runtime, &orders).await {
                                tracing::info!(%error, "Streaming connection broke");
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "Streaming connection is lost");
                        // Out of file descriptors, most likely: some will be free again soon.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(streaming)
    }

    /// The address at which a command waits for its client, for a minute and for one client.
    pub fn announce(&self, order: ExecRequest) -> String {
        let token = uuid::Uuid::new_v4().simple().to_string();
        lock(&self.orders).insert(token.clone(), order);
        let (orders, expired) = (Arc::clone(&self.orders), token.clone());
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            lock(&orders).remove(&expired);
        });
        format!("http://{}{PATH}{token}", self.address)
    }
}

fn lock(
    orders: &Mutex<BTreeMap<String, ExecRequest>>,
) -> std::sync::MutexGuard<'_, BTreeMap<String, ExecRequest>> {
    orders.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The head of a request, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Head {
    path: String,
    upgrade: String,
    protocols: Vec<String>,
}

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
                "x-stream-protocol-version" => {
                    head.protocols
                        .extend(value.split(',').map(|one| one.trim().to_owned()));
                }
                _ => {}
            }
        }
        Some(head)
    }

    /// The token, or the status line of a refusal and why.
    fn judge(&self) -> Result<&str, (&'static str, String)> {
        let token = self
            .path
            .strip_prefix(PATH)
            .map(|token| token.split('?').next().unwrap_or(token))
            .ok_or_else(|| ("404 Not Found", "there are only commands here".to_owned()))?;
        if self.upgrade != "spdy/3.1" {
            let reason = format!("cannot upgrade to {:?}, only to SPDY/3.1", self.upgrade);
            return Err(("400 Bad Request", reason));
        }
        if !self.protocols.iter().any(|protocol| protocol == PROTOCOL) {
            let reason = format!("none of {:?} is {PROTOCOL}", self.protocols);
            return Err(("403 Forbidden", reason));
        }
        Ok(token)
    }
}

async fn converse(
    mut connection: TcpStream,
    runtime: &Runtime,
    orders: &Mutex<BTreeMap<String, ExecRequest>>,
) -> io::Result<()> {
    let read = tokio::time::timeout(PATIENCE, read_head(&mut connection));
    let (head, rest) = read.await??;
    let order = head.judge().and_then(|token| {
        lock(orders)
            .remove(token)
            .ok_or_else(|| ("404 Not Found", "no command waits here".to_owned()))
    });
    match order {
        Ok(order) => {
            let accepted = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                 X-Stream-Protocol-Version: {PROTOCOL}\r\n\r\n"
            );
            connection.write_all(accepted.as_bytes()).await?;
            connection.set_nodelay(true)?;
            let wants = Wants {
                stdin: order.stdin,
                stdout: order.stdout,
                stderr: order.stderr,
                tty: order.tty,
            };
            let start = async {
                let running = runtime.start_exec(&order.container_id, order.cmd, order.stdin);
                running.await.map(Attached::from).map_err(|error| {
                    format!("error executing command in container: {}", error.chain())
                })
            };
            spdy_client::run(connection, rest, wants, start).await
        }
        Err((status, reason)) => {
            let refusal = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{reason}\n",
                reason.len() + 1
            );
            connection.write_all(refusal.as_bytes()).await?;
            connection.shutdown().await
        }
    }
}

/// Reads the head of a request; what came after it belongs to the upgraded protocol.
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
        assert_eq!(Head::parse(GOOD).unwrap().judge(), Ok("abc"));
    }

    #[rstest]
    #[case::path("/exec/", "/attach/", "404 Not Found")]
    #[case::websocket("SPDY/3.1", "websocket", "400 Bad Request")]
    #[case::old_protocols("v4.channel", "v3.channel", "403 Forbidden")]
    fn other_requests_are_refused(#[case] from: &str, #[case] to: &str, #[case] status: &str) {
        let head = Head::parse(&GOOD.replace(from, to)).unwrap();
        assert_eq!(head.judge().unwrap_err().0, status);
    }

    #[test]
    fn what_is_not_http_has_no_head() {
        assert_eq!(Head::parse("nonsense"), None);
    }
}
