//! Commands in containers with streams, and connections to ports of pods: the server side of `kubectl exec`, `kubectl port-forward` and API
//! clients.
//!
//! A session ([`session`]) is the same for every protocol of the client: SPDY ([`spdy_client`]) or websockets ([`websocket_client`]). There
//! are no terminals: with `tty` a command still runs, on pipes. [`port_forward`] connects to ports.

pub mod port_forward;
pub mod session;
pub mod spdy;
pub mod spdy_client;
pub mod websocket_client;
