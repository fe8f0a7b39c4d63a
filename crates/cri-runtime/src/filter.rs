//! Applies nftables rules in the network of a sandbox or of the node, with the program `nft`.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use programs::path::find_program;
use tokio::sync::oneshot;

use super::namespaces::Namespaces;

/// The program that applies rules.
const NFT: &str = "nft";

/// The first rules of every sandbox. They let everything through, and make the kernel track connections: it takes a reply on a connection
/// that it has not tracked from the start for the beginning of a new one.
pub const TRACKING: &str = "table inet tracking {
  chain input {
    type filter hook input priority -1; policy accept;
    ct state established accept
  }
}
";

/// Why rules could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sandbox uses the node's network.
    #[error("the pod uses the node's network")]
    NoNetwork,
    /// The namespace could not be entered, or the program could not be started.
    #[error("cannot run the program nft")]
    Start(#[source] io::Error),
    /// The program rejected the rules.
    #[error("nft refused the rules: {0}")]
    Refused(String),
    /// The thread that starts the program panicked.
    #[error("the thread that starts nft panicked")]
    Thread,
}

/// Returns whether this machine has the program.
pub fn is_available() -> bool {
    find_program(NFT).is_some()
}

/// Applies `rules` in the network of a sandbox with `nft`: either all of them or none.
pub async fn apply(namespaces: Arc<Namespaces>, rules: String) -> Result<(), Error> {
    let (done, outcome) = oneshot::channel();
    // changing the namespace affects the whole thread, so a thread of its own does it and ends
    std::thread::Builder::new()
        .name("filter".to_owned())
        .spawn(move || {
            // the caller may no longer wait
            let _ = done.send(run(&namespaces, &rules));
        })
        .map_err(Error::Start)?;
    outcome.await.map_err(|_| Error::Thread)?
}

fn run(namespaces: &Namespaces, rules: &str) -> Result<(), Error> {
    let network = namespaces.network().ok_or(Error::NoNetwork)?;
    setns(network, CloneFlags::CLONE_NEWNET).map_err(|errno| Error::Start(errno.into()))?;
    apply_here(rules)
}

/// Applies `rules` in the network of the calling thread: either all of them or none (blocking).
pub fn apply_here(rules: &str) -> Result<(), Error> {
    let mut child = Command::new(NFT)
        .args(["--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::Start)?;
    if let Some(mut stdin) = child.stdin.take() {
        // if `nft` does not read, its own message says why
        let _ = stdin.write_all(rules.as_bytes());
    }
    let output = child.wait_with_output().map_err(Error::Start)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(Error::Refused(message.trim().to_owned()))
}
