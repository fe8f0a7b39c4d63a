//! The layer check: which package of the workspace may use which (`ARCHITECTURE.md`, "Code map"), and no circles between the modules of a
//! package.
//!
//! Only normal and build dependencies count; tests may use any package.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use cargo_metadata::{DependencyKind, MetadataCommand};

mod circles;

/// What a package may depend on.
struct Rule {
    package: &'static str,
    may_use: &'static [&'static str],
    /// Pure packages have no runtime, no client and no server.
    pure: bool,
}

const fn pure(package: &'static str, may_use: &'static [&'static str]) -> Rule {
    Rule {
        package,
        may_use,
        pure: true,
    }
}

const fn rule(package: &'static str, may_use: &'static [&'static str]) -> Rule {
    Rule {
        package,
        may_use,
        pure: false,
    }
}

/// The table of the code map, lowest layer first. A package that is missing here is a violation.
const RULES: &[Rule] = &[
    pure("topology", &[]),
    pure("goflags", &[]),
    pure("cron-schedule", &["goflags"]),
    pure("api", &[]),
    // the only impure package in its layer: its purpose are interfaces over unix sockets
    rule("podresources", &[]),
    pure("scheduler-config", &["goflags"]),
    pure("reports", &[]),
    pure("nrt", &["api", "topology"]),
    pure("oci-archive", &[]),
    pure("manifests", &["api", "goflags", "scheduler-config"]),
    pure("fixtures", &["api", "topology", "nrt"]),
    rule("cluster-spec", &["fixtures"]),
    pure(
        "kubelet-model",
        &[
            "api",
            "cluster-spec",
            "fixtures",
            "podresources",
            "topology",
        ],
    ),
    rule("features", &[]),
    rule("fuzz", &[]),
    rule("apply", &["api", "manifests"]),
    rule("apiserver", &["api", "cron-schedule", "goflags"]),
    rule("daemon", &[]),
    rule("programs", &["cluster-spec"]),
    rule("cluster-state", &["cluster-spec"]),
    rule(
        "cri-runtime",
        &["cluster-spec", "goflags", "podresources", "programs"],
    ),
    rule("cluster-faults", &["apiserver", "cri-runtime"]),
    rule("openshift", &["api", "cluster-faults", "cluster-spec"]),
    rule(
        "rte",
        &[
            "api",
            "goflags",
            "podresources",
            "topology",
            "nrt",
            "daemon",
        ],
    ),
    rule(
        "scheduler",
        &[
            "api",
            "goflags",
            "topology",
            "nrt",
            "scheduler-config",
            "daemon",
        ],
    ),
    rule(
        "operator",
        &[
            "api",
            "goflags",
            "manifests",
            "scheduler-config",
            "apply",
            "daemon",
        ],
    ),
    // links no product, so that it serves other versions of the stack, too
    rule(
        "nrotool",
        &[
            "api",
            "goflags",
            "topology",
            "nrt",
            "manifests",
            "apply",
            "daemon",
        ],
    ),
    rule(
        "deployer",
        &["api", "goflags", "manifests", "apply", "daemon"],
    ),
    // the program of the image; it only chooses between the entry points of the others
    rule(
        "stack",
        &["cri-runtime", "deployer", "nrotool", "operator", "rte"],
    ),
    rule(
        "sim",
        &[
            "api",
            "apiserver",
            "cluster-faults",
            "cluster-spec",
            "cri-runtime",
            "cron-schedule",
            "fixtures",
            "kubelet-model",
            "openshift",
            "podresources",
            "topology",
        ],
    ),
    rule(
        "local-cluster",
        &[
            "api",
            "cluster-faults",
            "cluster-spec",
            "cluster-state",
            "cri-runtime",
            "fixtures",
            "oci-archive",
            "openshift",
            "programs",
        ],
    ),
    rule(
        "testbed",
        &[
            "api",
            "apiserver",
            "cluster-faults",
            "cluster-spec",
            "cluster-state",
            "cri-runtime",
            "fixtures",
            "local-cluster",
            "openshift",
            "programs",
            "sim",
        ],
    ),
    rule(
        "judges",
        &[
            "api",
            "apiserver",
            "cluster-spec",
            "fixtures",
            "kubelet-model",
            "local-cluster",
            "podresources",
            "programs",
            "testbed",
        ],
    ),
    rule(
        "suite",
        &[
            "testbed",
            // only its TLS verifier, for servers that are known by no authority
            "apiserver",
            "cluster-faults",
            "cluster-spec",
            "cluster-state",
            "cri-runtime",
            "programs",
            "fixtures",
            "goflags",
            "reports",
            "api",
            "scheduler-config",
        ],
    ),
    rule(
        "bench",
        &[
            "api",
            "apiserver",
            "apply",
            "cluster-spec",
            "fixtures",
            "judges",
            "local-cluster",
            "manifests",
            "nrt",
            "podresources",
            "programs",
            "sim",
            "testbed",
        ],
    ),
    rule(
        "chaos",
        &[
            "api",
            "cluster-faults",
            "cri-runtime",
            "programs",
            "reports",
            "sim",
            "suite",
            "testbed",
        ],
    ),
    // starts without compiling a testbed: what needs one is a program of its own
    rule(
        "xtask",
        &[
            "api",
            "cluster-spec",
            "fuzz",
            "manifests",
            "oci-archive",
            "programs",
            // the event log, from which it learns which scenarios failed
            "reports",
        ],
    ),
];

/// A package with dependencies only: every package that is not pure may use it.
const FEATURES: &str = "features";

/// What a pure package must not depend on directly.
const IMPURE: &[&str] = &[
    "tokio",
    "tonic",
    "hyper",
    "hyper-util",
    "axum",
    "tower",
    "nix",
    "fs-err",
];

/// Features of `kube` that include a client.
const CLIENT_FEATURES: &[&str] = &["client", "runtime", "config"];

/// One package as the check sees it.
#[derive(Clone, Debug, Default)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

/// One direct dependency of a package; dev-dependencies are left out.
#[derive(Clone, Debug, Default)]
struct Dependency {
    name: String,
    features: Vec<String>,
}

/// Checks the workspace and prints the violations.
///
/// # Errors
/// Returns an error if `cargo metadata` fails or a rule is violated.
pub(crate) fn run() -> anyhow::Result<()> {
    let metadata = MetadataCommand::new()
        .no_deps()
        .exec()
        .context("reading the workspace with cargo metadata")?;
    let packages: Vec<Package> = metadata
        .packages
        .iter()
        .map(|package| Package {
            name: package.name.to_string(),
            dependencies: package
                .dependencies
                .iter()
                .filter(|dependency| dependency.kind != DependencyKind::Development)
                .map(|dependency| Dependency {
                    name: dependency.name.clone(),
                    features: dependency.features.clone(),
                })
                .collect(),
        })
        .collect();
    let mut violations = check(&packages);
    for package in &metadata.packages {
        let src = package.manifest_path.with_file_name("src");
        violations.extend(circles::find(&package.name, src.as_std_path())?);
    }
    if violations.is_empty() {
        return Ok(());
    }
    bail!(
        "{} layer violation(s):\n  {}",
        violations.len(),
        violations.join("\n  ")
    )
}

/// Returns every violation of [`RULES`] among `packages`, one sentence each.
fn check(packages: &[Package]) -> Vec<String> {
    let rules: BTreeMap<&str, &Rule> = RULES.iter().map(|rule| (rule.package, rule)).collect();
    let mut violations = Vec::new();
    for package in packages {
        let Some(rule) = rules.get(package.name.as_str()) else {
            violations.push(format!(
                "package `{}` is missing in the code map",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let everywhere = name == FEATURES && !rule.pure;
            if rules.contains_key(name) && !rule.may_use.contains(&name) && !everywhere {
                violations.push(format!("`{}` must not use `{name}`", package.name));
            }
            if rule.pure && IMPURE.contains(&name) {
                violations.push(format!(
                    "`{}` is a pure package and must not use `{name}`",
                    package.name
                ));
            }
            if rule.pure && name == "kube" {
                for feature in dependency
                    .features
                    .iter()
                    .filter(|f| CLIENT_FEATURES.contains(&f.as_str()))
                {
                    violations.push(format!(
                        "`{}` is a pure package and must not enable `kube/{feature}`",
                        package.name
                    ));
                }
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, &[&str])]) -> Package {
        Package {
            name: name.to_owned(),
            dependencies: dependencies
                .iter()
                .map(|(name, features)| Dependency {
                    name: (*name).to_owned(),
                    features: features.iter().map(|f| (*f).to_owned()).collect(),
                })
                .collect(),
        }
    }

    #[test]
    fn the_allowed_direction_is_silent() {
        assert!(
            check(&[package(
                "nrt",
                &[("api", &[]), ("topology", &[]), ("thiserror", &[])]
            )])
            .is_empty()
        );
    }

    #[test]
    fn a_product_must_not_link_another_product() {
        assert_eq!(
            check(&[package("scheduler", &[("rte", &[])])]),
            ["`scheduler` must not use `rte`"]
        );
    }

    #[test]
    fn the_testbed_must_not_link_a_product() {
        assert_eq!(
            check(&[package("testbed", &[("operator", &[])])]),
            ["`testbed` must not use `operator`"]
        );
    }

    #[test]
    fn the_operator_must_not_link_another_product() {
        for product in ["rte", "scheduler"] {
            let found = check(&[package("operator", &[(product, &[])])]);
            assert_eq!(found.len(), 1, "{product}: {found:?}");
        }
    }

    #[test]
    fn a_pure_package_must_not_have_a_runtime_or_a_client() {
        let found = check(&[package("nrt", &[("tokio", &[]), ("kube", &["client"])])]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn only_a_pure_package_must_not_ask_for_all_features() {
        assert!(check(&[package("rte", &[("features", &[])])]).is_empty());
        assert_eq!(
            check(&[package("nrt", &[("features", &[])])]),
            ["`nrt` must not use `features`"]
        );
    }

    #[test]
    fn a_new_package_needs_a_place() {
        assert_eq!(
            check(&[package("helpers", &[])]),
            ["package `helpers` is missing in the code map"]
        );
    }
}
