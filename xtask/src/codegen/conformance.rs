//! The tables of docs/conformance.md: what becomes of Kubernetes' own conformance tests in an embedded cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use super::page::{self, Part};

/// The list; relative to the root of the repository.
const LIST: &str = "judges/corpus/conformance.yaml";
const BEGIN: &str = "<!-- begin: counts, by `cargo xtask codegen` -->\n";

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Passes,
    Fails,
    DoesNotApply,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    verdict: Verdict,
    #[serde(default)]
    reason: String,
    tests: Vec<String>,
}

/// Numbers of tests that pass, fail, and do not apply.
#[derive(Clone, Copy, Default)]
struct Counts([usize; 3]);

impl Counts {
    fn add(&mut self, verdict: Verdict) {
        self.0[match verdict {
            Verdict::Passes => 0,
            Verdict::Fails => 1,
            Verdict::DoesNotApply => 2,
        }] += 1;
    }

    fn row(self, name: &str) -> String {
        let [passing, failing, other] = self.0;
        let all = passing + failing + other;
        format!("| {name} | {all} | {passing} | {failing} | {other} |\n")
    }
}

fn tables(groups: &[Group]) -> String {
    let mut areas: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut total = Counts::default();
    let tests = groups
        .iter()
        .flat_map(|group| group.tests.iter().map(|test| (group.verdict, test)));
    for (verdict, test) in tests {
        let area = test.split_once("] ").map_or("", |(area, _)| area);
        areas
            .entry(area.trim_start_matches('['))
            .or_default()
            .add(verdict);
        total.add(verdict);
    }
    let mut text =
        String::from("\n| area | tests | pass | fail | do not apply |\n|---|---|---|---|---|\n");
    for (area, counts) in areas {
        text.push_str(&counts.row(area));
    }
    text.push_str(&total.row("all"));
    text.push_str("\n| do not apply | why |\n|---|---|\n");
    for group in groups {
        if group.verdict == Verdict::DoesNotApply {
            // writing to a `String` cannot fail
            let _ = writeln!(text, "| {} | {} |", group.tests.len(), group.reason);
        }
    }
    text.push('\n');
    let failing = groups
        .iter()
        .filter(|group| group.verdict == Verdict::Fails)
        .flat_map(|group| group.tests.iter().map(|test| (test, &group.reason)));
    let mut rows = String::new();
    for (test, why) in failing {
        // writing to a `String` cannot fail
        let _ = writeln!(rows, "| {test} | {why} |");
    }
    if !rows.is_empty() {
        text.push_str("| fails | why |\n|---|---|\n");
        text.push_str(&rows);
        text.push('\n');
    }
    text
}

/// Returns the tables.
///
/// # Errors
/// Returns an error if the list cannot be read.
pub(super) fn part() -> anyhow::Result<Part> {
    let groups: Vec<Group> = page::list(LIST)?;
    Ok(Part {
        begin: BEGIN,
        text: tables(&groups),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_count_the_tests_of_an_area_and_name_those_that_fail() {
        let groups: Vec<Group> = serde_yaml::from_str(
            "[{verdict: passes, tests: ['[sig-a] x', '[sig-b] x']}, {verdict: fails, reason: r, tests: ['[sig-a] y']}, \
             {verdict: does-not-apply, reason: s, tests: ['[sig-a] z']}]",
        )
        .unwrap();
        let tables = tables(&groups);
        for row in [
            "| sig-a | 3 | 1 | 1 | 1 |",
            "| sig-b | 1 | 1 | 0 | 0 |",
            "| all | 4 | 2 | 1 | 1 |",
            "| 1 | s |",
            "| [sig-a] y | r |",
        ] {
            assert!(tables.contains(row), "{tables}");
        }
    }
}
