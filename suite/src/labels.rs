//! The label language: Ginkgo's filter grammar, as users of the original know it (scenarios-serial.md 5).
//!
//! It has `&&`, `||`, `!`, parentheses, a comma as a second spelling of `||`, `/regular expression/`, and sets on `key:value` labels: `key:
//! containsAny {a, b}`, `containsAll`, `consistsOf`, `isSubsetOf`, `isEmpty`. Labels are compared without regard to case.

mod known;
mod parse;

use std::collections::BTreeSet;

use regex::Regex;
use thiserror::Error;

pub use known::KNOWN;

/// Why a label expression is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Nothing where a label or a parenthesis should be.
    #[error("{expected} expected at column {column} of the label expression")]
    Expected {
        /// What is expected.
        expected: &'static str,
        /// Where, from 1.
        column: usize,
    },
    /// A token that cannot follow what is before it.
    #[error("unexpected {found:?} at column {column} of the label expression")]
    Unexpected {
        /// The unexpected text.
        found: String,
        /// Where, from 1.
        column: usize,
    },
    /// There are too many operators.
    #[error(
        "the label expression has too many brackets, negations or operators at column {column}: 100 brackets and negations, or 2,000 operators, are the most"
    )]
    TooLarge {
        /// Where, from 1.
        column: usize,
    },
    /// A regular expression is invalid.
    #[error("invalid regular expression /{pattern}/ in the label expression: {reason}")]
    Regex {
        /// The text between the slashes.
        pattern: String,
        /// Why.
        reason: String,
    },
    /// A set operation that does not exist.
    #[error(
        "unknown set operation {0:?}: use containsAny, containsAll, consistsOf, isSubsetOf or isEmpty"
    )]
    SetOperation(String),
}

/// A parsed label expression.
#[derive(Clone, Debug)]
pub enum Expression {
    /// One label, lower case.
    Label(String),
    /// Any label that matches.
    Matches(Regex),
    /// An operation on the values of the labels `key:...`.
    Set {
        /// Lower case, without the colon.
        key: String,
        /// What must hold.
        operation: SetOperation,
        /// Lower case.
        values: BTreeSet<String>,
    },
    /// The expression does not hold.
    Not(Box<Expression>),
    /// Both expressions hold.
    And(Box<Expression>, Box<Expression>),
    /// At least one of the expressions holds.
    Or(Box<Expression>, Box<Expression>),
}

/// What must hold between the values of a key and the given ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// At least one of the given values is present.
    ContainsAny,
    /// All given values are present.
    ContainsAll,
    /// Exactly the given values are present.
    ConsistsOf,
    /// No other than the given values are present.
    IsSubsetOf,
    /// There is no value.
    IsEmpty,
}

impl Expression {
    /// Parses an expression; an empty one is an error here.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::expression(text)
    }

    /// Returns whether the expression selects a scenario with these labels.
    pub fn selects(&self, labels: &[&str]) -> bool {
        match self {
            Self::Label(wanted) => labels.iter().any(|label| label.to_lowercase() == *wanted),
            Self::Matches(regex) => labels.iter().any(|label| regex.is_match(label)),
            Self::Set {
                key,
                operation,
                values,
            } => {
                let present: BTreeSet<String> = labels
                    .iter()
                    .filter_map(|label| label.split_once(':'))
                    .filter(|(k, _)| k.trim().to_lowercase() == *key)
                    .map(|(_, value)| value.trim().to_lowercase())
                    .collect();
                match operation {
                    SetOperation::ContainsAny => !present.is_disjoint(values),
                    SetOperation::ContainsAll => present.is_superset(values),
                    SetOperation::ConsistsOf => present == *values,
                    SetOperation::IsSubsetOf => present.is_subset(values),
                    SetOperation::IsEmpty => present.is_empty(),
                }
            }
            Self::Not(inner) => !inner.selects(labels),
            Self::And(left, right) => left.selects(labels) && right.selects(labels),
            Self::Or(left, right) => left.selects(labels) || right.selects(labels),
        }
    }

    /// Returns labels that are written out in the expression but are not known: most likely typing errors.
    pub fn unknown_labels(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        self.visit(&mut |expression| match expression {
            Self::Label(label) if !KNOWN.iter().any(|known| known.to_lowercase() == *label) => {
                unknown.push(label.clone());
            }
            Self::Set { key, .. }
                if !KNOWN
                    .iter()
                    .any(|known| known.split_once(':').is_some_and(|(k, _)| k == key)) =>
            {
                unknown.push(format!("{key}:"));
            }
            _ => {}
        });
        unknown
    }

    fn visit(&self, see: &mut impl FnMut(&Self)) {
        see(self);
        match self {
            Self::Not(inner) => inner.visit(see),
            Self::And(left, right) | Self::Or(left, right) => {
                left.visit(see);
                right.visit(see);
            }
            Self::Label(_) | Self::Matches(_) | Self::Set { .. } => {}
        }
    }
}

/// Returns the candidates that are most similar to a mistyped word, best first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = word.to_lowercase();
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            let distance = edit_distance(&word, &lower);
            let close = distance <= 1 + word.len() / 4;
            let part = word.len() >= 3
                && (lower.contains(&word) || word.contains(&lower) && lower.len() >= 3);
            (close || part).then_some((distance, candidate))
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter()
        .take(5)
        .map(|(_, candidate)| candidate)
        .collect()
}

/// Returns the least number of inserted, deleted or replaced characters that turns one word into the other.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
