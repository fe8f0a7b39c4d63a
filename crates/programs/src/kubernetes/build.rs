//! Builds the programs from Go modules.

use std::path::Path;

use cluster_spec::kubernetes::{ETCD_VERSION, KUBERNETES_VERSION, TESTS};
use cluster_spec::progress::{Report, Step};

use crate::go::{self, Error, Module};
use crate::path::lock;

/// All programs of Kubernetes. The modules that are also published separately as v0.X have the same version.
const KUBERNETES: Module = Module {
    requirements: include_str!("../../modules/kubernetes/go.mod"),
    sums: include_str!("../../modules/kubernetes/go.sum"),
    main: None,
};
const ETCD: Module = Module {
    requirements: include_str!("../../modules/etcd/go.mod"),
    sums: include_str!("../../modules/etcd/go.sum"),
    main: None,
};
/// The package of etcd's program.
const ETCD_PACKAGE: &str = "go.etcd.io/etcd/server/v3";

/// The package of Kubernetes' end-to-end tests.
const TESTS_PACKAGE: &str = "k8s.io/kubernetes/test/e2e";

/// Builds programs into the cache. Other processes that need the same programs wait here and then find them built.
pub(super) fn build(names: &[&str], cache: &Path, report: Report<'_>) -> Result<(), Error> {
    let go = go::find()?;
    let parent = cache.parent().unwrap_or(cache);
    fs_err::create_dir_all(cache)?;
    let _lock = lock(
        &parent.join("lock"),
        "another process builds Kubernetes; waiting for it",
        report,
    )?;
    let missing = |name: &&str| !cache.join(name).is_file();
    let names: Vec<&str> = names.iter().copied().filter(missing).collect();
    let (etcd, names): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| *name == "etcd");
    let (tests, kubernetes): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| *name == TESTS);
    if !kubernetes.is_empty() {
        let step = Step::begin(
            report,
            format!(
                "building {} {KUBERNETES_VERSION} from Go modules (several minutes the first time)",
                kubernetes.join(", ")
            ),
        );
        let work = tempfile::tempdir_in(parent)?;
        let packages: Vec<String> = kubernetes.iter().copied().map(package).collect();
        let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
        let flags = version_flags();
        go::compile(&go, work.path(), KUBERNETES, &packages, &flags, report)?;
        for name in kubernetes {
            fs_err::rename(work.path().join("out").join(name), cache.join(name))?;
        }
        step.finish();
    }
    if !tests.is_empty() {
        let step = Step::begin(
            report,
            format!(
                "building Kubernetes' own tests {KUBERNETES_VERSION} from Go modules (several minutes)"
            ),
        );
        let work = tempfile::tempdir_in(parent)?;
        let flags = version_flags();
        go::compile_tests(
            &go,
            work.path(),
            KUBERNETES,
            TESTS_PACKAGE,
            TESTS,
            &flags,
            report,
        )?;
        fs_err::rename(work.path().join("out").join(TESTS), cache.join(TESTS))?;
        step.finish();
    }
    if !etcd.is_empty() {
        let step = Step::begin(
            report,
            format!("building etcd {ETCD_VERSION} from Go modules"),
        );
        let work = tempfile::tempdir_in(parent)?;
        go::compile(&go, work.path(), ETCD, &[ETCD_PACKAGE], "", report)?;
        // The program is named after its module.
        fs_err::rename(work.path().join("out/server"), cache.join("etcd"))?;
        step.finish();
    }
    Ok(())
}

/// Returns the package of one of Kubernetes' programs.
fn package(program: &str) -> String {
    format!("k8s.io/kubernetes/cmd/{program}")
}

/// Returns linker flags that set the version. Without them the server reports a template that clients cannot parse.
fn version_flags() -> String {
    let package = "k8s.io/component-base/version";
    let numbers: Vec<&str> = KUBERNETES_VERSION
        .trim_start_matches('v')
        .split('.')
        .collect();
    let (major, minor) = (
        numbers.first().copied().unwrap_or_default(),
        numbers.get(1).copied().unwrap_or_default(),
    );
    format!(
        "-X {package}.gitVersion={KUBERNETES_VERSION} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    )
}

#[cfg(test)]
mod tests {
    use cluster_spec::kubernetes::{KUBE_PROXY, NAMES};

    use super::*;

    #[test]
    fn modules_have_the_versions_that_the_programs_are_asked_for_in() {
        assert!(ETCD.requires(ETCD_PACKAGE, ETCD_VERSION));
        assert!(KUBERNETES.requires("k8s.io/kubernetes", KUBERNETES_VERSION));
        let staging = KUBERNETES_VERSION.replacen("v1.", "v0.", 1);
        let replaced: Vec<&str> = KUBERNETES
            .requirements
            .lines()
            .filter(|line| line.contains("=>"))
            .collect();
        assert!(replaced.len() > 20, "{replaced:?}");
        for line in replaced {
            assert!(line.ends_with(&format!(" {staging}")), "{line}");
        }
        let programs = NAMES.into_iter().filter(|name| *name != "etcd");
        for program in programs.chain([KUBE_PROXY]) {
            let line = format!("{}\n", package(program));
            assert!(KUBERNETES.requirements.contains(&line), "{program}");
        }
        let line = format!("{TESTS_PACKAGE}\n");
        assert!(KUBERNETES.requirements.contains(&line), "{TESTS_PACKAGE}");
    }

    #[test]
    fn programs_tell_the_version_that_they_are_of() {
        let (_, minor_and_patch) = KUBERNETES_VERSION.split_once('.').unwrap();
        let (minor, _) = minor_and_patch.split_once('.').unwrap();
        assert!(version_flags().contains(&format!("gitMinor={minor}")));
    }
}
