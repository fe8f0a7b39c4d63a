//! The three images: what each is called, holds and starts.

use api::names;
use cluster_spec::images;

/// Operator, deployer and tools in one.
const STACK: Program = Program::new("stack", "numaresources-stack");
/// On every node, so it is small in memory, too: most of its resident memory is its code.
const EXPORTER: Program = Program {
    profile: "small",
    ..Program::new("rte", "resource-topology-exporter")
};
const SCHEDULER: Program = Program::new("scheduler", "numaresources-scheduler");
const TESTS: Program = Program::new("suite", "numaresources-tests");
/// What containers of the stack run besides: `cat`, `sleep` and the like, without any part of the tests.
const TOOLS: Program = Program::new("cri-runtime", "numaresources-tools");

/// Paths of what [`STACK`] is beside the operator: deployer and must-gather, the latter also where `oc adm must-gather` starts it,
/// the tools with their plugin of kubectl (scenarios-other.md 10.3), and the proxy of the kubelet's interface.
pub(super) const HELP_DESK: [&str; 15] = [
    "/bin/deployer",
    "/bin/numaresources-must-gather",
    "/usr/bin/gather",
    "/bin/nrotool",
    "/bin/kubectl-nrt",
    "/bin/lsplatform",
    "/bin/pfpsyncchk",
    "/bin/nrovalidate",
    "/bin/catkubeletconfmap",
    "/bin/schedlogs",
    "/bin/watchnrtattr",
    "/bin/mkginkgolabelfilter",
    "/bin/inspectfeatures",
    "/bin/getdigests",
    "/bin/podresources-proxy",
];

/// A program, by cargo's names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) package: &'static str,
    pub(super) name: &'static str,
    /// Profile that it is built with.
    pub(super) profile: &'static str,
}

impl Program {
    const fn new(package: &'static str, name: &'static str) -> Self {
        Self {
            package,
            name,
            profile: "image",
        }
    }
}

/// All programs of all images.
pub(super) const PROGRAMS: [Program; 5] = [STACK, EXPORTER, SCHEDULER, TESTS, TOOLS];

/// Largest size of the programs that every node pulls, in MB of 1024 * 1024 bytes.
const LARGEST_STACK: u64 = 50;
/// Largest size of the programs of the tests' images, in the same unit: all of the above but the tools, and as much again for whole clusters.
const LARGEST_TESTS: u64 = 90;

/// User that the images for clusters run as; manifests set another one where a privilege is needed (operator.md 6.7).
const USER: &str = "65532:65532";

/// One of the images that a build makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Variant {
    /// What runs on a cluster: operator, exporter, scheduler; and what helps there: deployer, must-gather, tools.
    Stack,
    /// The suite with everything that it starts, the stack's programs included; it has no shell.
    Tests,
    /// The same with a shell and basic tools, for CI systems that run a script of their own inside.
    TestsShell,
}

impl Variant {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Stack, Self::Tests, Self::TestsShell];

    /// Returns the last part of its name, which is also the name of its files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Tests => "tests",
            Self::TestsShell => "tests-shell",
        }
    }

    /// Returns its reference in the manifests of a development cluster.
    pub(super) fn reference(self) -> String {
        match self {
            Self::Stack => names::STACK_IMAGE.to_owned(),
            Self::Tests => names::TESTS_IMAGE.to_owned(),
            Self::TestsShell => format!("localhost/numaresources/{}:dev", self.name()),
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Stack => "NUMA resources stack",
            Self::Tests => "NUMA resources tests",
            Self::TestsShell => "NUMA resources tests with a shell",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Stack => {
                "Operator, exporter and scheduler that place pods by NUMA zones, with deployer, must-gather and tools"
            }
            Self::Tests => "Conformance suite for NUMA-aware scheduling, with a cluster of its own",
            Self::TestsShell => {
                "Conformance suite for NUMA-aware scheduling, with a shell for scripts of CI systems"
            }
        }
    }

    /// Returns the licences of what is in it, as an SPDX expression of the parts' main licences; the bill of materials has all of them.
    pub(super) fn licenses(self) -> &'static str {
        match self {
            Self::Stack | Self::Tests => "Apache-2.0",
            Self::TestsShell => "Apache-2.0 AND GPL-2.0-only",
        }
    }

    pub(super) fn has_shell(self) -> bool {
        self == Self::TestsShell
    }

    /// Returns its programs.
    pub(super) fn programs(self) -> &'static [Program] {
        match self {
            Self::Stack => &[STACK, EXPORTER, SCHEDULER, TOOLS],
            Self::Tests | Self::TestsShell => &[STACK, EXPORTER, SCHEDULER, TESTS],
        }
    }

    /// Returns the largest size that its programs may have together, in bytes.
    pub(super) fn largest(self) -> u64 {
        let megabytes = match self {
            Self::Stack => LARGEST_STACK,
            Self::Tests | Self::TestsShell => LARGEST_TESTS,
        };
        megabytes * 1024 * 1024
    }

    /// Returns the names under which a program does something else, or under which others look for it: path and program.
    ///
    /// The small programs are in the tests' own program where that is; the stack has those that are no test's.
    pub(super) fn links(self) -> Vec<(&'static str, &'static str)> {
        let known = images::STACK.into_iter().map(|(path, program)| {
            // a program of its own outside, a name of the larger one in the image
            let is_operator = path == names::OPERATOR_BINARY;
            (path, if is_operator { STACK.name } else { program })
        });
        let mut links: Vec<_> = match self {
            Self::Stack => known
                .filter_map(|(path, program)| match (path, program) {
                    ("/pause" | "/bin/sleep" | "/bin/cat" | "/bin/touch", _) => {
                        Some((path, TOOLS.name))
                    }
                    (_, images::HELPER) => None,
                    other => Some(other),
                })
                .collect(),
            Self::Tests | Self::TestsShell => known
                .map(|(path, program)| match program {
                    images::HELPER => (path, TESTS.name),
                    program => (path, program),
                })
                .chain([
                    ("/bin/numaresources-testbed", TESTS.name),
                    ("/bin/pause", TESTS.name),
                ])
                .collect(),
        };
        links.extend(HELP_DESK.map(|path| (path, STACK.name)));
        links.retain(|(path, program)| path.strip_prefix("/bin/") != Some(program));
        links
    }

    /// Returns the user of containers that name none. The variant with a shell is for CI systems, which write their checkout as root and want
    /// their scripts to be able to.
    pub(super) fn user(self) -> &'static str {
        match self {
            Self::Stack | Self::Tests => USER,
            Self::TestsShell => "0:0",
        }
    }

    /// Returns the program that arguments are passed to. There is none where a CI system starts `sh`, `cat` or `tail` itself.
    pub(super) fn entrypoint(self) -> Option<&'static str> {
        match self {
            Self::Stack => Some(names::OPERATOR_BINARY),
            Self::Tests => Some("/bin/numaresources-tests"),
            Self::TestsShell => None,
        }
    }

    /// Returns the command without arguments.
    pub(super) fn command(self) -> Option<&'static str> {
        self.has_shell().then_some("/bin/sh")
    }

    /// Returns the variables of its containers, as `NAME=value`.
    pub(super) fn environment(self) -> Vec<String> {
        let mut variables = vec![
            "PATH=/bin".to_owned(),
            format!("SSL_CERT_FILE={}", oci_archive::CERTIFICATES),
        ];
        if self.has_shell() {
            variables.push("HOME=/root".to_owned());
        }
        variables
    }
}
