//! Builds the root of a container in the calling process's own mount namespace.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::step::{Access, Bind, Missing, Step};
use crate::mountinfo::{self, Mount, tree};

/// Size limit of a container's writable layer.
const ROOT_OPTIONS: &str = "mode=0755,size=1g";

/// Why a root could not be built.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct Error {
    /// The failed action.
    action: &'static str,
    /// The path.
    path: PathBuf,
    /// The system's error.
    #[source]
    source: io::Error,
}

/// Adds the action and the path to the error of a system call.
fn at<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Error {
    let path = path.to_owned();
    move |source| Error {
        action,
        path,
        source: source.into(),
    }
}

/// Builds the root at `root` (an existing directory, covered by a tmpfs) and makes it the process's root.
///
/// The calling process must have a mount namespace of its own and only one thread. After an error its view of the file system is undefined,
/// so it should end.
pub fn enter(root: &Path, steps: &[Step], read_only: bool) -> Result<(), Error> {
    const NONE: Option<&str> = None;
    // Mounts from here on must not propagate to the node, but mounts of the node may propagate here.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)
        .map_err(at("keep mounts private below", Path::new("/")))?;
    mount(
        Some("tmpfs"),
        root,
        Some("tmpfs"),
        MsFlags::empty(),
        Some(ROOT_OPTIONS),
    )
    .map_err(at("mount a file system in memory on", root))?;
    for step in steps {
        make(root, step)?;
    }
    chdir(root).map_err(at("change into", root))?;
    pivot_root(".", ".").map_err(at("make the root of", root))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(at("let go of the node's root in", root))?;
    chdir("/").map_err(at("change into", Path::new("/")))?;
    if read_only {
        remount_read_only(Path::new("/"), MsFlags::empty())?;
    }
    Ok(())
}

fn make(root: &Path, step: &Step) -> Result<(), Error> {
    const NONE: Option<&str> = None;
    match step {
        Step::Directory(path, mode) => {
            let path = inside(root, path);
            create_directory(&path)?;
            std::fs::set_permissions(&path, Permissions::from_mode(*mode))
                .map_err(at("set the permissions of", &path))
        }
        Step::File(path, content) => {
            let path = inside(root, path);
            create_parent(&path)?;
            std::fs::write(&path, content).map_err(at("write", &path))
        }
        Step::Link(path, target) => {
            let path = inside(root, path);
            create_parent(&path)?;
            std::os::unix::fs::symlink(target, &path).map_err(at("link", &path))
        }
        Step::Tmpfs(path, mode) => {
            let path = inside(root, path);
            create_directory(&path)?;
            let options = format!("mode={mode:o},size=256m");
            mount(
                Some("tmpfs"),
                &path,
                Some("tmpfs"),
                MsFlags::MS_NOSUID,
                Some(options.as_str()),
            )
            .map_err(at("mount a file system in memory on", &path))
        }
        Step::Proc(path) => {
            let path = inside(root, path);
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            mount(Some("proc"), &path, Some("proc"), flags, NONE)
                .map_err(at("mount the processes on", &path))
        }
        Step::Devpts(path) => {
            let path = inside(root, path);
            create_directory(&path)?;
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
            let options = Some("newinstance,ptmxmode=0666,mode=0620");
            mount(Some("devpts"), &path, Some("devpts"), flags, options)
                .map_err(at("mount the terminals on", &path))
        }
        Step::Bind(bind) => make_bind(root, bind),
        Step::Protect(path) => {
            let path = inside(root, path);
            if !path.exists() {
                return Ok(());
            }
            mount(
                Some(&path),
                &path,
                NONE,
                MsFlags::MS_BIND | MsFlags::MS_REC,
                NONE,
            )
            .map_err(at("mount onto itself", &path))?;
            remount_read_only(&path, mount_flags(&path)?)
        }
        Step::Mask(path) => {
            let path = inside(root, path);
            if path.is_dir() {
                let flags = MsFlags::MS_RDONLY;
                mount(Some("tmpfs"), &path, Some("tmpfs"), flags, Some("size=0"))
                    .map_err(at("hide", &path))
            } else if path.exists() {
                mount(Some("/dev/null"), &path, NONE, MsFlags::MS_BIND, NONE)
                    .map_err(at("hide", &path))
            } else {
                Ok(())
            }
        }
    }
}

