//! The three images: what each is called, holds and starts.

use api::names;
use cluster_spec::images;

/// Operator, exporter, deployer and tools in one, by cargo's names: package and program.
const STACK: Program = ("stack", "numaresources-stack");
const SCHEDULER: Program = ("scheduler", "numaresources-scheduler");
const TESTS: Program = ("suite", "numaresources-tests");
/// What containers of the stack run besides: `cat`, `sleep` and the like, without any part of the tests.
const TOOLS: Program = ("cri-runtime", "numaresources-tools");

/// Paths of what [`STACK`] is beside operator and exporter: deployer and must-gather, the latter also where `oc adm must-gather` starts it,
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

/// A program: cargo's names of its package and of itself.
pub(super) type Program = (&'static str, &'static str);

/// All programs of all images.
pub(super) const PROGRAMS: [Program; 4] = [STACK, SCHEDULER, TESTS, TOOLS];

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
            Self::Stack => &[STACK, SCHEDULER, TOOLS],
            Self::Tests | Self::TestsShell => &[STACK, SCHEDULER, TESTS],
        }
    }

    /// Returns the names under which a program does something else, or under which others look for it: path and program.
    ///
    /// The small programs are in the tests' own program where that is; the stack has those that are no test's.
    pub(super) fn links(self) -> Vec<(&'static str, &'static str)> {
        let known = images::STACK.into_iter().map(|(path, program)| {
            // programs of their own outside, names of the larger one in the image
            let is_in_stack = [names::OPERATOR_BINARY, names::RTE_BINARY].contains(&path);
            (path, if is_in_stack { STACK.1 } else { program })
        });
        let mut links: Vec<_> = match self {
            Self::Stack => known
                .filter_map(|(path, program)| match (path, program) {
                    ("/pause" | "/bin/sleep" | "/bin/cat" | "/bin/touch", _) => {
                        Some((path, TOOLS.1))
                    }
                    (_, images::HELPER) => None,
                    other => Some(other),
                })
                .collect(),
            Self::Tests | Self::TestsShell => known
                .map(|(path, program)| match program {
                    images::HELPER => (path, TESTS.1),
                    program => (path, program),
                })
                .chain([
                    ("/bin/numaresources-testbed", TESTS.1),
                    ("/bin/pause", TESTS.1),
                ])
                .collect(),
        };
        links.extend(HELP_DESK.map(|path| (path, STACK.1)));
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
