//! Where the reports of runs are, and which of them are kept.
//!
//! ```text
//! artifacts/nrop/e2e-serial-run.xml   JUnit of the latest run
//!                events.jsonl         link to the event log of the latest run
//!                runs/latest          link to the folder of the latest run
//!                runs/<run>/          everything of one run: event log, JUnit, what was collected from failures
//! ```

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use reports::changes::OpenChanges;
use reports::junit::{self, Junit};
use reports::log::{self, Writer};
use thiserror::Error;

/// Name of the `JUnit` suite and stem of its file, the same as in the original's runner.
pub const SUITE: &str = "e2e-serial-run";
const EVENTS: &str = "events.jsonl";
const RUNS: &str = "runs";
const LATEST: &str = "latest";
/// How many runs are kept at least; older ones are deleted.
const KEPT_RUNS: usize = 20;

/// Why the reports of a run cannot be opened.
#[derive(Debug, Error)]
pub enum Error {
    /// The event log.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The `JUnit` report.
    #[error(transparent)]
    Junit(#[from] junit::Error),
    /// The links to the latest run.
    #[error("cannot link {link} to the latest run")]
    Link {
        /// The link.
        link: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Where the reports of a run are written.
#[derive(Clone, Debug)]
pub struct ReportPaths {
    /// Directory of what belongs to this run alone.
    pub artifacts: PathBuf,
    /// The `JUnit` file.
    pub report: PathBuf,
    /// Directory of all runs' reports.
    all: PathBuf,
}

impl ReportPaths {
    /// Places everything below an artefacts directory, as the original's runner does. `report` names another report file.
    pub fn new(artifacts: &Path, report: Option<PathBuf>, run: &str) -> Self {
        let all = artifacts.join("nrop");
        Self {
            artifacts: all.join(RUNS).join(run),
            report: report.unwrap_or_else(|| all.join(format!("{SUITE}.xml"))),
            all,
        }
    }

    /// Returns the path of the event log.
    pub fn events(&self) -> PathBuf {
        self.artifacts.join(EVENTS)
    }

    /// Returns the path of the event log by which it can be found while no other run begins.
    pub fn latest_events(&self) -> PathBuf {
        self.all.join(EVENTS)
    }

    /// Opens the reports of a run that begins, and deletes those of runs of long ago. Nothing of another run that may be needed is touched.
    pub fn open(&self) -> Result<(Writer, [Junit; 2]), Error> {
        // the only one that the user names, so the one that may be wrong
        let report = Junit::create(&self.report, SUITE)?;
        let log = Writer::create(&self.events())?;
        let own = Junit::create(&self.artifacts.join(format!("{SUITE}.xml")), SUITE)?;
        if let Some(run) = self.artifacts.file_name().map(Path::new) {
            let runs = self.all.join(RUNS);
            link(run, &runs.join(LATEST))?;
            link(
                &Path::new(RUNS).join(run).join(EVENTS),
                &self.latest_events(),
            )?;
            delete_old(&runs);
        }
        Ok((log, [report, own]))
    }
}

/// Makes a link in place of one that may be there. A file there is the log of a run of another version: it is moved aside.
fn link(target: &Path, link: &Path) -> Result<(), Error> {
    let failed = |source| Error::Link {
        link: link.to_owned(),
        source,
    };
    if link.is_file() && !link.is_symlink() {
        std::fs::rename(link, link.with_extension("former.jsonl")).map_err(failed)?;
    }
    let draft = link.with_extension(format!("{}.part", std::process::id()));
    std::os::unix::fs::symlink(target, &draft)
        .and_then(|()| std::fs::rename(&draft, link))
        .map_err(failed)
}

/// Returns the event log of a run by its identity.
pub fn events_of(artifacts: &Path, run: &str) -> PathBuf {
    ReportPaths::new(artifacts, None, run).events()
}

/// Returns the event logs of all runs, latest first.
pub fn all_events(artifacts: &Path) -> std::io::Result<Vec<PathBuf>> {
    all_in(&artifacts.join("nrop").join(RUNS))
}

fn all_in(runs: &Path) -> std::io::Result<Vec<PathBuf>> {
    let folders = std::fs::read_dir(runs)?.flatten();
    let logs = folders.filter(|folder| folder.file_type().is_ok_and(|kind| kind.is_dir()));
    let logs = logs.map(|folder| folder.path().join(EVENTS));
    let mut logs: Vec<(SystemTime, PathBuf)> = logs
        .filter_map(|log| Some((log.metadata().ok()?.modified().ok()?, log)))
        .collect();
    logs.sort();
    Ok(logs.into_iter().rev().map(|(_, log)| log).collect())
}

/// Returns what a run has changed on a given cluster and not undone, by its event log.
pub fn open_changes(events: &Path) -> Result<OpenChanges, log::Error> {
    let mut open = OpenChanges::default();
    log::replay(&log::read(events)?.records, &mut open);
    Ok(open)
}

/// Deletes the folders of runs of long ago, but none of a run that is not over, whose changes are not undone, or whose log cannot be read.
fn delete_old(runs: &Path) {
    for events in all_in(runs).unwrap_or_default().iter().skip(KEPT_RUNS) {
        let is_needed =
            log::is_in_use(events) || open_changes(events).map_or(true, |open| open.need_cleanup());
        if !is_needed && let Some(folder) = events.parent() {
            // what cannot be deleted only takes room; the next run tries again
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use reports::event::Event;
    use reports::stream::Stream;

    use super::*;

    /// Opens the reports of a run and writes these events.
    fn run(artifacts: &Path, run: &str, events: Vec<Event>) -> Stream {
        let paths = ReportPaths::new(artifacts, None, run);
        let (log, [first, second]) = paths.open().expect("the directory is writable");
        let stream = Stream::new(vec![Box::new(log), Box::new(first), Box::new(second)]);
        stream.emit(Event::RunStarted {
            run: run.to_owned(),
            version: String::new(),
            plan: Vec::new(),
            facts: std::collections::BTreeMap::new(),
        });
        for event in events {
            stream.emit(event);
        }
        assert_eq!(stream.failures(), Vec::<String>::new());
        stream
    }

    fn left_behind() -> Vec<Event> {
        vec![
            Event::ClusterClaimed {
                unit: "setup".to_owned(),
                cluster: "c".to_owned(),
                kubeconfig: Vec::new(),
            },
            Event::ChangePlanned {
                unit: "setup".to_owned(),
                change: 1,
                what: "x".to_owned(),
                undo: serde_json::Value::Null,
            },
        ]
    }

    fn folders(artifacts: &Path) -> Vec<String> {
        let folders = std::fs::read_dir(artifacts.join("nrop/runs")).expect("folder of runs");
        let mut names: Vec<_> = folders
            .map(|folder| {
                folder
                    .expect("entry")
                    .file_name()
                    .into_string()
                    .expect("name")
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn each_run_has_a_folder_and_the_documented_places_lead_to_the_latest() {
        let dir = tempfile::tempdir().expect("temporary directory");
        drop(run(dir.path(), "a", Vec::new()));
        drop(run(dir.path(), "b", Vec::new()));
        assert_eq!(folders(dir.path()), ["a", "b", "latest"]);
        let read = |path: &str| std::fs::read(dir.path().join("nrop").join(path)).expect("file");
        assert_eq!(read("events.jsonl"), read("runs/b/events.jsonl"));
        assert_eq!(read("events.jsonl"), read("runs/latest/events.jsonl"));
        assert_eq!(
            read("e2e-serial-run.xml"),
            read("runs/b/e2e-serial-run.xml")
        );
        assert_ne!(read("events.jsonl"), read("runs/a/events.jsonl"));
    }

    #[test]
    fn old_runs_are_deleted_but_none_that_left_something_or_is_not_over() {
        let dir = tempfile::tempdir().expect("temporary directory");
        drop(run(dir.path(), "left", left_behind()));
        let running = run(dir.path(), "running", Vec::new());
        drop(run(dir.path(), "damaged", Vec::new()));
        std::fs::write(dir.path().join("nrop/runs/damaged/events.jsonl"), "x\n").expect("file");
        drop(run(dir.path(), "old", Vec::new()));
        for run in ["left", "running", "damaged", "old"] {
            let log = std::fs::File::open(ReportPaths::new(dir.path(), None, run).events());
            let aged = log.and_then(|log| log.set_modified(SystemTime::UNIX_EPOCH));
            aged.expect("the owner may do that");
        }
        for number in 0..KEPT_RUNS {
            drop(run(dir.path(), &format!("new-{number:02}"), Vec::new()));
        }
        let mut expected: Vec<_> = (0..KEPT_RUNS)
            .map(|number| format!("new-{number:02}"))
            .collect();
        expected.extend(["damaged", "latest", "left", "running"].map(str::to_owned));
        expected.sort();
        assert_eq!(folders(dir.path()), expected);
        drop(running);
    }

    #[test]
    fn the_log_of_another_version_is_moved_aside() {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::create_dir(dir.path().join("nrop")).expect("folder");
        std::fs::write(dir.path().join("nrop/events.jsonl"), "old").expect("file");
        drop(run(dir.path(), "a", Vec::new()));
        let former = std::fs::read_to_string(dir.path().join("nrop/events.former.jsonl"));
        assert_eq!(former.expect("it is there"), "old");
    }
}
