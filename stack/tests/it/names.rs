//! Each link starts the program of its name, and any other name the operator.

use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rstest::rstest;
use wait_timeout::ChildExt as _;

const WITHIN: Duration = Duration::from_mins(1);

/// Starts the program by a link of this name. Every answer here is an end of its own; a program that serves instead is stopped.
fn call(name: &str, argument: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join(name);
    symlink(env!("CARGO_BIN_EXE_numaresources-stack"), &link).unwrap();
    let mut child = Command::new(link)
        .env_clear()
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if child.wait_timeout(WITHIN).unwrap().is_none() {
        child.kill().unwrap();
    }
    child.wait_with_output().unwrap()
}

#[rstest]
#[case("numaresources-operator", "numaresources-operator ")]
#[case("numaresources-stack", "numaresources-operator ")]
#[case("numaresources-must-gather", "numaresources-must-gather ")]
#[case("gather", "numaresources-must-gather ")]
#[case("nrotool", "nrotool ")]
fn its_version_is_that_of_the_program_of_the_name(#[case] name: &str, #[case] expected: &str) {
    let output = call(name, "--version");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{name}: {text}");
    assert!(text.starts_with(expected), "{name}: {text}");
}

#[rstest]
#[case("deployer", "Usage: deployer ")]
#[case("podresources-proxy", "Forwards the kubelet's PodResources API")]
#[case("kubectl-nrt", "kubectl nrt")]
#[case("nrt", "kubectl nrt")]
#[case("lsplatform", "-is-platform")]
#[case("pfpsyncchk", "-must-gather")]
#[case("nrovalidate", "-what")]
#[case("catkubeletconfmap", "catkubeletconfmap")]
#[case("schedlogs", "schedlogs")]
#[case("watchnrtattr", "watchnrtattr")]
#[case("mkginkgolabelfilter", "mkginkgolabelfilter")]
#[case("inspectfeatures", "inspectfeatures")]
#[case("getdigests", "getdigests")]
fn its_help_is_that_of_the_program_of_the_name(#[case] name: &str, #[case] expected: &str) {
    let output = call(name, "--help");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(text.contains(expected), "{name}: {text}");
    assert!(
        !text.contains("Usage of numaresources-operator"),
        "{name}: {text}"
    );
}