fn make_bind(root: &Path, bind: &Bind) -> Result<(), Error> {
    const NONE: Option<&str> = None;
    let source = bind.source.as_path();
    let target = inside(root, &bind.target);
    if !source.exists() {
        match bind.missing {
            Missing::Skip => return Ok(()),
            Missing::Fail => {
                let error = io::Error::from(io::ErrorKind::NotFound);
                return Err(at("mount", source)(error));
            }
            Missing::CreateDirectory => create_directory(source)?,
        }
    }
    if source.is_dir() {
        create_directory(&target)?;
    } else {
        create_file(&target)?;
    }
    mount(
        Some(source),
        &target,
        NONE,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        NONE,
    )
    .map_err(at("mount", source))?;
    let propagation = if bind.follow_node {
        MsFlags::MS_SLAVE
    } else {
        MsFlags::MS_PRIVATE
    };
    mount(NONE, &target, NONE, propagation | MsFlags::MS_REC, NONE)
        .map_err(at("set the propagation of", &target))?;
    match bind.access {
        Access::ReadWrite => Ok(()),
        Access::ReadOnly => remount_read_only(&target, mount_flags(&target)?),
        Access::ReadOnlyRecursive => tree(&mounts()?, &target)
            .into_iter()
            .try_for_each(|mount| remount_read_only(&mount.path, mount.flags)),
    }
}

/// Makes a mount read-only. `flags` are its present flags, because a remount drops those that are not given again.
fn remount_read_only(path: &Path, flags: MsFlags) -> Result<(), Error> {
    const NONE: Option<&str> = None;
    let flags = flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(NONE, path, NONE, flags, NONE).map_err(at("make read-only", path))
}

/// Returns the flags of the topmost mount at `path`; empty if it is not a mount point.
fn mount_flags(path: &Path) -> Result<MsFlags, Error> {
    let mounts = mounts()?;
    let top = mounts.iter().rev().find(|mount| mount.path == path);
    Ok(top.map_or(MsFlags::empty(), |mount| mount.flags))
}

/// Returns every mount of the process's namespace, in the order of mounting.
fn mounts() -> Result<Vec<Mount>, Error> {
    let path = Path::new("/proc/self/mountinfo");
    let text = std::fs::read_to_string(path).map_err(at("read", path))?;
    Ok(mountinfo::parse(&text))
}

/// Returns the place of a container's path while its root is being built. `..` does not lead out of the root.
fn inside(root: &Path, path: &Path) -> PathBuf {
    let mut result = root.to_owned();
    let mut depth = 0;
    for component in path.components() {
        match component {
            Component::Normal(name) => {
                result.push(name);
                depth += 1;
            }
            Component::ParentDir if depth > 0 => {
                result.pop();
                depth -= 1;
            }
            _ => {}
        }
    }
    result
}

fn create_directory(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(at("create the directory", path))
}

fn create_parent(path: &Path) -> Result<(), Error> {
    path.parent().map_or(Ok(()), create_directory)
}

/// Makes sure that a file to mount on exists. A link is replaced, because it would lead the mount out of the root.
fn create_file(path: &Path) -> Result<(), Error> {
    create_parent(path)?;
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => {
            std::fs::remove_file(path).map_err(at("replace the link", path))?;
        }
        Ok(_) => return Ok(()),
        Err(_) => {}
    }
    std::fs::write(path, "").map_err(at("create the file", path))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("/etc/hosts", "/r/etc/hosts")]
    #[case::root("/", "/r")]
    #[case::relative("etc", "/r/etc")]
    #[case::up_inside("/a/../b", "/r/b")]
    #[case::up_and_out("/../../etc", "/r/etc")]
    fn paths_stay_inside_the_root(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(
            inside(Path::new("/r"), Path::new(path)),
            Path::new(expected)
        );
    }
}
