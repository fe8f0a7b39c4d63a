//! The scenarios by id: titles, labels and where they come from.
//!
//! They are data, `registry.yaml`: those of the original's specs are its own, to the letter, because people filter by them.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::needs::Need;
use crate::scenario::{Body, Scenario};

/// Scenarios of one container of the original, or of ours.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// Repository and file of the specs; ours have none.
    source: Option<String>,
    /// Texts of the containers, and of the table, joined by blanks.
    context: String,
    #[serde(default)]
    labels: Vec<String>,
    scenarios: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    title: String,
    #[serde(default)]
    labels: Vec<String>,
    /// What it proves, in one sentence.
    proves: Option<String>,
    absent: Option<String>,
}

/// A scenario as the registry describes it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: &'static str,
    /// Full title: containers, table and text of the spec.
    pub(super) title: String,
    /// Labels of its containers, then its own.
    pub(super) labels: Vec<&'static str>,
    /// Repository and file of the spec that it is; `None` if the original has none.
    pub(super) source: Option<&'static str>,
    /// What the scenario proves, in one sentence.
    pub(super) proves: Option<&'static str>,
    /// Why the spec has no scenario.
    pub(super) absent: Option<&'static str>,
}

impl Entry {
    /// Returns the number of the spec, which its title has as `[test_id:N]`.
    fn test_id(&self) -> Option<u32> {
        let (_, rest) = self.title.split_once("[test_id:")?;
        rest.split_once(']')?.0.parse().ok()
    }
}

static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
    serde_yaml::from_str(include_str!("registry.yaml")).expect("the registry is well formed")
});
static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let entries = |group: &'static Group| {
        group.scenarios.iter().map(|row| Entry {
            id: &row.id,
            title: format!("{} {}", group.context, row.title),
            labels: group
                .labels
                .iter()
                .chain(&row.labels)
                .map(String::as_str)
                .collect(),
            source: group.source.as_deref(),
            proves: row.proves.as_deref(),
            absent: row.absent.as_deref(),
        })
    };
    GROUPS.iter().flat_map(entries).collect()
});

/// Returns all entries, also those without a scenario.
pub(super) fn entries() -> &'static [Entry] {
    &ENTRIES
}

/// Builds the scenario with this id; the registry has its title and labels.
///
/// # Panics
/// Panics if the registry has no such id, which every use of [`super::all`] shows.
pub(super) fn scenario(id: &'static str, needs: &[Need], body: Body) -> Scenario {
    let mut entries = entries().iter();
    let entry = entries
        .find(|entry| entry.id == id)
        .expect("the registry has every scenario");
    Scenario {
        id,
        test_id: entry.test_id(),
        title: entry.title.clone(),
        labels: entry.labels.clone(),
        needs: needs.to_vec(),
        body,
    }
}
