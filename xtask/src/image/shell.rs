//! The shell of the variant for CI systems: BusyBox, linked statically, from this machine or from Debian's package `busybox-static`. It is
//! taken when the image is made; nothing of it is in the repository.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use programs::console::note;
use programs::debian;

use super::elf::is_static;
use crate::cargo;

/// Where the program is in the image, and in Debian's package.
pub(super) const PATH: &str = "bin/busybox";
/// The package.
const PACKAGE: &str = "busybox-static";
/// Its licence, in the image and in the package.
pub(super) const COPYRIGHT: &str = "usr/share/doc/busybox-static/copyright";
/// Names under which it is the shell and the tools that scripts of CI systems use. GitLab starts `sh`, Jenkins `cat`, `sh` and `ps`, GitHub
/// `tail`. It stands for the small programs of ours that have the same names, because scripts want all options.
pub(super) const APPLETS: [&str; 76] = [
    "[",
    "ash",
    "awk",
    "base64",
    "basename",
    "cat",
    "chmod",
    "chown",
    "cmp",
    "cp",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "env",
    "expr",
    "false",
    "find",
    "free",
    "grep",
    "gunzip",
    "gzip",
    "head",
    "hostname",
    "id",
    "kill",
    "less",
    "ln",
    "ls",
    "mkdir",
    "mkfifo",
    "mktemp",
    "more",
    "mv",
    "nproc",
    "od",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "realpath",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "setsid",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "stat",
    "sync",
    "tail",
    "tar",
    "tee",
    "test",
    "time",
    "timeout",
    "top",
    "touch",
    "tr",
    "true",
    "tty",
    "uname",
    "uniq",
    "unzip",
    "vi",
    "wc",
    "wget",
    "which",
    "whoami",
    "xargs",
];

/// The program, and its licence where the package was unpacked or is installed.
#[derive(Clone, Debug)]
pub(super) struct Shell {
    pub(super) program: PathBuf,
    pub(super) copyright: Option<PathBuf>,
}

impl Shell {
    /// Finds the program: the given one, this machine's, or that of the package, which is downloaded for it and installed nowhere.
    pub(super) fn find(given: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(program) = given {
            return Self::of(program, None);
        }
        let installed = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new);
        // the package `busybox` has one that is linked dynamically
        if let Some(program) = installed.into_iter().find(|path| is_static_file(path)) {
            return Self::of(program, Some(Path::new("/").join(COPYRIGHT)));
        }
        let unpacked = cargo::target_dir()?.join("image").join(PACKAGE);
        if !is_static_file(&unpacked.join(PATH)) {
            note(&format!("downloading the package {PACKAGE}"));
            debian::unpack(&[PACKAGE], &unpacked).with_context(|| {
                format!(
                    "there is no static BusyBox, and no package {PACKAGE}: install it, name one with --busybox FILE, or make the other images"
                )
            })?;
        }
        Self::of(&unpacked.join(PATH), Some(unpacked.join(COPYRIGHT)))
    }

    fn of(program: &Path, copyright: Option<PathBuf>) -> anyhow::Result<Self> {
        ensure!(
            is_static_file(program),
            "{} is no statically linked program: name a static BusyBox with --busybox",
            program.display()
        );
        Ok(Self {
            program: program.to_owned(),
            copyright: copyright.filter(|path| path.is_file()),
        })
    }

    /// Returns the version that the program tells of itself.
    pub(super) fn version(&self) -> anyhow::Result<String> {
        let bytes = std::fs::read(&self.program)
            .with_context(|| format!("reading {}", self.program.display()))?;
        version(&bytes).with_context(|| format!("{} is no BusyBox", self.program.display()))
    }
}

/// Finds `BusyBox v1.2.3 (…)` in a program. Debian's own version is the text in parentheses.
fn version(program: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"BusyBox v";
    let mut places = program.windows(MARK.len()).enumerate();
    places.find_map(|(at, window)| {
        let text = program.get(at + MARK.len()..)?;
        let ends = text.iter().position(|byte| !(b' '..=b'~').contains(byte));
        let text = std::str::from_utf8(&text[..ends?]).ok()?;
        let found = window == MARK && text.starts_with(|first: char| first.is_ascii_digit());
        found.then(|| text.to_owned())
    })
}

fn is_static_file(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| is_static(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_what_the_program_says_and_not_a_text_about_it() {
        let program = b"\0see BusyBox vendors\0BusyBox v1.35.0 (Debian 1:1.35.0-4)\0\n";
        assert_eq!(
            version(program).as_deref(),
            Some("1.35.0 (Debian 1:1.35.0-4)")
        );
        assert_eq!(version(b"BusyBox v"), None);
    }
}
