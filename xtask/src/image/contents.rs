//! The contents of the image, by path.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::origin::{self, Origin};
use super::shell::{self, Shell};
use super::variant::Variant;
use super::{elf, make_parent, named};

/// Users by number, for programs that look up their user.
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nnumaresources:x:65532:65532::/tmp:/bin/false\nnobody:x:65534:65534::/tmp:/bin/false\n";
const GROUPS: &str = "root:x:0:\nnumaresources:x:65532:\nnogroup:x:65534:\n";

/// An entry at a path of the image.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// A directory.
    Directory {
        /// Permissions.
        mode: u32,
    },
    /// A file of this machine.
    File {
        /// Its path on this machine.
        source: PathBuf,
        /// Permissions.
        mode: u32,
        /// Size, in bytes.
        size: u64,
    },
    /// A small file.
    Text(String),
    /// A symbolic link.
    Link(String),
}

/// All entries, directories before their contents.
#[derive(Clone, Debug)]
pub(super) struct Contents(pub(super) Vec<(String, Entry)>);

/// Collects the contents of an image with the programs of a directory, and with a shell where it has one.
pub(super) fn of(
    variant: Variant,
    bin_dir: &Path,
    shell: Option<&Shell>,
    origin: &Origin,
) -> anyhow::Result<Contents> {
    let directories = [
        ("bin", 0o755),
        ("etc", 0o755),
        ("etc/ssl", 0o755),
        ("etc/ssl/certs", 0o755),
        ("usr", 0o755),
        ("usr/bin", 0o755),
        ("usr/local", 0o755),
        ("usr/local/share", 0o755),
        // default directory of artifacts, and of the state of embedded clusters
        ("tmp", 0o1777),
    ];
    let mut entries: Vec<(String, Entry)> = directories
        .into_iter()
        .map(|(path, mode)| (path.to_owned(), Entry::Directory { mode }))
        .collect();
    for program in variant.programs() {
        let program = program.name;
        let source = bin_dir.join(program);
        elf::check_static(&source)?;
        entries.push((format!("bin/{program}"), file(source, 0o755)?));
    }
    entries.extend(links(variant));
    if let Some(shell) = shell {
        let program = variant.programs()[0].name;
        ensure!(
            elf::machine(&shell.program)? == elf::machine(&bin_dir.join(program))?,
            "{} is for another processor than {program}: name a BusyBox for it with --busybox",
            shell.program.display()
        );
        add_shell(&mut entries, shell)?;
    }
    entries.push(("etc/passwd".into(), Entry::Text(USERS.to_owned())));
    entries.push(("etc/group".into(), Entry::Text(GROUPS.to_owned())));
    entries.push((origin::PATH.into(), Entry::Text(origin.text())));
    // clusters bring their own authority; this is for servers with publicly trusted certificates
    if let Some(trusted) = oci_archive::trusted_certificates() {
        entries.push((certificates().to_owned(), file(trusted, 0o644)?));
    }
    let contents = Contents(entries);
    contents.check_programs()?;
    Ok(contents)
}

/// Returns the path of the trusted certificates in an image.
pub(super) fn certificates() -> &'static str {
    oci_archive::CERTIFICATES.trim_start_matches('/')
}

/// Returns the links of an image.
fn links(variant: Variant) -> impl Iterator<Item = (String, Entry)> {
    let links = variant.links().into_iter();
    links
        // the shell's own tools take their place
        .filter(move |(path, _)| {
            let name = path.strip_prefix("/bin/").unwrap_or_default();
            !(variant.has_shell() && shell::APPLETS.contains(&name))
        })
        .map(|(path, program)| {
            let path = path.trim_start_matches('/').to_owned();
            (path, Entry::Link(format!("/bin/{program}")))
        })
}

/// Adds the shell with its names, its licence, and a home directory.
fn add_shell(entries: &mut Vec<(String, Entry)>, shell: &Shell) -> anyhow::Result<()> {
    entries.push(("root".into(), Entry::Directory { mode: 0o700 }));
    entries.push((shell::PATH.into(), file(shell.program.clone(), 0o755)?));
    let names = shell::APPLETS.iter();
    entries.extend(names.map(|name| {
        let target = format!("/{}", shell::PATH);
        (format!("bin/{name}"), Entry::Link(target))
    }));
    if let Some(copyright) = &shell.copyright {
        for path in ["usr/share", "usr/share/doc", "usr/share/doc/busybox-static"] {
            entries.push((path.into(), Entry::Directory { mode: 0o755 }));
        }
        entries.push((shell::COPYRIGHT.into(), file(copyright.clone(), 0o644)?));
    }
    Ok(())
}

fn file(source: PathBuf, mode: u32) -> anyhow::Result<Entry> {
    let metadata =
        std::fs::metadata(&source).with_context(|| format!("no file {}", source.display()))?;
    Ok(Entry::File {
        source,
        mode,
        size: metadata.len(),
    })
}

