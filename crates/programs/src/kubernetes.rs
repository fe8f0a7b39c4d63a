//! Where the Kubernetes programs come from: a given directory, `KUBEBUILDER_ASSETS`, `PATH`, a versioned cache, or a
//! build from Go modules into that cache.

mod build;

use std::path::{Path, PathBuf};
use std::process::Command;

use cluster_spec::kubernetes::{Assets, KUBE_PROXY, KUBERNETES_VERSION, NAMES, TESTS};
use cluster_spec::progress::{Report, note};

use crate::child::output_within;
use crate::go::{self, VERSION_LIMIT};
use crate::path::{cache_dir, find_program};

/// Oldest usable etcd: older ones fail with `Too large resource version` after a while.
const MIN_ETCD_VERSION: (u32, u32) = (3, 5);

/// Why the programs are not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory that the user named is not usable.
    #[error("the directory given by --assets is not usable: {0}")]
    Given(String),
    /// Programs are missing and could not be built.
    #[error("no usable {} for Kubernetes {KUBERNETES_VERSION}", missing.join(", "))]
    Build {
        /// Names of the programs.
        missing: Vec<String>,
        /// Why building failed.
        #[source]
        source: go::Error,
    },
}

/// The directories to search; [`SearchPath::from_environment`] returns the default ones.
#[derive(Clone, Debug, Default)]
pub struct SearchPath {
    /// Directory that the user named: it must contain every program.
    pub given: Option<PathBuf>,
    /// `KUBEBUILDER_ASSETS`: it may contain some of them.
    pub kubebuilder: Option<PathBuf>,
    /// Directory of this Kubernetes version in the cache.
    pub cache: PathBuf,
}

impl SearchPath {
    /// Returns the default directories: the given directory, `KUBEBUILDER_ASSETS` and the user's cache.
    pub fn from_environment(given: Option<PathBuf>) -> Self {
        let set =
            |name| std::env::var_os(name).filter(|value: &std::ffi::OsString| !value.is_empty());
        Self {
            given,
            kubebuilder: set("KUBEBUILDER_ASSETS").map(PathBuf::from),
            cache: cache_dir().join("kubernetes").join(KUBERNETES_VERSION),
        }
    }
}

/// Locates every program, and builds the missing ones.
pub fn locate(search_path: &SearchPath, report: Report<'_>) -> Result<Assets, Error> {
    if let Some(dir) = &search_path.given {
        return in_given_directory(dir);
    }
    let mut found: [Option<PathBuf>; 6] = NAMES.map(|name| find(name, search_path, report));
    let missing: Vec<&str> = NAMES
        .into_iter()
        .zip(&found)
        .filter(|(_, found)| found.is_none())
        .map(|(name, _)| name)
        .collect();
    if !missing.is_empty() {
        // It shares nearly all that is compiled here, and would take a minute later.
        let proxy = missing.iter().any(|name| *name != "etcd");
        let names: Vec<&str> = missing
            .into_iter()
            .chain(proxy.then_some(KUBE_PROXY))
            .collect();
        build(&names, search_path, report)?;
        for (name, found) in NAMES.into_iter().zip(&mut found) {
            found.get_or_insert_with(|| search_path.cache.join(name));
        }
    }
    Ok(Assets::from_paths(found.map(Option::unwrap_or_default)))
}

/// Locates kube-proxy, and builds it where it is missing.
pub fn locate_proxy(search_path: &SearchPath, report: Report<'_>) -> Result<PathBuf, Error> {
    locate_one(KUBE_PROXY, search_path, report)
}

/// Locates the program with Kubernetes' own end-to-end tests, and builds it where it is missing.
pub fn locate_tests(search_path: &SearchPath, report: Report<'_>) -> Result<PathBuf, Error> {
    locate_one(TESTS, search_path, report)
}

