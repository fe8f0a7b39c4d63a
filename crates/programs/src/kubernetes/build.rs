//! Builds the programs from Go modules.

use std::fmt::Write as _;
use std::path::Path;

use cluster_spec::kubernetes::{ETCD_VERSION, KUBERNETES_VERSION};
use cluster_spec::progress::{Report, Step};

use crate::go::{self, Error, MIN_VERSION, Target};
use crate::path::lock;

/// Modules of the Kubernetes repository that are also published separately as v0.X.
const STAGING: [&str; 29] = [
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "cloud-provider",
    "cluster-bootstrap",
    "code-generator",
    "component-base",
    "component-helpers",
    "controller-manager",
    "cri-api",
    "cri-client",
    "csi-translation-lib",
    "dynamic-resource-allocation",
    "endpointslice",
    "externaljwt",
    "kms",
    "kube-aggregator",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "metrics",
    "mount-utils",
    "pod-security-admission",
    "sample-apiserver",
];

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
    let (etcd, kubernetes): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| *name == "etcd");
    if !kubernetes.is_empty() {
        let step = Step::begin(
            report,
            format!(
                "building {} {KUBERNETES_VERSION} from Go modules (several minutes the first time)",
                kubernetes.join(", ")
            ),
        );
        let work = tempfile::tempdir_in(parent)?;
        fs_err::write(work.path().join("go.mod"), kubernetes_module(&kubernetes))?;
        go::compile(&go, work.path(), Target::Tools, &version_flags(), report)?;
        for name in kubernetes {
            fs_err::rename(work.path().join("out").join(name), cache.join(name))?;
        }
        step.finish();
    }
    if !etcd.is_empty() {
        let step = Step::begin(
            report,
            format!("building etcd {ETCD_VERSION} from Go modules"),
        );
        let work = tempfile::tempdir_in(parent)?;
        fs_err::write(work.path().join("go.mod"), etcd_module())?;
        go::compile(&go, work.path(), Target::Tools, "-s -w", report)?;
        // The program is named after its module.
        fs_err::rename(work.path().join("out/server"), cache.join("etcd"))?;
        step.finish();
    }
    Ok(())
}

/// Returns the version of the staging modules: a Kubernetes `v1.N.M` is published as `v0.N.M` there.
fn staging_version() -> String {
    KUBERNETES_VERSION.replacen("v1.", "v0.", 1)
}

fn kubernetes_module(programs: &[&str]) -> String {
    let staging = staging_version();
    let mut text = format!(
        "module kubernetes-programs\n\ngo {}.{}.0\n\nrequire k8s.io/kubernetes {KUBERNETES_VERSION}\n\nreplace (\n",
        MIN_VERSION.0, MIN_VERSION.1
    );
    for module in STAGING {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\tk8s.io/{module} => k8s.io/{module} {staging}");
    }
    text.push_str(")\n\ntool (\n");
    for program in programs {
        let _ = writeln!(text, "\tk8s.io/kubernetes/cmd/{program}");
    }
    text.push_str(")\n");
    text
}

fn etcd_module() -> String {
    format!(
        "module etcd-program\n\ngo {}.{}.0\n\nrequire go.etcd.io/etcd/server/v3 {ETCD_VERSION}\n\ntool go.etcd.io/etcd/server/v3\n",
        MIN_VERSION.0, MIN_VERSION.1
    )
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
        "-s -w -X {package}.gitVersion={KUBERNETES_VERSION} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_replaces_the_staging_modules_and_names_the_programs() {
        let module = kubernetes_module(&["kubelet"]);
        let (_, minor_and_patch) = KUBERNETES_VERSION.split_once('.').unwrap();
        let staging = format!("k8s.io/client-go => k8s.io/client-go v0.{minor_and_patch}\n");
        assert!(module.contains(&staging));
        assert!(module.contains("\tk8s.io/kubernetes/cmd/kubelet\n"));
        let (minor, _) = minor_and_patch.split_once('.').unwrap();
        assert!(version_flags().contains(&format!("gitMinor={minor}")));
    }
}
