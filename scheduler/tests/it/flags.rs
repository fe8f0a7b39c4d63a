//! Every flag of kube-scheduler is known (scheduler.md 7.9).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::Command;

use programs::kubernetes::{self, SearchPath};
use scheduler::args::Args;
use testbed::lane::Lane;

/// The flags of kube-scheduler 1.35, each with a value for it, which is not what happens anyway, and whether a warning says that the flag has
/// no effect.
const FLAGS: &[(&str, &str, bool)] = &[
    ("allow-metric-labels", "m,l='v'", true),
    ("allow-metric-labels-manifest", "/f", true),
    ("authentication-kubeconfig", "/f", false),
    ("authentication-skip-lookup", "false", true),
    ("authentication-token-webhook-cache-ttl", "1m0s", false),
    ("authentication-tolerate-lookup-failure", "false", true),
    ("authorization-always-allow-paths", "/a,/b", false),
    ("authorization-kubeconfig", "/f", false),
    ("authorization-webhook-cache-authorized-ttl", "1m", false),
    ("authorization-webhook-cache-unauthorized-ttl", "0s", false),
    ("bind-address", "::1", false),
    ("cert-dir", "/d", true),
    ("client-ca-file", "/f", true),
    ("config", "/f", false),
    ("contention-profiling", "t", true),
    ("disable-http2-serving", "F", true),
    ("disabled-metrics", "a,b", true),
    ("emulated-version", "1.34", true),
    ("feature-gates", "A=true,B=false", true),
    ("http2-max-streams-per-connection", "42", true),
    ("kube-api-burst", "-1", false),
    ("kube-api-content-type", "application/json", true),
    ("kube-api-qps", "-1", false),
    ("kubeconfig", "/f", false),
    ("leader-elect", "0", false),
    ("leader-elect-lease-duration", "1m30s", false),
    ("leader-elect-renew-deadline", "1m", false),
    ("leader-elect-resource-lock", "leases", false),
    ("leader-elect-resource-name", "n", false),
    ("leader-elect-resource-namespace", "n", false),
    ("leader-elect-retry-period", "1s", false),
    ("log-flush-frequency", "1s", true),
    ("log-json-info-buffer-size", "1Ki", true),
    ("log-json-split-stream", "true", true),
    ("log-text-info-buffer-size", "1Ki", true),
    ("log-text-split-stream", "true", true),
    ("logging-format", "json", false),
    ("master", "https://h:1", false),
    ("min-compatibility-version", "1.34", true),
    ("permit-address-sharing", "false", true),
    ("permit-port-sharing", "true", false),
    ("pod-max-in-unschedulable-pods-duration", "1m0s", true),
    ("profiling", "true", true),
    ("requestheader-allowed-names", "a", true),
    ("requestheader-client-ca-file", "/f", true),
    ("requestheader-extra-headers-prefix", "x-", true),
    ("requestheader-group-headers", "g", true),
    ("requestheader-uid-headers", "u", true),
    ("requestheader-username-headers", "u", true),
    ("secure-port", "0", false),
    ("show-hidden-metrics-for-version", "1.34", true),
    ("tls-cert-file", "/f", false),
    ("tls-cipher-suites", "a,b", false),
    ("tls-min-version", "VersionTLS12", false),
    ("tls-private-key-file", "/f", false),
    ("tls-sni-cert-key", "/c,/k:h", false),
    ("v", "4", false),
    ("vmodule", "a=4", true),
    ("write-config-to", "/f", false),
];
/// Flags that end the program at once.
const SHOWING: [&str; 2] = ["help", "version"];

fn read(words: &[&str]) -> Args {
    let words = std::iter::once(&"kube-scheduler").chain(words);
    Args::read(words.map(OsString::from)).unwrap()
}

#[test]
fn every_flag_of_kube_scheduler_is_taken_and_named_if_it_has_no_effect() {
    for (name, value, warned) in FLAGS {
        let together = format!("--{name}={value}");
        let warnings = read(&[&together]).warnings;
        assert_eq!(
            warnings.len(),
            usize::from(*warned),
            "{together}: {warnings:?}"
        );
        assert!(
            warnings.iter().all(|text| text.contains(name)),
            "{warnings:?}"
        );
        // a later value overrides an earlier one, as in kube-scheduler, and one warning is enough
        let twice = read(&[&together, &together]).warnings;
        assert_eq!(twice, warnings, "{together}");
    }
}

#[test]
fn what_happens_anyway_needs_no_warning() {
    for flag in [
        "--profiling=false",
        "--contention-profiling=f",
        "--disable-http2-serving",
        "--permit-address-sharing=1",
        "--authentication-tolerate-lookup-failure",
        "--logtostderr=true",
    ] {
        assert_eq!(read(&[flag]).warnings, Vec::<String>::new(), "{flag}");
    }
}

#[test]
fn flags_are_also_read_with_one_dash_and_with_underscores_and_those_of_klog_as_before_1_26() {
    let args = read(&[
        "-leader_elect=false",
        "--secure_port",
        "0",
        "--alsologtostderr",
        "--log_dir=/x",
    ]);
    assert_eq!((args.leader_elect, args.secure_port), (Some(false), 0));
    assert_eq!(args.warnings.len(), 2, "{:?}", args.warnings);
}

#[test]
fn an_empty_value_is_none() {
    let args = read(&[
        "--config=",
        "--kubeconfig=",
        "--authentication-kubeconfig=",
        "--tls-cert-file",
        "",
        "--client-ca-file=",
        "--master=",
    ]);
    let paths = [args.config, args.kubeconfig, args.authentication_kubeconfig];
    assert_eq!(paths, [None, None, None]);
    assert_eq!((args.tls_cert_file, args.warnings), (None, Vec::new()));
}

/// With a real kube-scheduler: its own help is the judge of the list.
#[test]
fn the_list_is_that_of_a_real_kube_scheduler() {
    let Lane::Local = Lane::from_environment().unwrap() else {
        return;
    };
    let programs = kubernetes::locate(&SearchPath::from_environment(None), &|_| {}).unwrap();
    let output = Command::new(programs.kube_scheduler)
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let real: BTreeSet<&str> = help.lines().filter_map(flag).collect();
    let names = FLAGS.iter().map(|(name, _, _)| *name).chain(SHOWING);
    assert_eq!(real, names.collect());
}

/// Returns the flag that a line of a help text is about.
fn flag(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.split_once(", ") {
        Some((short, rest)) if short.len() == 2 => rest,
        _ => line,
    };
    let name = line.strip_prefix("--")?;
    let end = name.find(|c: char| c != '-' && !c.is_ascii_alphanumeric());
    Some(&name[..end.unwrap_or(name.len())])
}