/// Locates a program that the given directory may lack, and builds it where it is missing.
fn locate_one(name: &str, search_path: &SearchPath, report: Report<'_>) -> Result<PathBuf, Error> {
    let given = search_path.given.as_ref().map(|dir| dir.join(name));
    if let Some(file) = given.filter(|file| file.is_file()) {
        check_version(name, &file).map_err(Error::Given)?;
        let place = file.canonicalize();
        return place.map_err(|error| Error::Given(format!("{}: {error}", file.display())));
    }
    if let Some(file) = find(name, search_path, report) {
        return Ok(file);
    }
    build(&[name], search_path, report)?;
    Ok(search_path.cache.join(name))
}

/// Builds programs into the cache.
fn build(names: &[&str], search_path: &SearchPath, report: Report<'_>) -> Result<(), Error> {
    build::build(names, &search_path.cache, report).map_err(|source| Error::Build {
        missing: names.iter().map(|name| (*name).to_owned()).collect(),
        source,
    })
}

/// Returns the programs of the `--assets` directory, which must contain all of them in usable versions.
fn in_given_directory(dir: &Path) -> Result<Assets, Error> {
    let dir = dir
        .canonicalize()
        .map_err(|error| Error::Given(format!("{}: {error}", dir.display())))?;
    let problems: Vec<String> = NAMES
        .into_iter()
        .filter_map(|name| {
            let file = dir.join(name);
            if file.is_file() {
                check_version(name, &file).err()
            } else {
                Some(format!("{} does not exist", file.display()))
            }
        })
        .collect();
    if problems.is_empty() {
        Ok(Assets::in_dir(&dir))
    } else {
        Err(Error::Given(problems.join("; ")))
    }
}

/// Locates one program in `KUBEBUILDER_ASSETS`, on `PATH` or in the cache.
fn find(name: &str, search_path: &SearchPath, report: Report<'_>) -> Option<PathBuf> {
    let kubebuilder = search_path
        .kubebuilder
        .as_ref()
        .map(|dir| dir.join(name))
        .filter(|file| file.is_file());
    for file in kubebuilder.into_iter().chain(find_program(name)) {
        match (check_version(name, &file), file.canonicalize()) {
            (Ok(()), Ok(file)) => return Some(file),
            (Ok(()), Err(error)) => note(report, format!("skipped {}: {error}", file.display())),
            (Err(reason), _) => note(report, format!("skipped {reason}")),
        }
    }
    // Only this program writes to the cache, and the directory names the version, so no check is needed.
    Some(search_path.cache.join(name)).filter(|file| file.is_file())
}

