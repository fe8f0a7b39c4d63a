//! Where containerd, runc and the CNI plugins come from: a given directory, `PATH` and the usual directories, a cache, or Debian's packages.
//!
//! Packages are unpacked into the cache and not installed, see [`debian`]. The registry of images comes from [`registry`].

use std::path::{Path, PathBuf};

use cluster_spec::progress::{Report, Step};
use cluster_spec::runtime::ContainerPrograms;

use crate::path::{cache_dir, find_in, find_program, lock};
use crate::{debian, registry};

/// Debian's packages with the programs.
const PACKAGES: [&str; 3] = ["containerd", "runc", "containernetworking-plugins"];
/// Directories of programs that are not on every user's `PATH`.
const SYSTEM: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];
/// Where systems keep CNI plugins.
const CNI: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];
/// The CNI plugins that a node needs.
const PLUGINS: [&str; 3] = ["ptp", "host-local", "loopback"];
/// What a user can do when programs are missing.
const ADVICE: &str = "install containerd, runc and the CNI plugins ptp, host-local and loopback, or name their directory by --assets";

/// Why the programs are not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They are not here, and no packages of Debian can be had.
    #[error("no {}, and Debian's packages cannot be had; {ADVICE}", missing.join(", "))]
    Package {
        /// Names of the programs.
        missing: Vec<String>,
        /// Why not.
        #[source]
        source: debian::Error,
    },
    /// The packages lack programs.
    #[error("no {} in Debian's packages {}; {ADVICE}", missing.join(", "), PACKAGES.join(", "))]
    Incomplete {
        /// Names of the programs.
        missing: Vec<String>,
    },
    /// There is no registry of images.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// The cache could not be used.
    #[error("cannot use the cache of container programs")]
    Cache(#[from] std::io::Error),
}

/// Locates the programs but kube-proxy, which is one of Kubernetes'. Those that are missing are unpacked from Debian's packages, or built, into the
/// cache, a directory of this user.
///
/// # Errors
/// Returns an error if programs are missing and can neither be had as packages nor built.
pub fn locate(given: Option<&Path>, report: Report<'_>) -> Result<ContainerPrograms, Error> {
    let registry = &registry::locate(given, report)?;
    let cache = &cache_dir().join("containers");
    let missing = match find(given, cache, registry) {
        Ok(programs) => return Ok(programs),
        Err(missing) => missing,
    };
    let step = Step::begin(
        report,
        format!("unpacking {} of Debian", PACKAGES.join(", ")),
    );
    unpack(cache, missing, report)?;
    step.finish();
    find(given, cache, registry).map_err(|missing| Error::Incomplete { missing })
}

/// Returns the programs with this registry, or the names of those that are nowhere.
fn find(
    given: Option<&Path>,
    cache: &Path,
    registry: &Path,
) -> Result<ContainerPrograms, Vec<String>> {
    let mut missing = Vec::new();
    let mut program = |name: &str| {
        let places = [cache.join("usr/bin"), cache.join("usr/sbin")];
        let found = find_in(given.map(Path::to_owned), name)
            .or_else(|| find_program(name))
            .or_else(|| find_in(SYSTEM.map(PathBuf::from), name))
            .or_else(|| find_in(places, name))
            .and_then(|file| file.canonicalize().ok());
        found.unwrap_or_else(|| {
            missing.push(name.to_owned());
            PathBuf::new()
        })
    };
    let (containerd, shim) = (program("containerd"), program("containerd-shim-runc-v2"));
    let runc = program("runc");
    let plugins = given
        .map(Path::to_owned)
        .into_iter()
        .chain(CNI.map(PathBuf::from))
        .chain([cache.join("usr/lib/cni")])
        .find(|dir| {
            PLUGINS
                .iter()
                .all(|plugin| find_in([dir.clone()], plugin).is_some())
        });
    match plugins {
        Some(cni) if missing.is_empty() => Ok(ContainerPrograms {
            containerd,
            shim,
            runc,
            cni,
            kube_proxy: None,
            registry: registry.to_owned(),
        }),
        Some(_) => Err(missing),
        None => {
            missing.extend(PLUGINS.map(|plugin| format!("CNI plugin {plugin}")));
            Err(missing)
        }
    }
}

/// Unpacks the packages into the cache. Another process that does the same waits here and then finds them.
fn unpack(cache: &Path, missing: Vec<String>, report: Report<'_>) -> Result<(), Error> {
    let parent = cache.parent().unwrap_or(cache);
    fs_err::create_dir_all(parent)?;
    let _lock = lock(
        &parent.join("containers.lock"),
        "another process unpacks the container programs; waiting for it",
        report,
    )?;
    if cache.exists() {
        return Ok(());
    }
    let work = tempfile::tempdir_in(parent)?;
    let root = work.path().join("root");
    debian::unpack(&PACKAGES, &root).map_err(|source| Error::Package { missing, source })?;
    fs_err::rename(root, cache)?;
    Ok(())
}
