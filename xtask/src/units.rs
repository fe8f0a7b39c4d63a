//! Checks that nothing is compiled twice, neither within a build of the workspace nor by the other builds that people start.
//!
//! Cargo compiles a package once for each requested set of features and settings. `crates/features` requests the same set everywhere; this
//! check reports what it misses.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use anyhow::{bail, ensure};
use cargo_metadata::Artifact;

use crate::cargo;

/// The builds behind README's commands.
const BUILDS: [&[&str]; 7] = [
    &["--workspace", "--all-targets"],
    &["-p", "suite"],
    // the programs that the suite builds for its tests (`suite::binaries`)
    &[
        "--bins",
        "-p",
        "operator",
        "-p",
        "rte",
        "-p",
        "scheduler",
        "-p",
        "testbed",
    ],
    // the programs in the images for trials (`cargo xtask image --development`)
    &["-p", "stack"],
    &["-p", "scheduler"],
    &["-p", "cri-runtime", "--bins"],
    // `cargo xtask` itself
    &["-p", "xtask"],
];

/// What the author of a package calls one thing: package, target, and whether it is the target's unit tests.
type Name = (String, String, bool);

/// What distinguishes the compilations of one thing: the files that other compilations read, whose names contain a hash of all settings, and the
/// features.
type Variant = (Vec<String>, Vec<String>);

/// The compilations of each thing, each with the first build that needs it.
#[derive(Default)]
struct Units(BTreeMap<Name, BTreeMap<Variant, String>>);

/// Runs the builds of README's commands and reports what needs more than one compilation.
///
/// Whether a build finds something compiled does not matter: an earlier command may have compiled it as a variant of its own.
///
/// # Errors
/// Returns an error if a build fails, or if anything is compiled twice.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut units = Units::default();
    for build in BUILDS {
        units.add(&cargo::artifacts(build)?, build);
    }
    ensure!(!units.0.is_empty(), "cargo reports nothing that it built");
    let twice = units.twice();
    if twice.is_empty() {
        // a failure is ignored, because there is no other place to report it
        let _ = writeln!(
            std::io::stdout(),
            "{} units, none compiled twice",
            units.0.len()
        );
        return Ok(());
    }
    bail!(
        "compiled twice (add the features to crates/features/Cargo.toml, those of the last lines first):\n  {}",
        twice.join("\n  ")
    )
}

impl Units {
    /// Adds all units of a build, whether it compiled them or found them.
    fn add(&mut self, artifacts: &[Artifact], build: &[&str]) {
        for artifact in artifacts {
            let name = (
                artifact.package_id.repr.clone(),
                format!("{:?} {}", artifact.target.kind, artifact.target.name),
                artifact.profile.test,
            );
            // cargo copies libraries and programs of the packages that it was asked for to names without a hash
            let hashed = artifact
                .filenames
                .iter()
                .filter(|file| matches!(file.extension(), Some("rmeta" | "so")));
            let variant = (
                hashed.map(ToString::to_string).collect(),
                artifact.features.clone(),
            );
            self.0
                .entry(name)
                .or_default()
                .entry(variant)
                .or_insert_with(|| build.join(" "));
        }
    }

    /// Describes what has several variants. What differs in its own features comes last: the others differ because they depend on it.
    fn twice(&self) -> Vec<String> {
        let several = self.0.iter().filter(|(_, variants)| variants.len() > 1);
        let (causes, consequences): (Vec<_>, Vec<_>) = several.partition(|(_, variants)| {
            let features: BTreeSet<&Vec<String>> =
                variants.keys().map(|(_, features)| features).collect();
            features.len() > 1
        });
        consequences
            .into_iter()
            .chain(causes)
            .map(|((package, target, _), variants)| {
                let variants: Vec<String> = variants
                    .iter()
                    .map(|((_, features), build)| {
                        format!("[{}] for `cargo build {build}`", features.join(" "))
                    })
                    .collect();
                format!("{package} {target}: {}", variants.join("; "))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: &[&str] = &["--workspace"];
    const ONE: &[&str] = &["-p", "suite"];

    /// A unit that a build found compiled: whether it compiled it does not matter.
    fn artifact(package: &str, features: &[&str], hash: &str) -> Artifact {
        serde_json::from_value(json!({
            "package_id": package,
            "manifest_path": "/p/Cargo.toml",
            "target": {"name": package, "kind": ["lib"], "crate_types": ["lib"], "src_path": "/p/lib.rs", "edition": "2024"},
            "profile": {"opt_level": "0", "debuginfo": 0, "debug_assertions": true, "overflow_checks": true, "test": false},
            "features": features,
            "filenames": [format!("/t/lib{package}-{hash}.rmeta"), format!("/t/lib{package}.rlib")],
            "executable": null,
            "fresh": true,
        }))
        .expect("a message of cargo")
    }

    #[test]
    fn a_package_with_two_sets_of_features_is_named_with_both_and_their_builds() {
        let mut units = Units::default();
        units.add(
            &[
                artifact("tokio", &["net"], "1"),
                artifact("serde", &[], "1"),
            ],
            ALL,
        );
        units.add(
            &[
                artifact("tokio", &["net", "time"], "2"),
                artifact("serde", &[], "1"),
            ],
            ONE,
        );
        assert_eq!(
            units.twice(),
            [
                "tokio [Lib] tokio: [net] for `cargo build --workspace`; [net time] for `cargo build -p suite`"
            ]
        );
    }

    #[test]
    fn a_package_that_differs_only_below_is_named_before_the_cause() {
        let mut units = Units::default();
        units.add(
            &[artifact("hyper", &[], "1"), artifact("log", &["std"], "1")],
            ALL,
        );
        units.add(
            &[artifact("hyper", &[], "2"), artifact("log", &[], "2")],
            ONE,
        );
        let twice = units.twice();
        assert_eq!(twice.len(), 2);
        assert!(twice[0].starts_with("hyper "), "{twice:?}");
        assert!(twice[1].starts_with("log "), "{twice:?}");
    }

    #[test]
    fn two_variants_within_one_build_are_found() {
        let mut units = Units::default();
        units.add(
            &[artifact("syn", &[], "1"), artifact("syn", &["full"], "2")],
            ALL,
        );
        assert_eq!(units.twice().len(), 1);
    }
}
