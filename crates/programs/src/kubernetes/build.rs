//! Builds the programs from Go modules. The first build is slow, so it reports progress.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cluster_spec::kubernetes::{ETCD_VERSION, KUBERNETES_VERSION};
use cluster_spec::progress::{Progress, Report, Step};

use super::VERSION_LIMIT;
use crate::child::output_within;
use crate::path::{find_program, lock};

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
/// Oldest Go that builds this Kubernetes.
const MIN_GO_VERSION: (u32, u32) = (1, 25);
/// Number of lines of the compiler's output that an error shows.
const TAIL: usize = 15;

/// Why the programs could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no Go on `PATH`.
    #[error(
        "they can be built, but there is no go on PATH: install Go {}.{} or newer, or put ready programs on PATH, or name \
         their directory by --assets or KUBEBUILDER_ASSETS",
        MIN_GO_VERSION.0,
        MIN_GO_VERSION.1
    )]
    NoGo,
    /// Go is too old.
    #[error("they can be built, but {found} is older than Go {}.{}: install a newer one", MIN_GO_VERSION.0, MIN_GO_VERSION.1)]
    OldGo {
        /// Output of `go version`.
        found: String,
    },
    /// A directory or file could not be used.
    #[error("cannot use the cache")]
    Cache(#[from] std::io::Error),
    /// A command failed.
    #[error("`{command}` failed:\n{tail}")]
    Command {
        /// The command line.
        command: String,
        /// Its last lines.
        tail: String,
    },
}

/// Builds programs into the cache. Other processes that need the same programs wait here and then find them built.
pub fn build(names: &[&str], cache: &Path, report: Report<'_>) -> Result<(), Error> {
    let go = check_go()?;
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
        compile(&go, work.path(), &version_flags(), report)?;
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
        compile(&go, work.path(), "-s -w", report)?;
        // The program is named after its module.
        fs_err::rename(work.path().join("out/server"), cache.join("etcd"))?;
        step.finish();
    }
    Ok(())
}

fn check_go() -> Result<PathBuf, Error> {
    let go = find_program("go").ok_or(Error::NoGo)?;
    let output = output_within(Command::new(&go).arg("version"), VERSION_LIMIT)?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if go_version(&text).is_some_and(|version| version >= MIN_GO_VERSION) {
        Ok(go)
    } else {
        Err(Error::OldGo { found: text })
    }
}

/// Parses major and minor number out of `go version go1.26.8 linux/amd64`.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.split_whitespace().nth(2)?.strip_prefix("go")?;
    let mut parts = numbers.split('.');
    let digits = |part: &str| {
        part.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .ok()
    };
    Some((digits(parts.next()?)?, digits(parts.next()?)?))
}

/// Returns the version of the staging modules: a Kubernetes `v1.N.M` is published as `v0.N.M` there.
fn staging_version() -> String {
    KUBERNETES_VERSION.replacen("v1.", "v0.", 1)
}

fn kubernetes_module(programs: &[&str]) -> String {
    let staging = staging_version();
    let mut text = format!(
        "module kubernetes-programs\n\ngo {}.{}.0\n\nrequire k8s.io/kubernetes {KUBERNETES_VERSION}\n\nreplace (\n",
        MIN_GO_VERSION.0, MIN_GO_VERSION.1
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
        MIN_GO_VERSION.0, MIN_GO_VERSION.1
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

fn compile(go: &Path, work: &Path, linker_flags: &str, report: Report<'_>) -> Result<(), Error> {
    run(go, work, &["mod", "tidy"], report)?;
    let out = work.join("out");
    fs_err::create_dir_all(&out)?;
    let out = out.to_string_lossy().into_owned();
    // -v prints each package when it is compiled, which serves as progress.
    run(
        go,
        work,
        &["build", "-v", "-ldflags", linker_flags, "-o", &out, "tool"],
        report,
    )
}

/// Runs go and reports the lines that it writes as progress, at most a few per second.
fn run(go: &Path, work: &Path, arguments: &[&str], report: Report<'_>) -> Result<(), Error> {
    let mut child = Command::new(go)
        .args(arguments)
        .current_dir(work)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut tail: Vec<String> = Vec::new();
    let mut lines = 0_usize;
    let mut last = std::time::Instant::now();
    if let Some(output) = child.stderr.take() {
        for text in BufReader::new(output).lines().map_while(Result::ok) {
            lines += 1;
            if last.elapsed().as_millis() >= 300 {
                report(Progress::Advanced(format!(
                    "{} {lines}: {text}",
                    arguments.first().unwrap_or(&"go")
                )));
                last = std::time::Instant::now();
            }
            if tail.len() == TAIL {
                tail.remove(0);
            }
            tail.push(text);
        }
    }
    if child.wait()?.success() {
        return Ok(());
    }
    Err(Error::Command {
        command: format!("go {}", arguments.join(" ")),
        tail: tail.join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::release("go version go1.26.8 linux/amd64", Some((1, 26)))]
    #[case::candidate("go version go1.25rc1 linux/amd64", Some((1, 25)))]
    #[case::nonsense("gccgo", None)]
    fn go_versions_are_read(#[case] text: &str, #[case] expected: Option<(u32, u32)>) {
        assert_eq!(go_version(text), expected);
    }

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
