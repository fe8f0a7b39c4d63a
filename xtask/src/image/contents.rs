//! The contents of the image, by path.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use cluster_spec::images;

use super::origin::{self, Origin};
use super::{PROGRAMS, make_parent};

/// The program of the image that holds the small programs; a build tree has them in a program of their own.
const TESTS: &str = "/bin/numaresources-tests";
/// Names of that program beside those that the stack's manifests know.
const MORE_NAMES: [&str; 2] = ["bin/numaresources-testbed", "bin/pause"];

/// Where operating systems keep their trusted certificates.
const TRUSTED: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Users by number, for programs that look up their user.
const USERS: &str = "root:x:0:0:root:/:/bin/false\nnumaresources:x:65532:65532::/tmp:/bin/false\nnobody:x:65534:65534::/tmp:/bin/false\n";
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

/// Collects the contents with the programs of a directory.
pub(super) fn of(bin_dir: &Path, origin: &Origin) -> anyhow::Result<Contents> {
    let directories = [
        ("bin", 0o755),
        ("etc", 0o755),
        ("etc/ssl", 0o755),
        ("etc/ssl/certs", 0o755),
        ("usr", 0o755),
        ("usr/local", 0o755),
        ("usr/local/share", 0o755),
        // default directory of artifacts, and of the state of embedded clusters
        ("tmp", 0o1777),
    ];
    let mut entries: Vec<(String, Entry)> = directories
        .into_iter()
        .map(|(path, mode)| (path.to_owned(), Entry::Directory { mode }))
        .collect();
    for (_, program) in PROGRAMS {
        let source = bin_dir.join(program);
        check_static(&source)?;
        entries.push((format!("bin/{program}"), file(source, 0o755)?));
    }
    entries.extend(links());
    entries.push(("etc/passwd".into(), Entry::Text(USERS.to_owned())));
    entries.push(("etc/group".into(), Entry::Text(GROUPS.to_owned())));
    entries.push((origin::PATH.into(), Entry::Text(origin.text())));
    // clusters bring their own authority; this is for servers with publicly trusted certificates
    if let Some(trusted) = TRUSTED.iter().map(Path::new).find(|path| path.is_file()) {
        let path = "etc/ssl/certs/ca-certificates.crt".to_owned();
        entries.push((path, file(trusted.to_owned(), 0o644)?));
    }
    Ok(Contents(entries))
}

/// Returns the names under which a program does something else, or under which others look for it.
fn links() -> Vec<(String, Entry)> {
    let stack = images::STACK.iter().map(|(path, program)| {
        let target = match *program {
            images::HELPER => TESTS.to_owned(),
            program => format!("/bin/{program}"),
        };
        (path.trim_start_matches('/').to_owned(), target)
    });
    let more = MORE_NAMES.map(|path| (path.to_owned(), TESTS.to_owned()));
    stack
        .chain(more)
        .filter(|(path, target)| path != target.trim_start_matches('/'))
        .map(|(path, target)| (path, Entry::Link(target)))
        .collect()
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

/// Checks that a program needs no dynamic linker, because the image has none.
fn check_static(program: &Path) -> anyhow::Result<()> {
    let bytes =
        std::fs::read(program).with_context(|| format!("no program {}", program.display()))?;
    ensure!(
        is_static(&bytes),
        "{} is not linked statically",
        program.display()
    );
    Ok(())
}

/// Returns whether a 64-bit little-endian ELF file names no interpreter.
fn is_static(elf: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        let number = bytes
            .iter()
            .rev()
            .fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        usize::try_from(number).ok()
    };
    let headers = || -> Option<bool> {
        let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        // all headers must be present, else the file is cut off
        elf.get(start..start.checked_add(count.checked_mul(size)?)?)?;
        let mut types = (0..count).map(|i| number(start + i * size, 4));
        Some(types.all(|kind| kind.is_some_and(|kind| kind != INTERPRETER as usize)))
    };
    elf.starts_with(b"\x7fELF\x02\x01") && headers() == Some(true)
}