/// Checks that a program reports a usable version; the error is a text for people.
fn check_version(name: &str, file: &Path) -> Result<(), String> {
    let arguments: &[&str] = if name == "kubectl" {
        &["version", "--client"]
    } else {
        &["--version"]
    };
    let mut command = Command::new(file);
    command.args(arguments);
    let output = output_within(&mut command, VERSION_LIMIT)
        .map_err(|error| format!("{}: cannot be run: {error}", file.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if name == "etcd" {
        check_etcd_version(&text)
    } else {
        check_kubernetes_version(&text)
    }
    .map_err(|reason| format!("{}: {reason}", file.display()))
}

fn check_kubernetes_version(text: &str) -> Result<(), String> {
    let version = text
        .split_whitespace()
        .find(|word| word.starts_with('v') && word[1..].starts_with(|c: char| c.is_ascii_digit()));
    match version {
        Some(version) if version == KUBERNETES_VERSION => Ok(()),
        Some(version) => Err(format!("is {version}, must be {KUBERNETES_VERSION}")),
        None => Err("does not report its version".to_owned()),
    }
}

fn check_etcd_version(text: &str) -> Result<(), String> {
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("etcd Version:"))
        .map(str::trim)
        .ok_or("does not report its version")?;
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= MIN_ETCD_VERSION => Ok(()),
        _ => Err(format!(
            "is {version}, must be {}.{} or newer",
            MIN_ETCD_VERSION.0, MIN_ETCD_VERSION.1
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rstest::rstest;

    use super::*;

    /// `@` stands for the version that all programs must have.
    #[rstest]
    #[case::right("Kubernetes @\n", None)]
    #[case::client("Client Version: @\nKustomize Version: v5.7.1\n", None)]
    #[case::old("Kubernetes v1.29.0\n", Some("is v1.29.0, must be @"))]
    #[case::template("Kubernetes $Format$\n", Some("does not report its version"))]
    fn kubernetes_programs_must_have_the_one_version(
        #[case] text: &str,
        #[case] problem: Option<&str>,
    ) {
        let with_version = |text: &str| text.replace('@', KUBERNETES_VERSION);
        assert_eq!(
            check_kubernetes_version(&with_version(text)).err(),
            problem.map(with_version)
        );
    }

    #[rstest]
    #[case::built("etcd Version: 3.6.8\nGit SHA: x\n", true)]
    #[case::oldest("etcd Version: 3.5.0\n", true)]
    #[case::debian("etcd Version: 3.4.23\n", false)]
    #[case::nonsense("hello\n", false)]
    fn etcd_must_be_new_enough(#[case] text: &str, #[case] accepted: bool) {
        assert_eq!(check_etcd_version(text).is_ok(), accepted);
    }

    fn program(dir: &Path, name: &str, output: &str) {
        let file = dir.join(name);
        fs_err::write(&file, format!("#!/bin/sh\necho '{output}'\n")).unwrap();
        fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn wrong_version_is_skipped_with_a_note_and_the_cache_taken() {
        let (elsewhere, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in NAMES {
            program(elsewhere.path(), name, "Kubernetes v1.29.0");
            program(cache.path(), name, "unused");
        }
        program(
            elsewhere.path(),
            "kubelet",
            &format!("Kubernetes {KUBERNETES_VERSION}"),
        );
        let search_path = SearchPath {
            given: None,
            kubebuilder: Some(elsewhere.path().to_owned()),
            cache: cache.path().to_owned(),
        };
        let notes = std::sync::Mutex::new(Vec::new());
        let assets = locate(&search_path, &|progress| {
            notes.lock().unwrap().push(progress.to_string());
        })
        .unwrap();
        assert_eq!(
            assets.kubelet,
            elsewhere.path().join("kubelet").canonicalize().unwrap()
        );
        assert_eq!(assets.kube_apiserver, cache.path().join("kube-apiserver"));
        let notes = notes.into_inner().unwrap();
        assert!(
            notes
                .iter()
                .any(|note| note.contains("kube-apiserver: is v1.29.0")),
            "{notes:?}"
        );
    }

    #[test]
    fn proxy_of_the_given_directory_is_taken_and_must_have_the_version() {
        let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        program(cache.path(), KUBE_PROXY, "unused");
        let search_path = SearchPath {
            given: Some(dir.path().to_owned()),
            kubebuilder: None,
            cache: cache.path().to_owned(),
        };
        let from_cache = locate_proxy(&search_path, &|_| {}).unwrap();
        assert_eq!(from_cache, cache.path().join(KUBE_PROXY));
        let right = format!("Kubernetes {KUBERNETES_VERSION}");
        program(dir.path(), KUBE_PROXY, &right);
        let given = locate_proxy(&search_path, &|_| {}).unwrap();
        assert_eq!(given, dir.path().join(KUBE_PROXY).canonicalize().unwrap());
        program(dir.path(), KUBE_PROXY, "Kubernetes v1.2.3");
        let error = locate_proxy(&search_path, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("is v1.2.3"), "{error}");
    }

    #[test]
    fn given_directory_must_have_everything() {
        let dir = tempfile::tempdir().unwrap();
        program(dir.path(), "kubelet", "Kubernetes v1.2.3");
        let search_path = SearchPath {
            given: Some(dir.path().to_owned()),
            ..SearchPath::default()
        };
        let error = locate(&search_path, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("etcd does not exist"), "{error}");
        let wrong = format!("is v1.2.3, must be {KUBERNETES_VERSION}");
        assert!(error.contains(&wrong), "{error}");
    }
}
