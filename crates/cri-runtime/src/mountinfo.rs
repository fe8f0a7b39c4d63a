//! Reads `/proc/self/mountinfo`, the kernel's list of the mounts that a process sees.

use std::path::{Path, PathBuf};

use nix::mount::MsFlags;

/// A mount in the process's mount namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    id: u32,
    parent: u32,
    pub(crate) path: PathBuf,
    pub(crate) flags: MsFlags,
}

/// Parses the list: the mounts in the order of mounting.
pub(crate) fn parse(table: &str) -> Vec<Mount> {
    table.lines().filter_map(parse_mount).collect()
}

/// Parses a line of `/proc/self/mountinfo`: fields 1, 2, 5 and 6.
fn parse_mount(line: &str) -> Option<Mount> {
    let fields: Vec<&str> = line.split(' ').take(6).collect();
    let &[id, parent, _, _, path, options] = fields.as_slice() else {
        return None;
    };
    Some(Mount {
        id: id.parse().ok()?,
        parent: parent.parse().ok()?,
        path: unescape(path).into(),
        flags: flags(options),
    })
}

/// Returns those flags of a mount, by its options there, that a remount drops unless they are given again.
pub fn flags(options: &str) -> MsFlags {
    options
        .split(',')
        .map(|option| match option {
            "nosuid" => MsFlags::MS_NOSUID,
            "nodev" => MsFlags::MS_NODEV,
            "noexec" => MsFlags::MS_NOEXEC,
            "noatime" => MsFlags::MS_NOATIME,
            "nodiratime" => MsFlags::MS_NODIRATIME,
            "relatime" => MsFlags::MS_RELATIME,
            _ => MsFlags::empty(),
        })
        .collect()
}

/// Undoes the kernel's escapes: blanks and backslashes in paths are written as three octal digits.
fn unescape(text: &str) -> String {
    let mut pieces = text.split('\\');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..3).map(|code| u8::from_str_radix(code, 8));
        if let Some(Ok(code)) = code {
            plain.push(char::from(code));
            plain.push_str(&piece[3..]);
        } else {
            plain.push('\\');
            plain.push_str(piece);
        }
    }
    plain
}

/// Returns the topmost mount at `path` and the mounts below it, without those that others cover.
pub(crate) fn tree<'a>(mounts: &'a [Mount], path: &Path) -> Vec<&'a Mount> {
    let mut tree: Vec<&Mount> = mounts
        .iter()
        .rev()
        .find(|mount| mount.path == path)
        .into_iter()
        .collect();
    let mut at = 0;
    while let Some(parent) = tree.get(at).map(|mount| mount.id) {
        tree.extend(mounts.iter().filter(|mount| mount.parent == parent));
        at += 1;
    }
    // Of several mounts on the same path only the topmost is reachable.
    let mut reachable: Vec<&Mount> = Vec::with_capacity(tree.len());
    for mount in tree {
        reachable.retain(|other| other.path != mount.path);
        reachable.push(mount);
    }
    reachable
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none("rw", MsFlags::empty())]
    #[case::some("ro,nosuid,relatime", MsFlags::MS_NOSUID | MsFlags::MS_RELATIME)]
    #[case::all(
        "rw,nosuid,nodev,noexec,noatime,nodiratime,relatime",
        MsFlags::MS_NOSUID
            | MsFlags::MS_NODEV
            | MsFlags::MS_NOEXEC
            | MsFlags::MS_NOATIME
            | MsFlags::MS_NODIRATIME
            | MsFlags::MS_RELATIME
    )]
    fn flags_are_those_that_a_remount_would_drop(#[case] options: &str, #[case] expected: MsFlags) {
        assert_eq!(flags(options), expected);
    }

    #[test]
    fn mount_point_and_flags_are_read() {
        let line = r"36 35 98:0 /mnt1 /mnt\040two rw,nosuid,relatime master:1 - ext3 /dev/root rw";
        let expected = Mount {
            id: 36,
            parent: 35,
            path: "/mnt two".into(),
            flags: MsFlags::MS_NOSUID | MsFlags::MS_RELATIME,
        };
        assert_eq!(parse_mount(line), Some(expected));
    }

    #[test]
    fn covered_mounts_are_not_in_the_tree() {
        let mount = |id, parent, path: &str| Mount {
            id,
            parent,
            path: path.into(),
            flags: MsFlags::empty(),
        };
        let mounts = [
            mount(1, 0, "/sys"),
            mount(2, 1, "/sys/fs/cgroup"),
            mount(3, 2, "/sys/fs/cgroup/cpu"),
            mount(4, 2, "/sys/fs/cgroup"),
            mount(5, 4, "/sys/fs/cgroup/deep"),
        ];
        let ids = |path: &str| {
            let tree = tree(&mounts, Path::new(path));
            tree.iter().map(|mount| mount.id).collect::<Vec<_>>()
        };
        assert_eq!(ids("/sys/fs/cgroup"), [4, 5]);
        assert_eq!(ids("/sys/fs"), [0_u32; 0]);
    }
}
