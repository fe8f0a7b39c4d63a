//! What a run has changed on a cluster that was given to it, and has not undone.

use crate::event::{Event, Record, Unit};
use crate::stream::Reader;

/// A change that is not undone.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Where it belongs.
    pub unit: Unit,
    /// Number within the unit.
    pub change: u32,
    /// What was changed, for people.
    pub what: String,
    /// How to undo it, as data of the engine that recorded it.
    pub undo: serde_json::Value,
}

/// A cluster that was given to the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Identity of the cluster.
    pub cluster: String,
    /// The kubeconfig files with which it is reached; none inside a pod of the cluster.
    pub kubeconfig: Vec<String>,
}

/// The changes of a run that are not undone. Those of a cluster that was brought up for the run end with it: they are none of these.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenChanges {
    run: String,
    given: Option<Given>,
    planned: Vec<Change>,
    is_over: bool,
}

impl OpenChanges {
    /// Returns the identity of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the cluster that was given to the run, if there was one, and if the run got so far as to change it.
    pub fn given(&self) -> Option<&Given> {
        self.given.as_ref()
    }

    /// Returns the changes of the given cluster that are not undone, oldest first.
    pub fn changes(&self) -> &[Change] {
        match self.given {
            Some(_) => &self.planned,
            None => &[],
        }
    }

    /// Returns whether the given cluster needs a cleanup: changes are not undone, or the run ended without giving the cluster back.
    pub fn need_cleanup(&self) -> bool {
        self.given.is_some() && (!self.is_over || !self.planned.is_empty())
    }
}

impl Reader for OpenChanges {
    fn read(&mut self, record: &Record) {
        match &record.event {
            Event::RunStarted { run, .. } => run.clone_into(&mut self.run),
            Event::ClusterClaimed {
                cluster,
                kubeconfig,
                ..
            } => {
                self.given = Some(Given {
                    cluster: cluster.clone(),
                    kubeconfig: kubeconfig.clone(),
                });
            }
            Event::ChangePlanned {
                unit,
                change,
                what,
                undo,
            } => self.planned.push(Change {
                unit: unit.clone(),
                change: *change,
                what: what.clone(),
                undo: undo.clone(),
            }),
            Event::ChangeUndone {
                unit,
                change,
                error: None,
            } => {
                let is_it = |one: &Change| one.unit == *unit && one.change == *change;
                if let Some(at) = self.planned.iter().rposition(is_it) {
                    self.planned.remove(at);
                }
            }
            Event::ChangesKept { unit } => self.planned.retain(|one| one.unit != *unit),
            Event::RunFinished { .. } | Event::ClusterFreed { .. } => self.is_over = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;

    fn open(events: Vec<Event>) -> OpenChanges {
        let mut open = OpenChanges::default();
        for (seq, event) in (0..).zip(events) {
            open.read(&Record {
                seq,
                at: Timestamp::UNIX_EPOCH,
                event,
            });
        }
        open
    }

    fn claimed() -> Event {
        Event::ClusterClaimed {
            unit: "setup".to_owned(),
            cluster: "uid".to_owned(),
            kubeconfig: vec!["/k".to_owned()],
        }
    }

    fn planned(unit: &str, change: u32) -> Event {
        Event::ChangePlanned {
            unit: unit.to_owned(),
            change,
            what: format!("{unit} {change}"),
            undo: serde_json::Value::Null,
        }
    }

    fn undone(unit: &str, change: u32, error: Option<&str>) -> Event {
        Event::ChangeUndone {
            unit: unit.to_owned(),
            change,
            error: error.map(str::to_owned),
        }
    }

    fn left(open: &OpenChanges) -> Vec<&str> {
        open.changes()
            .iter()
            .map(|change| change.what.as_str())
            .collect()
    }

    #[test]
    fn a_change_is_open_until_it_is_undone_without_an_error() {
        let open = open(vec![
            claimed(),
            planned("setup", 1),
            planned("a/b", 1),
            planned("a/b", 2),
            undone("a/b", 2, None),
            undone("a/b", 1, Some("no")),
        ]);
        assert_eq!(left(&open), ["setup 1", "a/b 1"]);
    }

    #[test]
    fn changes_that_are_to_stay_are_not_open() {
        let open = open(vec![
            claimed(),
            planned("setup", 1),
            planned("a/b", 1),
            Event::ChangesKept {
                unit: "setup".to_owned(),
            },
            planned("setup", 2),
        ]);
        assert_eq!(left(&open), ["a/b 1", "setup 2"]);
    }

    #[test]
    fn nothing_is_left_of_a_cluster_that_ends_with_the_run() {
        let open = open(vec![planned("setup", 1)]);
        assert_eq!(open.given(), None);
        assert_eq!(left(&open), Vec::<&str>::new());
        assert!(!open.need_cleanup());
    }

    fn finished() -> Event {
        Event::RunFinished {
            interrupted: false,
            duration_ms: 0,
            exit_code: 0,
        }
    }

    fn freed() -> Event {
        Event::ClusterFreed {
            unit: "cleanup".to_owned(),
        }
    }

    #[rstest]
    #[case::killed_before_its_first_change(vec![claimed()], true)]
    #[case::killed_between_two_changes(vec![claimed(), planned("setup", 1), undone("setup", 1, None)], true)]
    #[case::ended(vec![claimed(), finished()], false)]
    #[case::ended_with_a_change(vec![claimed(), planned("setup", 1), finished()], true)]
    #[case::cleaned_up(vec![claimed(), planned("setup", 1), undone("setup", 1, None), freed()], false)]
    #[case::killed_before_it_had_the_cluster(Vec::new(), false)]
    fn a_cluster_needs_a_cleanup_until_it_is_given_back(
        #[case] events: Vec<Event>,
        #[case] expected: bool,
    ) {
        assert_eq!(open(events).need_cleanup(), expected);
    }
}
