//! Tests the interfaces over real unix sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod device_plugin;
mod podresources;
