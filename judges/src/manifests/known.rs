//! The differences that stay.

use regex::Regex;
use serde::Deserialize;

use super::answers::{Answer, Difference};

/// The committed list.
const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/corpus/api/manifests-differences.yaml"
);

/// Why the known differences cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {FILE}")]
    Read(#[from] std::io::Error),
    /// The file does not have the right format.
    #[error("cannot read the known differences of manifests")]
    Yaml(#[from] serde_yaml::Error),
    /// An entry does not say why it is there, or not what differs.
    #[error("the known difference {0:?} needs a reason, and `real` or `ours`")]
    Incomplete(String),
    /// An entry has a pattern that is none.
    #[error("the pattern of the known difference {rule:?}")]
    Pattern {
        /// The entry.
        rule: String,
        /// Why.
        #[source]
        source: regex::Error,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    /// The rule, in words.
    rule: String,
    /// The kinds that it is of; all where none is named.
    #[serde(default)]
    kinds: Vec<String>,
    /// Pattern of the lines that only the real server says.
    #[serde(default)]
    real: Option<String>,
    /// Pattern of the lines that only ours says.
    #[serde(default)]
    ours: Option<String>,
    /// Whether the servers differ in some manifests only, so that what both say is no sign that they no longer do.
    #[serde(default)]
    sometimes: bool,
    /// Why it stays.
    reason: String,
}

/// A rule of which the servers differ.
#[derive(Debug)]
struct Entry {
    rule: String,
    kinds: Vec<String>,
    real: Option<Regex>,
    ours: Option<Regex>,
    sometimes: bool,
}

/// The differences that stay, by rule.
#[derive(Debug)]
pub struct Known(Vec<Entry>);

/// What is known of a difference.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether something differs that is not listed.
    pub is_new: bool,
    /// Rules that were met.
    pub met: Vec<String>,
    /// Rules that were met, and where both servers said the same.
    pub mended: Vec<String>,
}

impl Known {
    /// Reads the committed list.
    ///
    /// # Errors
    /// When the list cannot be read, or an entry is not complete.
    pub fn read() -> Result<Self, Error> {
        Self::parse(&std::fs::read_to_string(FILE)?)
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let sources: Vec<Source> = serde_yaml::from_str(text)?;
        sources
            .into_iter()
            .map(entry)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns all rules.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.rule.as_str())
    }

    /// Judges two answers to a manifest of a kind.
    pub fn judge(&self, kind: &str, real: &Answer, ours: &Answer) -> Verdict {
        let difference = Difference::between(real, ours);
        let mut verdict = Verdict::default();
        let mut left: Vec<&str> = Vec::new();
        let all = difference.real.iter().map(|line| (line, true));
        for (line, is_real) in all.chain(difference.ours.iter().map(|line| (line, false))) {
            let listed = self.0.iter().find(|entry| entry.has(kind, line, is_real));
            match listed {
                Some(entry) => verdict.met.push(entry.rule.clone()),
                None => left.push(line),
            }
        }
        // the verdict follows from the causes, so it is explained with the last of them
        let unexplained = left.iter().any(|line| !Difference::is_verdict(line));
        verdict.is_new = unexplained || (!left.is_empty() && verdict.met.is_empty());
        let always = self.0.iter().filter(|entry| !entry.sometimes);
        for entry in always.filter(|entry| entry.is_of(kind)) {
            // an entry with both patterns is about what the real server says; ours answers as it does without the rule
            let is_real = entry.real.is_some();
            let (answer, difference) = if is_real {
                (real, &difference.real)
            } else {
                (ours, &difference.ours)
            };
            let mut same = answer
                .lines()
                .iter()
                .filter(|line| !difference.contains(line));
            if same.any(|line| entry.has(kind, line, is_real)) {
                verdict.mended.push(entry.rule.clone());
            }
        }
        verdict
    }
}

fn entry(source: Source) -> Result<Entry, Error> {
    if source.reason.trim().is_empty() || (source.real.is_none() && source.ours.is_none()) {
        return Err(Error::Incomplete(source.rule));
    }
    let pattern = |text: &Option<String>| {
        let made = text.as_deref().map(Regex::new).transpose();
        made.map_err(|error| Error::Pattern {
            rule: source.rule.clone(),
            source: error,
        })
    };
    Ok(Entry {
        real: pattern(&source.real)?,
        ours: pattern(&source.ours)?,
        rule: source.rule,
        kinds: source.kinds,
        sometimes: source.sometimes,
    })
}

impl Entry {
    fn is_of(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|one| one == kind)
    }

    fn has(&self, kind: &str, line: &str, is_real: bool) -> bool {
        let pattern = if is_real { &self.real } else { &self.ours };
        self.is_of(kind)
            && pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(line))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const LIST: &str =
        "[{rule: r, kinds: [pods], real: '^FieldValueRequired spec.a ', reason: because}]";

    fn answer(fields: &[&str]) -> Answer {
        if fields.is_empty() {
            return Answer::new(201, &Value::Null);
        }
        let causes: Vec<Value> = fields
            .iter()
            .map(|field| json!({"reason": "FieldValueRequired", "field": field, "message": "m"}))
            .collect();
        Answer::new(
            422,
            &json!({"reason": "Invalid", "details": {"causes": causes}}),
        )
    }

    #[rstest]
    #[case::same("pods", &["spec.b"], &["spec.b"], false)]
    #[case::listed("pods", &["spec.a"], &[], false)]
    #[case::listed_beside_another("pods", &["spec.a", "spec.b"], &["spec.b"], false)]
    #[case::of_another_kind("nodes", &["spec.a"], &[], true)]
    #[case::more_than_listed("pods", &["spec.a", "spec.b"], &[], true)]
    #[case::only_ours("pods", &[], &["spec.a"], true)]
    fn only_what_is_listed_is_known(
        #[case] kind: &str,
        #[case] real: &[&str],
        #[case] ours: &[&str],
        #[case] is_new: bool,
    ) {
        let known = Known::parse(LIST).unwrap();
        let verdict = known.judge(kind, &answer(real), &answer(ours));
        assert_eq!(verdict.is_new, is_new, "{verdict:?}");
    }

    #[test]
    fn an_entry_that_no_longer_differs_is_told() {
        let known = Known::parse(LIST).unwrap();
        let verdict = known.judge("pods", &answer(&["spec.a"]), &answer(&["spec.a"]));
        assert_eq!(verdict.mended, ["r"]);
    }

    #[test]
    fn an_entry_that_differs_only_sometimes_is_not_told() {
        let list = LIST.replace("reason: because", "sometimes: true, reason: because");
        let known = Known::parse(&list).unwrap();
        let verdict = known.judge("pods", &answer(&["spec.a"]), &answer(&["spec.a"]));
        assert!(verdict.mended.is_empty(), "{verdict:?}");
    }

    #[rstest]
    #[case::no_reason("[{rule: r, real: a, reason: ' '}]")]
    #[case::no_pattern("[{rule: r, reason: because}]")]
    #[case::broken_pattern("[{rule: r, real: '(', reason: because}]")]
    fn an_entry_says_what_differs_and_why(#[case] text: &str) {
        assert!(Known::parse(text).is_err());
    }

    #[test]
    fn the_committed_list_is_complete() {
        Known::read().unwrap();
    }
}
