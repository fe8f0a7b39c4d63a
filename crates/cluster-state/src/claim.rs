//! Takes a name for a new cluster.

use std::path::{Path, PathBuf};

use cluster_spec::plan::{ClusterSpec, NodePlan};

use crate::error::Error;
use crate::layout::{check_name, dir, lock};
use crate::process::ProcessRef;
use crate::record::{Local, Record, read, write};
use crate::removal::sweep;
use crate::root;

/// Longest path that fits into the address of a unix socket, with its terminating zero.
const MAX_SOCKET_PATH: usize = 108;

/// A request to take a name for a cluster.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// Directory of all clusters.
    pub root: &'a Path,
    /// The name.
    pub name: &'a str,
    /// The nodes.
    pub nodes: &'a [NodePlan],
    /// The longest path of a socket below a node's directory, relative to that directory.
    pub longest_socket: &'a str,
    /// The spec of a cluster of real Kubernetes parts.
    pub spec: Option<&'a ClusterSpec>,
}

/// Takes the name for a cluster of this process and removes what dead clusters left below the root.
///
/// Returns the new directory and the names of the removed clusters.
pub fn claim(claim: &Claim<'_>) -> Result<(PathBuf, Vec<String>), Error> {
    check_name(claim.name)?;
    let root = claim.root;
    let dir = dir(root, claim.name);
    check_length(&dir, claim)?;
    root::make(root)?;
    let _lock = lock(root)?;
    let swept = sweep(root)?;
    if let Some(record) = read(&dir)? {
        let process = record
            .holder
            .filter(ProcessRef::is_alive)
            .unwrap_or(record.owner);
        return Err(Error::Exists {
            name: claim.name.to_owned(),
            pid: process.pid,
        });
    }
    match root::make_new(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // A start that was killed before it wrote its record left the directory.
            fs_err::remove_dir(&dir).map_err(|_| Error::Foreign(dir.clone()))?;
            root::make_new(&dir)?;
        }
        outcome => outcome?,
    }
    let owner = ProcessRef::current().ok_or_else(|| std::io::Error::other("cannot read /proc"))?;
    let record = Record {
        owner,
        holder: None,
        detached: false,
        nodes: claim.nodes.len(),
        local: claim.spec.map(|spec| Local {
            subnet: None,
            spec: spec.clone(),
        }),
    };
    write(&dir, &record)?;
    Ok((dir, swept))
}

fn check_length(dir: &Path, claim: &Claim<'_>) -> Result<(), Error> {
    let longest_node = claim
        .nodes
        .iter()
        .map(|node| node.name.len())
        .max()
        .unwrap_or_default();
    let length =
        dir.as_os_str().len() + "/nodes/".len() + longest_node + claim.longest_socket.len() + 1;
    match length.checked_sub(MAX_SOCKET_PATH) {
        None | Some(0) => Ok(()),
        Some(excess) => Err(Error::TooLong {
            dir: dir.to_owned(),
            excess,
        }),
    }
}
