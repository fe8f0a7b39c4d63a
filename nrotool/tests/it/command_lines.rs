//! Names, help and wrong usage.

use std::os::unix::fs::symlink;
use std::process::Command;

use rstest::rstest;

use crate::server::run;

const TOOLS: [&str; 10] = [
    "nrt",
    "lsplatform",
    "pfpsyncchk",
    "nrovalidate",
    "catkubeletconfmap",
    "schedlogs",
    "watchnrtattr",
    "mkginkgolabelfilter",
    "inspectfeatures",
    "getdigests",
];

#[test]
fn every_tool_answers_for_help_by_both_of_its_names() {
    let links = tempfile::tempdir().unwrap();
    for tool in TOOLS {
        let ended = run(&[tool, "-h"], "");
        assert_eq!(ended.code, Some(0), "{tool}: {ended:?}");
        assert!(!ended.stdout.is_empty(), "{tool}: {ended:?}");
        let link = links.path().join(tool);
        symlink(env!("CARGO_BIN_EXE_nrotool"), &link).unwrap();
        let linked = Command::new(&link).arg("-h").env_clear().output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&linked.stdout),
            ended.stdout,
            "{tool}"
        );
    }
    let plugin = links.path().join("kubectl-nrt");
    symlink(env!("CARGO_BIN_EXE_nrotool"), &plugin).unwrap();
    let help = Command::new(&plugin)
        .arg("--help")
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&help.stdout),
        run(&["nrt", "--help"], "").stdout
    );
}

#[test]
fn the_program_lists_its_tools_and_refuses_others() {
    let help = run(&["--help"], "");
    assert_eq!(help.code, Some(0));
    for tool in TOOLS {
        assert!(
            help.stdout.contains(&format!("\n  {tool} ")),
            "{tool}: {}",
            help.stdout
        );
    }
    let wrong = run(&["nrt2"], "");
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.stderr.starts_with("there is no tool \"nrt2\"\n"),
        "{wrong:?}"
    );
    assert_eq!(run(&[], "").code, Some(2));
}

/// The rows of the original's table (scenarios-other.md 10.1).
#[rstest]
#[case::several(
    r#"{"active":["foo","bar","foobar"]}"#,
    0,
    "feature: containsAny {foo,bar,foobar}\n"
)]
#[case::no_json(r#"("active"=["foo","bar"])"#, 1, "")]
#[case::none_active(r#"{"supported":["foo"]}"#, 0, "feature: containsAny {}\n")]
#[case::others_beside(
    r#"{"supported":["foo","bar"],"active":["foobar"]}"#,
    0,
    "feature: containsAny {foobar}\n"
)]
#[case::nothing("", 1, "")]
fn topics_become_a_label_filter(#[case] input: &str, #[case] code: i32, #[case] output: &str) {
    let ended = run(&["mkginkgolabelfilter"], input);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(code), output),
        "{ended:?}"
    );
}

#[rstest]
#[case::unknown_flag(&["lsplatform", "--nope"], 2, "flag provided but not defined: -nope")]
#[case::unknown_platform(&["lsplatform", "-is-platform", "Unknown"], 1, "unknown platform \"Unknown\"")]
#[case::no_sources(&["pfpsyncchk", "-from-rte", "x"], 1, "give -must-gather, or both")]
#[case::no_such_file(&["pfpsyncchk", "-from-rte", "/nowhere", "-from-scheduler", "/nowhere"], 2, "/nowhere")]
#[case::unknown_validator(&["nrovalidate", "--what=nrt,x"], 1, "unknown validator: \"x\"")]
#[case::no_duration(&["schedlogs", "--since", "5"], 2, "for flag -since")]
#[case::required(&["getdigests", "--prev-url", "a:v1.2"], 2, "flag -current-url is required")]
#[case::no_stream(&["getdigests", "--prev-url", "a:v1.2", "--current-url", "a:latest"], 1, "no image with a tag vX.Y")]
#[case::no_cluster(&["nrt"], 1, "no cluster is known")]
#[case::no_cluster_to_validate(&["nrovalidate"], 2, "no cluster is known")]
#[case::no_kubeconfig(&["lsplatform", "-kubeconfig=/nowhere"], 1, "cannot read kubeconfig /nowhere")]
fn what_is_wrong_is_said_with_its_exit_code(
    #[case] arguments: &[&str],
    #[case] code: i32,
    #[case] message: &str,
) {
    let ended = run(arguments, "");
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.stderr.contains(message), "{ended:?}");
    assert_eq!(ended.stdout, "", "{ended:?}");
}

#[test]
fn validators_are_listed() {
    let ended = run(&["nrovalidate", "--what", "help"], "");
    assert_eq!(ended.stdout, "k8scfg\nnrt\npodst\nschedcache\n");
}

/// A registry with these tags, in place of skopeo. The digest of an image has its tag in it.
const SKOPEO: &str = r#"#!/bin/sh
case "$1" in
list-tags) echo '{"Repository": "r.io/s", "Tags": ["v4.9", "v4.20", "v4.20.1", "v4.21"]}' ;;
inspect) echo "sha256:$5" | tr -d ':/' | sed 's/sha256docker/sha256:/' ;;
esac
[ "$6$7" = "" ] || [ "$6" = "--authfile" ]
"#;

#[test]
fn digests_are_asked_of_the_registry() {
    use std::os::unix::fs::PermissionsExt as _;
    let files = tempfile::tempdir().unwrap();
    let skopeo = files.path().join("skopeo");
    fs_err::write(&skopeo, SKOPEO).unwrap();
    fs_err::set_permissions(&skopeo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", files.path().display());
    let output = files.path().join("digests.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nrotool"));
    command.env_clear().env("PATH", path).arg("getdigests");
    command.args(["--current-url", "r.io/s:v4.20", "--prev-url", "r.io/s:v4.9"]);
    command
        .args(["--pull-secret", "/pull.json"])
        .arg("--output")
        .arg(&output);
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let expected = "{\n  \"current_channel\": [\n    \"sha256:r.iosv4.20\",\n    \"sha256:r.iosv4.20.1\"\n  ],\n  \
                    \"prev_channel_last\": \"sha256:r.iosv4.9\"\n}\n";
    assert_eq!(fs_err::read_to_string(&output).unwrap(), expected);

    let mut command = Command::new(env!("CARGO_BIN_EXE_nrotool"));
    command
        .env_clear()
        .env("PATH", "/nowhere")
        .arg("getdigests");
    command.args(["--current-url", "r.io/s:v4.20", "--prev-url", "r.io/s:v4.9"]);
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        stderr.contains("cannot start skopeo: it has to be installed"),
        "{stderr}"
    );
}
