//! What became of the mutants: a file with one JSON object a line, each written when a run of the suite is over.
//!
//! The file is committed, because a whole run takes hours: it may stop and go on later, on another machine, too.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::list::Mutant;
use super::stage::{Seen, Stage};

/// Name of the run without a fault.
pub(crate) const CONTROL: &str = "control";
/// Digest of no edit.
const NO_EDIT: &str = "";
/// Least share of all mutants that the catalogue has to catch, in percent.
const LEAST_OF_CATALOGUE: usize = 95;
/// Least share of all mutants that tier 0 has to catch, in percent.
const LEAST_OF_TIER0: usize = 70;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Its name.
    pub(crate) name: String,
    /// Digest of its edit.
    pub(crate) mutant: String,
    /// Digest of the sources that it was an edit of.
    pub(crate) tree: String,
    /// The runs of the suite.
    pub(crate) seen: Vec<Seen>,
}

impl Record {
    /// Starts the record of a mutant, or of the control run.
    pub(crate) fn new(mutant: Option<&Mutant>, tree: &str) -> Self {
        Self {
            name: mutant.map_or_else(|| CONTROL.to_owned(), |mutant| mutant.name.clone()),
            mutant: digest(mutant),
            tree: tree.to_owned(),
            seen: Vec::new(),
        }
    }

    /// Returns the run that noticed the fault.
    pub(crate) fn caught(&self) -> Option<&Seen> {
        self.seen.iter().find(|seen| !seen.failed.is_empty())
    }

    /// Returns whether tier 0 noticed the fault.
    pub(crate) fn is_caught_by_tier0(&self) -> bool {
        self.caught()
            .is_some_and(|seen| Stage::OF_TIER0.contains(&seen.stage))
    }

    /// Returns which of `stages` have not been run. After one that noticed the fault, none has to.
    pub(crate) fn left(&self, stages: &[Stage]) -> Vec<Stage> {
        if self.caught().is_some() {
            return Vec::new();
        }
        let is_left = |stage: &&Stage| {
            let run = self.seen.iter().find(|seen| seen.stage == **stage);
            !run.is_some_and(|seen| seen.whole)
        };
        stages.iter().filter(is_left).copied().collect()
    }
}

fn digest(mutant: Option<&Mutant>) -> String {
    mutant.map_or_else(|| NO_EDIT.to_owned(), Mutant::digest)
}

/// The file of the results, with what it holds.
#[derive(Debug)]
pub(crate) struct Results {
    path: PathBuf,
    records: Vec<Record>,
}

impl Results {
    /// Reads the results of all runs so far. A line that is no record, as a killed run leaves it, is left out.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let records = text.lines().map(serde_json::from_str);
        Self {
            path: path.to_owned(),
            records: records.filter_map(Result::ok).collect(),
        }
    }

    /// Returns the latest record of the control run on these sources.
    pub(crate) fn control(&self, tree: &str) -> Option<&Record> {
        let mut latest = self.records.iter().rev();
        latest.find(|record| record.mutant == NO_EDIT && record.tree == tree)
    }

    /// Returns the latest record of a mutant, whatever sources it was on.
    pub(crate) fn latest(&self, mutant: &Mutant) -> Option<&Record> {
        let digest = mutant.digest();
        let mut latest = self.records.iter().rev();
        latest.find(|record| record.mutant == digest)
    }

    /// Keeps only the latest record of each of these mutants, in their order, on disk, too.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn keep_latest(&mut self, mutants: &[Mutant]) -> anyhow::Result<()> {
        let latest = mutants.iter().filter_map(|mutant| self.latest(mutant));
        self.records = latest.cloned().collect();
        let what = || format!("writing {}", self.path.display());
        let mut text = String::new();
        for record in &self.records {
            text.push_str(&serde_json::to_string(record).with_context(what)?);
            text.push('\n');
        }
        let draft = self.path.with_extension("new");
        std::fs::write(&draft, text).with_context(what)?;
        std::fs::rename(&draft, &self.path).with_context(what)
    }

    /// Adds a record, on disk, too.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn add(&mut self, record: Record) -> anyhow::Result<()> {
        let what = || format!("writing {}", self.path.display());
        let mut line = serde_json::to_vec(&record).with_context(what)?;
        line.push(b'\n');
        std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.path)
            .and_then(|mut file| file.write_all(&line))
            .with_context(what)?;
        self.records.push(record);
        Ok(())
    }
}

