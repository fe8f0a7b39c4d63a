//! The steps that build the root of a container, as data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Access through a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// The same as that of the source.
    ReadWrite,
    /// The mount itself is read-only, mounts below it keep their access: the meaning of `readOnly` in Kubernetes.
    ReadOnly,
    /// The mount and all mounts below it are read-only.
    ReadOnlyRecursive,
}

/// What happens if the source of a bind mount does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missing {
    /// The container cannot start.
    Fail,
    /// Nothing is mounted.
    Skip,
    /// A directory is created, as runtimes do for host paths.
    CreateDirectory,
}

/// A recursive bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Path in the node's root.
    pub source: PathBuf,
    /// Path in the container.
    pub target: PathBuf,
    /// Access through the mount.
    pub access: Access,
    /// Whether later mounts of the node below the source appear in the container.
    pub follow_node: bool,
    /// What happens if the source does not exist.
    pub missing: Missing,
}

/// One step of building a root; paths are those inside the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A directory with these permission bits.
    Directory(PathBuf, u32),
    /// A file with this text.
    File(PathBuf, String),
    /// A symbolic link: path and target.
    Link(PathBuf, PathBuf),
    /// An empty file system in memory with these permission bits.
    Tmpfs(PathBuf, u32),
    /// The `proc` file system of the container's PID namespace.
    Proc(PathBuf),
    /// A file system of pseudo terminals.
    Devpts(PathBuf),
    /// A bind mount of a path of the node.
    Bind(Bind),
    /// Makes the path read-only, if it exists.
    Protect(PathBuf),
    /// Hides the path, if it exists.
    Mask(PathBuf),
}
