//! Manifests of every built-in kind, sent to a real API server and to ours: the verdict, and what it is based on, must be the same.
//!
//! `corpus/api/manifests` has valid objects ([`documents`]). [`changes`] makes others of them, one change each: a field goes, or gets a value
//! at the edge of what it may take, or comes in addition. Each [`Case`] is one such object, created or as a replacement of the valid one.
//! [`Judge::run`] sends cases to both servers, and `shrink` looks for the smallest object about which they differ. [`Known`] are the
//! differences that stay, each with its reason.
//!
//! All cases are known beforehand, so that all can be compared once ([`all`]) and a few that a seed draws ([`drawn`]).

mod answers;
mod changes;
mod documents;
mod judge;
mod known;
mod schemas;
mod shrink;

pub use self::answers::{Answer, Difference};
pub use self::changes::{Change, changes};
pub use self::documents::{Document, Error as DocumentError, documents};
pub use self::judge::{Error as JudgeError, Finding, Judge, Outcome};
pub use self::known::{Error as KnownError, Known};

use crate::kubelet::random::Random;

/// How a manifest reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// As a new object.
    Create,
    /// In place of the valid one, which exists.
    Update,
}

/// A manifest that is sent to both servers.
#[derive(Clone, Debug)]
pub struct Case<'d> {
    /// The valid object.
    pub document: &'d Document,
    /// How the changed object is sent.
    pub verb: Verb,
    /// What is changed in it; `None` for the valid object itself.
    pub change: Option<Change>,
}

impl std::fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = match self.verb {
            Verb::Create => "create",
            Verb::Update => "update",
        };
        write!(f, "{verb} {}", self.document.id)?;
        match &self.change {
            Some(change) => write!(f, " {change}"),
            None => write!(f, " as it is"),
        }
    }
}

/// Returns all cases.
pub fn all(documents: &[Document]) -> Vec<Case<'_>> {
    documents.iter().flat_map(of_document).collect()
}

/// Returns all cases of a document.
fn of_document(document: &Document) -> Vec<Case<'_>> {
    let changed = changes(document);
    let mut verbs = vec![Verb::Create];
    if document.updatable {
        verbs.push(Verb::Update);
    }
    let case = |verb, change| Case {
        document,
        verb,
        change,
    };
    let of_verb = |verb| {
        let changed = changed.iter().cloned().map(Some);
        std::iter::once(None)
            .chain(changed)
            .map(move |change| case(verb, change))
    };
    verbs.into_iter().flat_map(of_verb).collect()
}

/// Draws cases: each kind as often as any other, however many fields it has.
pub fn drawn(documents: &[Document], count: usize, seed: u64) -> Vec<Case<'_>> {
    let mut random = Random::new(seed);
    let each: Vec<Vec<Case<'_>>> = documents.iter().map(of_document).collect();
    let mut index = |length: usize| random.between(0, length.saturating_sub(1) as u64) as usize;
    (0..count)
        .filter_map(|_| {
            let cases = each.get(index(each.len()))?;
            cases.get(index(cases.len())).cloned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_cases_again_and_another_seed_others() {
        let documents = documents().unwrap();
        let names = |seed| -> Vec<String> {
            let cases = drawn(&documents, 50, seed);
            cases.iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(1), names(1));
        assert_ne!(names(1), names(2));
    }

    #[test]
    fn there_are_cases_of_all_verbs_that_a_kind_has() {
        let documents = documents().unwrap();
        let count = |id: &str, verb| {
            let document = documents.iter().find(|one| one.id == id).unwrap();
            let cases = of_document(document);
            cases.iter().filter(|case| case.verb == verb).count()
        };
        assert_eq!(count("tokenreview", Verb::Update), 0);
        assert_eq!(
            count("configmap", Verb::Update),
            count("configmap", Verb::Create)
        );
    }
}