/// How many mutants were caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) all: usize,
    pub(crate) by_tier0: usize,
    pub(crate) by_any: usize,
    /// Names of those that nothing caught and nobody explained.
    pub(crate) unexplained: Vec<String>,
    /// Names of those that were not run to the end.
    pub(crate) open: Vec<String>,
}

impl Totals {
    /// Counts mutants with their records.
    pub(crate) fn of<'a>(
        mutants: impl Iterator<Item = (&'a Mutant, Option<&'a Record>)>,
        stages: &[Stage],
    ) -> Self {
        let mut totals = Self::default();
        for (mutant, record) in mutants {
            totals.all += 1;
            let Some(record) = record.filter(|record| record.left(stages).is_empty()) else {
                totals.open.push(mutant.name.clone());
                continue;
            };
            totals.by_tier0 += usize::from(record.is_caught_by_tier0());
            if record.caught().is_some() {
                totals.by_any += 1;
            } else if mutant.explained.is_none() {
                totals.unexplained.push(mutant.name.clone());
            }
        }
        totals
    }

    /// Returns what keeps the totals from being good, one sentence each. After a run of tier 0 alone only its share counts.
    pub(crate) fn shortfalls(&self, stages: &[Stage]) -> Vec<String> {
        let mut short = Vec::new();
        if !self.open.is_empty() {
            short.push(format!("without a result: {}", self.open.join(", ")));
        }
        if self.by_tier0 * 100 < LEAST_OF_TIER0 * self.all {
            short.push(format!(
                "tier 0 caught {} of {}, less than {LEAST_OF_TIER0} %",
                self.by_tier0, self.all
            ));
        }
        if stages == Stage::OF_TIER0 {
            return short;
        }
        if self.by_any * 100 < LEAST_OF_CATALOGUE * self.all {
            short.push(format!(
                "the catalogue caught {} of {}, less than {LEAST_OF_CATALOGUE} %",
                self.by_any, self.all
            ));
        }
        if !self.unexplained.is_empty() {
            short.push(format!(
                "not caught: {}; a new scenario has to catch it, or `explained` has to say why none can",
                self.unexplained.join(", ")
            ));
        }
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::list::Source;

    fn mutant(name: &str) -> Mutant {
        Mutant {
            name: name.to_owned(),
            source: Source::Mended,
            why: "Pods wait forever.".to_owned(),
            file: "rte/src/lib.rs".to_owned(),
            find: name.to_owned(),
            replace: String::new(),
            noticed_by: Vec::new(),
            explained: None,
        }
    }

    fn seen(stage: Stage, failed: &[&str]) -> Seen {
        Seen {
            stage,
            failed: failed.iter().map(|id| (*id).to_owned()).collect(),
            whole: true,
        }
    }

    fn record(mutant: &Mutant, seen: Vec<Seen>) -> Record {
        Record {
            seen,
            ..Record::new(Some(mutant), "tree")
        }
    }

    #[test]
    fn a_record_is_found_by_its_edit_after_a_restart() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("results.jsonl");
        let a = mutant("exporter/a");
        let first = record(&a, vec![seen(Stage::Tier0, &[])]);
        let second = record(&a, vec![seen(Stage::Tier0, &["tmpol/x"])]);
        let mut results = Results::read(&path);
        results.add(first).expect("written");
        results.add(second.clone()).expect("written");
        // as a run that was killed leaves it
        let mut text = std::fs::read_to_string(&path).expect("file");
        text.push_str("{\"name\":");
        std::fs::write(&path, text).expect("file");
        let results = Results::read(&path);
        assert_eq!(results.latest(&a), Some(&second));
        assert_eq!(results.latest(&mutant("exporter/b")), None);
    }

    #[test]
    fn the_latest_records_of_the_mutants_that_there_are_stay_and_no_others() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("results.jsonl");
        let [a, b, gone] = ["a", "b", "gone"].map(mutant);
        let latest = record(&a, vec![seen(Stage::Tier0, &["tmpol/x"])]);
        let of_b = record(&b, vec![seen(Stage::Tier0, &[])]);
        let mut results = Results::read(&path);
        for record in [
            Record::new(None, "tree"),
            of_b.clone(),
            record(&gone, vec![]),
            record(&a, vec![]),
            latest.clone(),
        ] {
            results.add(record).expect("written");
        }
        assert!(results.control("tree").is_some());
        assert!(results.control("other").is_none());
        results.keep_latest(&[a, b]).expect("written");
        assert_eq!(Results::read(&path).records, [latest, of_b]);
    }

    #[test]
    fn what_is_caught_needs_no_further_run() {
        let a = mutant("exporter/a");
        let clean = record(&a, vec![seen(Stage::Tier0, &[])]);
        assert_eq!(clean.left(&Stage::ALL), &Stage::ALL[1..]);
        assert_eq!(clean.left(&[Stage::Tier0]), []);
        let caught = record(&a, vec![seen(Stage::Tier0, &["tmpol/x"])]);
        assert_eq!(caught.left(&Stage::ALL), []);
        let mut cut = seen(Stage::Tier0, &[]);
        cut.whole = false;
        assert_eq!(record(&a, vec![cut]).left(&[Stage::Tier0]), [Stage::Tier0]);
    }

    #[test]
    fn shares_and_what_nobody_explained_decide() {
        let names: Vec<String> = (0..20)
            .map(|number| format!("exporter/m{number}"))
            .collect();
        let mut mutants: Vec<Mutant> = names.iter().map(|name| mutant(name)).collect();
        let records: Vec<Record> = mutants
            .iter()
            .enumerate()
            .map(|(number, mutant)| {
                let by_tier0 = if number < 14 { vec!["tmpol/x"] } else { vec![] };
                let by_others = if number < 19 { vec!["tmpol/y"] } else { vec![] };
                let all = Stage::ALL.map(|stage| match stage {
                    Stage::Tier0 => seen(stage, &by_tier0),
                    Stage::Others => seen(stage, &by_others),
                    Stage::Tier0Openshift | Stage::Openshift => seen(stage, &[]),
                });
                record(mutant, all.to_vec())
            })
            .collect();
        let count = |mutants: &[Mutant], without: usize| {
            let records = records.iter().enumerate();
            let records = records.map(|(number, record)| (number >= without).then_some(record));
            Totals::of(mutants.iter().zip(records), &Stage::ALL)
        };
        let totals = count(&mutants, 0);
        assert_eq!((totals.by_tier0, totals.by_any), (14, 19));
        let short = totals.shortfalls(&Stage::ALL);
        assert_eq!(short.len(), 1, "{short:?}");
        assert!(
            short[0].starts_with("not caught: exporter/m19;"),
            "{short:?}"
        );
        assert!(totals.shortfalls(&Stage::OF_TIER0).is_empty());
        mutants[19].explained = Some("no scenario asks for it".to_owned());
        assert!(count(&mutants, 0).shortfalls(&Stage::ALL).is_empty());
        let short = count(&mutants, 1).shortfalls(&Stage::ALL);
        assert_eq!(short.len(), 3, "{short:?}");
        assert_eq!(short[0], "without a result: exporter/m0");
    }
}