impl Contents {
    /// Returns the size of all files, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.files().map(|(_, size)| size).sum()
    }

    /// Returns the files of over 1 MB.
    pub(super) fn largest(&self) -> impl Iterator<Item = (&str, u64)> {
        self.files().filter(|(_, size)| *size > 1024 * 1024)
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

    use api::operator::LogLevel;
    use api::operator::v1::NodeGroup;
    use api::scheduler::v1::{
        CacheResyncDetectionMode, SchedulerInformerMode, ScoringStrategyType,
    };
    use manifests::platform::{Platform, TlsSettings};
    use manifests::{operator, rte, scheduler};
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    fn elf(types: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64, 0);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = types.len() as u8;
        for kind in types {
            let at = bytes.len();
            bytes.resize(at + 56, 0);
            bytes[at] = *kind;
        }
        bytes
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        assert!(is_static(&elf(&[1, 2])));
        assert!(!is_static(&elf(&[1, 3])));
        assert!(!is_static(&elf(&[1])[..70]), "cut off");
        assert!(!is_static(b"#!/bin/sh\n"));
    }

    #[test]
    fn every_link_leads_to_a_program() {
        let links = links();
        assert_eq!(links.len(), 11, "{links:?}");
        for (path, entry) in links {
            let Entry::Link(target) = entry else {
                panic!("{path} is no link");
            };
            let program = target.strip_prefix("/bin/").unwrap();
            assert!(
                PROGRAMS.iter().any(|(_, name)| *name == program),
                "{target}"
            );
        }
    }

    /// Adds the programs that containers, probes and hooks of an object name.
    fn add_programs(object: &Value, programs: &mut BTreeSet<String>) {
        match object {
            Value::Object(fields) => {
                let command = fields.get("command").and_then(|words| words.get(0));
                programs.extend(command.and_then(Value::as_str).map(str::to_owned));
                fields
                    .values()
                    .for_each(|field| add_programs(field, programs));
            }
            Value::Array(items) => items.iter().for_each(|item| add_programs(item, programs)),
            _ => {}
        }
    }

    fn exporters(platform: Platform) -> Vec<Value> {
        let options = rte::Options {
            namespace: "ns".into(),
            platform,
            image: rte::Image {
                reference: "image".into(),
                pull_policy: None,
                run_as_root: true,
            },
            log_level: LogLevel::Normal,
            tls: TlsSettings::intermediate(),
            api_server_ports: vec![6443],
        };
        let pool = rte::Pool {
            name: "pool".into(),
            nodes: rte::NodeSelection::NotControlPlane,
            config: NodeGroup::default().normalized_config(),
            config_hash: String::new(),
            custom_selinux_policy: false,
        };
        rte::Set::new(&options, &[pool]).objects()
    }

    fn scheduler(platform: Platform) -> Vec<Value> {
        let options = scheduler::Options {
            namespace: "ns".into(),
            platform,
            image: "image".into(),
            replicas: 1,
            log_level: LogLevel::Normal,
            tls: TlsSettings::intermediate(),
            dump_cache: true,
            guaranteed: false,
            api_server_ports: vec![6443],
            config: scheduler::config::Settings {
                namespace: "ns".into(),
                profile: None,
                cache_resync_seconds: 0,
                detection: CacheResyncDetectionMode::Relaxed,
                informer: SchedulerInformerMode::Dedicated,
                scoring: ScoringStrategyType::LeastAllocated,
                resources: Vec::new(),
                preemption: false,
                leader_elect: true,
            },
        };
        scheduler::Set::new(&options).unwrap().objects()
    }

    #[rstest]
    #[case::kubernetes(Platform::Kubernetes)]
    #[case::openshift(Platform::OpenShift)]
    #[case::hypershift(Platform::HyperShift)]
    fn every_program_that_an_installed_object_names_is_in_the_image(#[case] platform: Platform) {
        let operator = operator::Set::new(&operator::Options {
            platform,
            ..operator::Options::default()
        });
        let objects = [operator.objects(), exporters(platform), scheduler(platform)];
        let mut named = BTreeSet::new();
        for object in objects.iter().flatten() {
            add_programs(object, &mut named);
        }
        let programs = PROGRAMS
            .iter()
            .map(|(_, program)| format!("/bin/{program}"));
        let present: BTreeSet<String> = links()
            .into_iter()
            .map(|(path, _)| format!("/{path}"))
            .chain(programs)
            .collect();
        let missing: Vec<&String> = named.difference(&present).collect();
        assert!(missing.is_empty(), "{missing:?} of {named:?}");
        assert!(named.len() >= 4, "{named:?}");
    }
}
