//! Which tool runs: the one that the program is called by, or the first argument.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::output::{USAGE_ERROR, complain, print};
use crate::{
    catkubeletconfmap, getdigests, inspectfeatures, lsplatform, mkginkgolabelfilter, nrovalidate,
    nrt, pfpsyncchk, schedlogs, watchnrtattr,
};

/// Name of the program with all tools.
const PROGRAM: &str = "nrotool";
/// What kubectl puts before the names of its plugins.
const PLUGIN_PREFIX: &str = "kubectl-";

/// A tool.
struct Tool {
    /// Name as a subcommand and as a link.
    name: &'static str,
    /// What it is for.
    about: &'static str,
    /// Runs it with the words after its name.
    main: fn(&[String]) -> ExitCode,
}

const fn tool(name: &'static str, about: &'static str, main: fn(&[String]) -> ExitCode) -> Tool {
    Tool { name, about, main }
}

/// The tools; all but the first are those of the original (scenarios-other.md 10.3).
const TOOLS: [Tool; 10] = [
    tool(
        "nrt",
        "draw the zones of each node: what is free, and which pod holds what",
        nrt::main,
    ),
    tool(
        "lsplatform",
        "print the platform of the cluster",
        lsplatform::main,
    ),
    tool(
        "pfpsyncchk",
        "compare the pod fingerprints of exporters and scheduler",
        pfpsyncchk::main,
    ),
    tool(
        "nrovalidate",
        "validate the configuration of the cluster",
        nrovalidate::main,
    ),
    tool(
        "catkubeletconfmap",
        "print the topology manager's settings in a pool's ConfigMap",
        catkubeletconfmap::main,
    ),
    tool(
        "schedlogs",
        "print the log of the scheduler that leads",
        schedlogs::main,
    ),
    tool(
        "watchnrtattr",
        "print the attributes of each NodeResourceTopology that changes",
        watchnrtattr::main,
    ),
    tool(
        "mkginkgolabelfilter",
        "make a label filter of the topics on standard input",
        mkginkgolabelfilter::main,
    ),
    tool(
        "inspectfeatures",
        "print the topics that the operator of the cluster supports",
        inspectfeatures::main,
    ),
    tool(
        "getdigests",
        "print the digests of scheduler images to trust",
        getdigests::main,
    ),
];

/// Runs the program. The first argument is its name.
pub fn main(argv: Vec<OsString>) -> ExitCode {
    let mut words = argv
        .into_iter()
        .map(|word| word.to_string_lossy().into_owned());
    let called_as = words.next().unwrap_or_default();
    let called_as = Path::new(&called_as).file_name().unwrap_or_default();
    let called_as = called_as.to_string_lossy();
    let called_as = called_as.strip_prefix(PLUGIN_PREFIX).unwrap_or(&called_as);
    if let Some(tool) = find(called_as) {
        return (tool.main)(&words.collect::<Vec<_>>());
    }
    let words: Vec<String> = words.collect();
    match words.split_first() {
        Some((name, rest)) => match (find(name), name.as_str()) {
            (Some(tool), _) => (tool.main)(rest),
            (None, "-h" | "--help" | "help") => print(&help()),
            (None, "-V" | "--version" | "version") => {
                print(&format!("{PROGRAM} {}\n", goflags::build_line!()))
            }
            (None, _) => wrong_usage(&format!("there is no tool {name:?}\n\n{}", help())),
        },
        None => wrong_usage(&help()),
    }
}

/// Whether this is a file name by which [`main`] knows what to do: its own, or that of a tool.
pub fn is_name(name: &str) -> bool {
    name == PROGRAM || find(name.strip_prefix(PLUGIN_PREFIX).unwrap_or(name)).is_some()
}

fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

fn help() -> String {
    let width = TOOLS.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
    let rows = TOOLS.iter().map(|tool| {
        let Tool { name, about, .. } = tool;
        format!("  {name:width$}  {about}\n")
    });
    let rows: String = rows.collect();
    format!(
        "Tools for clusters with NUMA-aware scheduling.\n\nUsage: nrotool TOOL [FLAGS]\n\n\
         A link by a tool's name is that tool; as kubectl-nrt it is a plugin of kubectl.\n\nTools:\n{rows}\n\
         nrotool TOOL -h shows the flags of a tool.\n"
    )
}

fn wrong_usage(text: &str) -> ExitCode {
    complain(text);
    ExitCode::from(USAGE_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_tool() {
        let help = help();
        for tool in TOOLS {
            assert!(help.contains(&format!("  {} ", tool.name)), "{}", tool.name);
        }
    }
}
