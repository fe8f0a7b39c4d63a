//! Basic mount operations for processes that build the root of a node.

use std::path::{Path, PathBuf};

use cri_runtime::mountinfo;
use nix::mount::{MsFlags, mount};

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

impl Error {
    pub(crate) fn new(
        action: &'static str,
        path: &Path,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

const NONE: Option<&Path> = None;

/// Binds a file or directory over another, including everything mounted below it.
pub(crate) fn bind(source: &Path, target: &Path) -> Result<(), Error> {
    mount(
        Some(source),
        target,
        NONE,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        NONE,
    )
    .map_err(|errno| Error::new("bind", source, errno))
}

/// Binds one file or directory without what is mounted below it.
pub(crate) fn bind_alone(source: &Path, target: &Path) -> Result<(), Error> {
    mount(Some(source), target, NONE, MsFlags::MS_BIND, NONE)
        .map_err(|errno| Error::new("bind", source, errno))
}

/// Mounts a virtual file system of the kernel.
pub(crate) fn mount_kernel(
    kind: &str,
    target: &Path,
    flags: MsFlags,
    data: Option<&str>,
) -> Result<(), Error> {
    mount(Some(kind), target, Some(kind), flags, data)
        .map_err(|errno| Error::new("mount", target, errno))
}

/// Makes every mount at or below a path read-only, keeping its other flags.
pub(crate) fn make_read_only(path: &Path) -> Result<(), Error> {
    let table = fs_err::read_to_string("/proc/self/mountinfo")
        .map_err(|error| Error::new("list mounts below", path, error))?;
    for entry in parse_mountinfo(&table).filter(|entry| entry.point.starts_with(path)) {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | entry.flags;
        mount(NONE, &entry.point, NONE, flags, NONE)
            .map_err(|errno| Error::new("make read-only", &entry.point, errno))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct MountEntry {
    point: PathBuf,
    flags: MsFlags,
}

/// Parses the mount points with those flags that a remount would otherwise drop.
fn parse_mountinfo(table: &str) -> impl Iterator<Item = MountEntry> {
    table.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let point = fields.nth(4)?;
        let flags = mountinfo::flags(fields.next()?);
        Some(MountEntry {
            point: PathBuf::from(unescape(point)),
            flags,
        })
    })
}

/// Undoes the octal escapes (space, tab, newline, backslash) of the mount table.
fn unescape(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find('\\') {
        output.push_str(&rest[..position]);
        let digits = rest.get(position + 1..position + 4);
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            output.push(char::from(byte));
            rest = &rest[position + 4..];
        } else {
            output.push('\\');
            rest = &rest[position + 1..];
        }
    }
    output.push_str(rest);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_yields_points_and_flags() {
        let table = "24 1 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n\
                     25 1 8:1 / /with\\040space rw - ext4 /dev/vda rw\n";
        let entries: Vec<_> = parse_mountinfo(table).collect();
        assert_eq!(entries[0].point, Path::new("/sys"));
        assert_eq!(
            entries[0].flags,
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RELATIME
        );
        assert_eq!(entries[1].point, Path::new("/with space"));
        assert_eq!(entries[1].flags, MsFlags::empty());
    }

    #[test]
    fn incomplete_escapes_stay_as_they_are() {
        assert_eq!(unescape("a\\04"), "a\\04");
        assert_eq!(unescape("a\\134b"), "a\\b");
    }
}
