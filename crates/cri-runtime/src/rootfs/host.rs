//! The parts of the node's root that containers use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tools in the `/bin` of containers, as far as the node has them.
const TOOLS: &[&str] = &[
    "[", "cat", "chmod", "cp", "curl", "date", "echo", "env", "false", "grep", "head", "hostname",
    "id", "kill", "ls", "mkdir", "mv", "nproc", "printenv", "ps", "pwd", "readlink", "rm", "sed",
    "seq", "sh", "sleep", "stat", "tail", "tee", "test", "touch", "true", "wc",
];
/// Top-level entries of the node that programs need. `/bin` is not among them, because each container has its own.
const SYSTEM_ENTRIES: &[&str] = &["lib", "lib32", "lib64", "libx32", "sbin"];

/// The kind of a top-level entry of the node's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemEntry {
    /// A link, nearly always into `/usr`.
    Link(PathBuf),
    /// A directory.
    Directory,
}

/// The parts of the node's root that containers use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Entries besides `/usr` that contain programs or libraries.
    pub system: BTreeMap<String, SystemEntry>,
    /// Tools by name, with their paths below `/usr`.
    pub tools: BTreeMap<String, PathBuf>,
    /// Whether `/usr/local/bin` exists, so that an image's programs can be mounted over it.
    pub has_local_bin: bool,
}

impl HostFacts {
    /// Reads the root that the calling process sees.
    pub fn probe() -> Self {
        let system = SYSTEM_ENTRIES
            .iter()
            .filter_map(|name| {
                let path = Path::new("/").join(name);
                let entry = match std::fs::read_link(&path) {
                    Ok(target) => SystemEntry::Link(target),
                    Err(_) if path.is_dir() => SystemEntry::Directory,
                    Err(_) => return None,
                };
                Some(((*name).to_owned(), entry))
            })
            .collect();
        let tools = TOOLS
            .iter()
            .filter_map(|name| {
                let path = Path::new("/usr/bin").join(name);
                path.exists().then(|| ((*name).to_owned(), path))
            })
            .collect();
        Self {
            system,
            tools,
            has_local_bin: Path::new("/usr/local/bin").is_dir(),
        }
    }
}
