//! `pfpsyncchk`: compares the pods that scheduler and exporter put into their fingerprints (scenarios-other.md 10.4).
//!
//! `records` reads the dumps, `difference` compares them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::flags::{Given, Usage, switch, text};
use crate::output::{complain, print};

pub(crate) mod difference;
pub(crate) mod records;

/// Exit code of wrong arguments.
const WRONG_ARGUMENTS: u8 = 1;
/// Exit code of dumps that cannot be compared.
const CHECK_ERROR: u8 = 2;
/// Ends of the directories in what must-gather collected.
const SCHEDULER: &str = "pfpstatus/scheduler";
const EXPORTERS: &str = "pfpstatus/resource-topology-exporters";

const USAGE: Usage = Usage {
    name: "pfpsyncchk",
    about: "Compares the pod fingerprints of scheduler and exporters. Exit codes: 0 compared, whether in sync or not; 1 wrong arguments; 2 not comparable.",
    flags: &[
        text(
            "must-gather",
            "",
            "directory that must-gather collected into; wins over the other two",
        ),
        text("from-rte", "", "dump of an exporter"),
        text(
            "from-scheduler",
            "",
            "dump of the scheduler for the same node",
        ),
        switch("full-help", "explain what is compared"),
    ],
    refusal: WRONG_ARGUMENTS,
    failure: CHECK_ERROR,
};

const FULL_HELP: &str = "\
A fingerprint is a short name for the set of pods on a node. The exporter publishes the one of the pods that the kubelet reports, the scheduler
computes the one of the pods that the API server has there. While they differ, the scheduler does not use newer amounts of that node.

Both write the sets that they saw into files below the directory in PFP_STATUS_DUMP, one a node, with up to ten records. must-gather collects
them. Of the scheduler's records those with a difference are looked at (fingerprintExpected is what the exporter published), the newest of each
fingerprint. The exporter's record of the same fingerprint says which pods it saw. The report lists the pods that only one of them has.
";

/// Runs the tool with the words after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    USAGE.run(words, async |given| run(&given))
}

fn run(given: &Given) -> anyhow::Result<ExitCode> {
    if given.is_on("full-help") {
        return Ok(print(FULL_HELP));
    }
    let text = match sources(given) {
        Some(Sources::Gathered(directory)) => gathered(&directory)?,
        Some(Sources::Files {
            exporter,
            scheduler,
        }) => compare(&exporter, &scheduler)?,
        None => {
            let problem = "give -must-gather, or both -from-rte and -from-scheduler";
            return Ok(USAGE.refuse(problem));
        }
    };
    Ok(print(&text))
}

enum Sources {
    Gathered(PathBuf),
    Files {
        exporter: PathBuf,
        scheduler: PathBuf,
    },
}

fn sources(given: &Given) -> Option<Sources> {
    let path = |name| Some(given.text(name)).filter(|text| !text.is_empty());
    if let Some(directory) = path("must-gather") {
        return Some(Sources::Gathered(directory.into()));
    }
    Some(Sources::Files {
        exporter: path("from-rte")?.into(),
        scheduler: path("from-scheduler")?.into(),
    })
}

fn compare(exporter: &Path, scheduler: &Path) -> anyhow::Result<String> {
    let read = |path: &Path| -> anyhow::Result<Vec<records::Record>> {
        let text = fs_err::read_to_string(path)?;
        records::parse(&text).with_context(|| format!("cannot use {}", path.display()))
    };
    let found = difference::find(&read(exporter)?, &read(scheduler)?).with_context(|| {
        format!(
            "cannot compare {} and {}",
            exporter.display(),
            scheduler.display()
        )
    })?;
    Ok(difference::report(&found))
}

/// Compares all nodes of which must-gather found both dumps. A node that cannot be compared does not keep the others from it.
fn gathered(root: &Path) -> anyhow::Result<String> {
    let mut directories = Vec::new();
    find_directories(root, &mut directories)?;
    let ending = |end: &str| -> Vec<&PathBuf> {
        let mut found = directories.iter();
        let found = found.by_ref().filter(|path| path.ends_with(end));
        found.collect()
    };
    let (schedulers, exporters) = (ending(SCHEDULER), ending(EXPORTERS));
    let ([scheduler], [exporter]) = (schedulers.as_slice(), exporters.as_slice()) else {
        complain(&format!(
            "nothing to compare: {} has {} directories {SCHEDULER} and {} directories {EXPORTERS}, not one of each\n",
            root.display(),
            schedulers.len(),
            exporters.len()
        ));
        return Ok(String::new());
    };
    let mut text = String::new();
    let mut failed = Vec::new();
    for node in names(scheduler)? {
        let (of_exporter, of_scheduler) = (exporter.join(&node), scheduler.join(&node));
        if !of_exporter.is_file() {
            complain(&format!("node {node}: no dump of its exporter\n"));
            continue;
        }
        // writing to a string cannot fail
        let _ = writeln!(text, "{}\nProcessing node:  {node}", "*".repeat(90));
        match compare(&of_exporter, &of_scheduler) {
            Ok(report) => text += &report,
            Err(error) => {
                complain(&format!(
                    "node {node}: {}\n",
                    daemon::log::chain(error.as_ref())
                ));
                failed.push(node);
            }
        }
    }
    print(&text);
    anyhow::ensure!(failed.is_empty(), "cannot compare: {}", failed.join(", "));
    Ok(String::new())
}

fn find_directories(root: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs_err::read_dir(root)? {
        let entry = entry?;
        // links are not followed: they may lead in circles
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
            find_directories(&entry.path(), found)?;
        }
    }
    Ok(())
}

/// Returns the names of the files in a directory, sorted. Those with a single record, `<node>.json`, are the same again.
fn names(directory: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs_err::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_file() && Path::new(&name).extension().is_none() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
