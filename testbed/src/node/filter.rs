//! Rules of nftables in the network of a sandbox, by the program `nft`.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use tokio::sync::oneshot;

use super::namespaces::Namespaces;
use crate::local::privileges::find_program;

/// The program that takes rules.
const NFT: &str = "nft";

/// What every sandbox begins with. It lets everything through, and has the kernel follow connections: of one that was open before it did,
/// an answer would look like the beginning of another.
pub const TRACKING: &str = "table inet tracking {
  chain input {
    type filter hook input priority -1; policy accept;
    ct state established accept
  }
}
";

/// Why rules are not in force.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sandbox has the node's network.
    #[error("it has no network of its own")]
    NoNetwork,
    /// The namespace cannot be entered, or the program not be started.
    #[error("cannot run the program nft in its network")]
    Start(#[source] io::Error),
    /// The program refused.
    #[error("nft refused the rules: {0}")]
    Refused(String),
    /// The thread that starts it is gone.
    #[error("the thread that starts nft panicked")]
    Thread,
}

/// Whether this machine has the program.
pub fn is_possible() -> bool {
    find_program(NFT).is_some()
}

/// Has `nft` read `rules` in the network of a sandbox. It takes all of them or none.
pub async fn apply(namespaces: Arc<Namespaces>, rules: String) -> Result<(), Error> {
    let (done, outcome) = oneshot::channel();
    // the namespace is the thread's, so it must be one that ends
    std::thread::Builder::new()
        .name("filter".to_owned())
        .spawn(move || {
            // the caller may have given up
            let _ = done.send(run(&namespaces, &rules));
        })
        .map_err(Error::Start)?;
    outcome.await.map_err(|_| Error::Thread)?
}

fn run(namespaces: &Namespaces, rules: &str) -> Result<(), Error> {
    let network = namespaces.network().ok_or(Error::NoNetwork)?;
    setns(network, CloneFlags::CLONE_NEWNET).map_err(|errno| Error::Start(errno.into()))?;
    let mut child = Command::new(NFT)
        .args(["--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::Start)?;
    if let Some(mut stdin) = child.stdin.take() {
        // one that does not read says why when it ends
        let _ = stdin.write_all(rules.as_bytes());
    }
    let output = child.wait_with_output().map_err(Error::Start)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(Error::Refused(message.trim().to_owned()))
}
