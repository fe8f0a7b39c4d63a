//! Checks that nothing is compiled twice, neither within a build of the workspace nor by the other builds that people start.
//!
//! Cargo compiles a package once for each requested set of features and settings. `crates/features` requests the same set everywhere; this
//! check reports what it misses.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{bail, ensure};
use cargo_metadata::Artifact;

use crate::cargo;

/// The builds behind README's commands, in the order in which they run. The later ones must find what the first one compiles.
const BUILDS: [&[&str]; 6] = [
    &["--workspace", "--all-targets"],
    &["-p", "suite"],
    // the programs that the suite builds for its tests (`suite::binaries`)
    &[
        "--bins",
        "-p",
        "operator",
        "-p",
        "scheduler",
        "-p",
        "testbed",
    ],
    // the programs in the image for trials (`cargo xtask image --development`)
    &["-p", "operator"],
    &["-p", "scheduler"],
    &["-p", "xtask"],
];

/// Runs the builds of README's commands and reports what was compiled more than once.
///
/// # Errors
/// Returns an error if a build fails, or if anything was compiled twice.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut twice = Vec::new();
    let mut count = 0;
    for (number, build) in BUILDS.iter().enumerate() {
        let artifacts = cargo::artifacts(build)?;
        twice.extend(variants(&artifacts));
        if number == 0 {
            count = artifacts.len();
        } else {
            twice.extend(recompiled(&artifacts, build));
        }
    }
    ensure!(count > 0, "cargo reports nothing that it built");
    if twice.is_empty() {
        // a failure is ignored, because there is no other place to report it
        let _ = writeln!(std::io::stdout(), "{count} units, none compiled twice");
        return Ok(());
    }
    bail!(
        "compiled twice (add the features to crates/features/Cargo.toml):\n  {}",
        twice.join("\n  ")
    )
}

/// Returns the identity of a unit for its author: a library and its unit tests are two.
fn name(artifact: &Artifact) -> (String, String, bool) {
    (
        artifact.package_id.repr.clone(),
        format!("{:?} {}", artifact.target.kind, artifact.target.name),
        artifact.profile.test,
    )
}

/// Returns the units that one build has in several variants.
fn variants(artifacts: &[Artifact]) -> Vec<String> {
    let mut units: BTreeMap<_, Vec<&Artifact>> = BTreeMap::new();
    for artifact in artifacts {
        units.entry(name(artifact)).or_default().push(artifact);
    }
    units
        .into_iter()
        .filter(|(_, variants)| variants.len() > 1)
        .map(|((package, target, _), variants)| {
            let variants: Vec<String> = variants
                .iter()
                .map(|artifact| {
                    format!(
                        "opt-level {} [{}]",
                        artifact.profile.opt_level,
                        artifact.features.join(" ")
                    )
                })
                .collect();
            format!("{package} {target}: {}", variants.join("; "))
        })
        .collect()
}

/// Returns the units that a later build compiled although an earlier one had them.
fn recompiled(artifacts: &[Artifact], build: &[&str]) -> Vec<String> {
    artifacts
        .iter()
        .filter(|artifact| !artifact.fresh)
        .map(|artifact| {
            format!(
                "{} {:?} for `cargo build {}`: [{}]",
                artifact.package_id.repr,
                artifact.target.kind,
                build.join(" "),
                artifact.features.join(" ")
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifact(package: &str, features: &[&str], fresh: bool) -> Artifact {
        serde_json::from_value(json!({
            "package_id": package,
            "manifest_path": "/p/Cargo.toml",
            "target": {"name": package, "kind": ["lib"], "crate_types": ["lib"], "src_path": "/p/lib.rs", "edition": "2024"},
            "profile": {"opt_level": "0", "debuginfo": 0, "debug_assertions": true, "overflow_checks": true, "test": false},
            "features": features,
            "filenames": [],
            "executable": null,
            "fresh": fresh,
        }))
        .expect("a message of cargo")
    }

    #[test]
    fn a_package_with_two_sets_of_features_is_named_with_both() {
        let artifacts = [
            artifact("tokio", &["net"], true),
            artifact("serde", &[], true),
            artifact("tokio", &["net", "time"], true),
        ];
        let found = variants(&artifacts);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("tokio ") && found[0].contains("[net]; opt-level 0 [net time]"),
            "{found:?}"
        );
    }

    #[test]
    fn what_a_later_build_compiles_is_named_with_the_build() {
        let artifacts = [
            artifact("tokio", &["net"], false),
            artifact("serde", &[], true),
        ];
        let found = recompiled(&artifacts, &["-p", "suite"]);
        assert_eq!(
            found,
            ["tokio [Lib] for `cargo build -p suite`: [net]".to_owned()]
        );
    }
}
