//! Restricts where configuration may be read from.
//!
//! The exporter has far-reaching permissions on its node. A user who can change its command line must not be able to make it read, and log,
//! any file of the host. So only listed places are allowed (rte.md 2.4). Unlike upstream, a place covers whole path components: `/etc/rteX`
//! is not within `/etc/rte`.

use std::path::{Component, Path, PathBuf};

const ALLOWED_PATHS: &[&str] = &[
    "/etc/rte",
    "/run/rte",
    "/var/rte",
    "/usr/local/etc/rte",
    "/etc/resource-topology-exporter",
];

/// The path is outside of all allowed places.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to validate configRoot path \"{}\": does not match any allowed pattern", .0.display())]
pub(crate) struct Error(PathBuf);

/// Returns the cleaned path if it is in one of the places. Symbolic links are resolved for the part of the path that exists.
pub(super) fn check(path: &Path, home: Option<&str>, uid: u32) -> Result<PathBuf, Error> {
    let resolved = resolve(&clean(path));
    let own = [
        Some(PathBuf::from(format!("/run/user/{uid}/rte"))),
        home.map(|home| clean(Path::new(home)).join(".rte")),
    ];
    let allowed = ALLOWED_PATHS
        .iter()
        .map(PathBuf::from)
        .chain(own.into_iter().flatten())
        // the path of a place may itself contain a link
        .any(|place| resolved.starts_with(&place) || resolved.starts_with(resolve(&place)));
    if allowed {
        Ok(resolved)
    } else {
        Err(Error(path.to_owned()))
    }
}

/// Removes `.`, `..` and doubled slashes without access to the file system.
fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if cleaned.parent().is_some() => {
                cleaned.pop();
            }
            other => cleaned.push(other),
        }
    }
    cleaned
}

fn resolve(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let Ok(resolved) = ancestor.canonicalize() {
            let rest = path
                .strip_prefix(ancestor)
                .expect("an ancestor is a prefix");
            return if rest.as_os_str().is_empty() {
                resolved
            } else {
                resolved.join(rest)
            };
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::root("/etc/rte", true)]
    #[case::below("/etc/rte/extra/config.yaml", true)]
    #[case::legacy("/etc/resource-topology-exporter/config.yaml", true)]
    #[case::of_the_user("/run/user/1234/rte/x", true)]
    #[case::of_another_user("/run/user/1/rte/x", false)]
    #[case::home("/nowhere/home/.rte/x", true)]
    #[case::longer_name("/etc/rteX/config.yaml", false)]
    #[case::way_out("/etc/rte/../shadow", false)]
    #[case::way_back("/etc/x/../rte/config.yaml", true)]
    #[case::elsewhere("/etc/shadow", false)]
    #[case::relative("etc/rte", false)]
    fn only_the_listed_places_are_allowed(#[case] path: &str, #[case] allowed: bool) {
        let outcome = check(Path::new(path), Some("/nowhere/home"), 1234);
        assert_eq!(outcome.is_ok(), allowed, "{outcome:?}");
    }

    #[test]
    fn link_out_of_a_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        std::fs::create_dir(dir.path().join(".rte")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(".rte/config.yaml")).unwrap();
        let error = check(&dir.path().join(".rte/config.yaml"), Some(home), 0).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("does not match any allowed pattern")
        );
    }
}