impl Contents {
    /// Checks that every program that an installed object names is there, and that no link leads nowhere.
    ///
    /// A pod whose program is missing never starts, and nothing but a real container runtime would show it.
    fn check_programs(&self) -> anyhow::Result<()> {
        let has = |path: &str| {
            let path = path.trim_start_matches('/');
            self.0.iter().any(|(present, _)| present == path)
        };
        let named = named::programs()?;
        let missing: Vec<&String> = named.iter().filter(|path| !has(path)).collect();
        ensure!(
            missing.is_empty(),
            "the image lacks {missing:?}, which the stack's objects start in its containers"
        );
        for (path, entry) in &self.0 {
            if let Entry::Link(target) = entry {
                ensure!(
                    has(target),
                    "{path} leads to {target}, which is not in the image"
                );
            }
        }
        Ok(())
    }

    /// Returns the size of all files, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.files().map(|(_, size)| size).sum()
    }

    fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().filter_map(|(path, entry)| match entry {
            Entry::File { size, .. } => Some((path.as_str(), *size)),
            Entry::Text(text) => Some((path.as_str(), text.len() as u64)),
            Entry::Directory { .. } | Entry::Link(_) => None,
        })
    }

    /// Writes the contents below a directory that does not exist yet.
    pub(super) fn lay_out(&self, root: &Path) -> anyhow::Result<()> {
        ensure!(!root.exists(), "{} exists already", root.display());
        for (path, entry) in &self.0 {
            let place = root.join(path);
            let put = || -> std::io::Result<()> {
                let permit =
                    |mode| std::fs::set_permissions(&place, std::fs::Permissions::from_mode(mode));
                make_parent(&place)?;
                match entry {
                    Entry::Directory { mode } => {
                        std::fs::create_dir(&place)?;
                        permit(*mode)
                    }
                    Entry::File { source, mode, .. } => {
                        std::fs::copy(source, &place)?;
                        permit(*mode)
                    }
                    Entry::Text(text) => {
                        std::fs::write(&place, text)?;
                        permit(0o644)
                    }
                    Entry::Link(target) => symlink(target, &place),
                }
            };
            put().with_context(|| format!("writing {}", place.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;

    use super::*;

    fn mk_contents(variant: Variant) -> Contents {
        let programs = variant.programs().iter();
        let file = |path: String| {
            let mode = 0o755;
            let source = PathBuf::new();
            (
                path,
                Entry::File {
                    source,
                    mode,
                    size: 0,
                },
            )
        };
        let mut entries: Vec<_> = programs
            .map(|program| file(format!("bin/{}", program.name)))
            .collect();
        if variant.has_shell() {
            let program = PathBuf::from("/dev/null");
            let copyright = None;
            add_shell(&mut entries, &Shell { program, copyright }).unwrap();
        }
        entries.extend(links(variant));
        Contents(entries)
    }

    #[rstest]
    fn every_image_has_what_the_objects_of_the_stack_start_and_no_path_twice(
        #[values(Variant::Stack, Variant::Tests, Variant::TestsShell)] variant: Variant,
    ) {
        let contents = mk_contents(variant);
        contents.check_programs().unwrap();
        let paths: BTreeSet<&String> = contents.0.iter().map(|(path, _)| path).collect();
        assert_eq!(paths.len(), contents.0.len());
    }

    #[rstest]
    fn an_image_without_a_program_that_an_object_names_is_refused(
        #[values(Variant::Stack, Variant::Tests, Variant::TestsShell)] variant: Variant,
    ) {
        for name in named::programs().unwrap() {
            let mut contents = mk_contents(variant);
            contents.0.retain(|(path, _)| format!("/{path}") != name);
            let error = contents.check_programs().unwrap_err().to_string();
            assert!(error.contains(&name), "{name}: {error}");
        }
    }

    #[test]
    fn a_link_to_a_program_that_is_not_there_is_refused() {
        let mut contents = mk_contents(Variant::Stack);
        contents
            .0
            .push(("bin/x".into(), Entry::Link("/bin/none".into())));
        let error = contents.check_programs().unwrap_err().to_string();
        assert!(error.contains("bin/x leads to /bin/none"), "{error}");
    }

    #[test]
    fn only_the_tests_have_programs_of_the_tests_and_only_one_image_has_a_shell() {
        let has = |variant, path: &str| {
            let contents = mk_contents(variant);
            contents.0.iter().any(|(present, _)| present == path)
        };
        for path in [
            "bin/numaresources-tests",
            "bin/numacell",
            "bin/deviceplugin",
        ] {
            assert!(!has(Variant::Stack, path), "{path}");
            assert!(has(Variant::Tests, path) && has(Variant::TestsShell, path));
        }
        for path in ["bin/sh", "bin/tail", "bin/ps"] {
            assert!(!has(Variant::Stack, path) && !has(Variant::Tests, path));
            assert!(has(Variant::TestsShell, path), "{path}");
        }
        for path in [
            "pause",
            "bin/sleep",
            "bin/cat",
            "bin/deployer",
            "usr/bin/gather",
        ] {
            assert!(Variant::ALL.iter().all(|variant| has(*variant, path)));
        }
    }
}
