//! Connections that notice when the other end is gone, also without a word from it.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After this silence the kernel asks whether the other end is still there. As in Go's dialer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Time between two such questions.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Number of unanswered questions that end the connection.
const KEEP_ALIVE_RETRIES: u32 = 3;
/// How long what was sent may be unacknowledged. Without it the kernel tries for a quarter of an hour.
const UNACKNOWLEDGED: Duration = Duration::from_mins(1);

/// Returns what opens connections.
pub(super) fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    // TLS comes on top
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEP_ALIVE));
    connector.set_keepalive_interval(Some(KEEP_ALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEP_ALIVE_RETRIES));
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    connector
}
