//! What the scenarios of one area of the catalogue have in common.

use crate::labels::KNOWN;
use crate::needs::Need;
use crate::scenario::{Body, Scenario};

/// The head of every scenario of an area. Where one scenario differs, `Area { needs: .., ..AREA }` or `Scenario { needs: .., ..scenario }` says
/// so.
pub(super) struct Area {
    /// Beginning of the titles: containers and table of the catalogue.
    pub(super) context: &'static str,
    /// Labels besides that of the suite.
    pub(super) labels: &'static [&'static str],
    /// What the cluster must have.
    pub(super) needs: &'static [Need],
}

impl Area {
    /// Builds a scenario from one line of the catalogue. Its own labels are separated by blanks.
    pub(super) fn scenario(
        &self,
        id: &'static str,
        test_id: impl Into<Option<u32>>,
        own_labels: &str,
        text: &str,
        body: Body,
    ) -> Scenario {
        self.tagged(id, test_id, own_labels, ("", text), body)
    }

    /// Builds a scenario whose title has tags, such as `[tmscope:pod]`, before its text.
    pub(super) fn tagged(
        &self,
        id: &'static str,
        test_id: impl Into<Option<u32>>,
        own_labels: &str,
        (tags, text): (&str, &str),
        body: Body,
    ) -> Scenario {
        let test_id = test_id.into();
        Scenario {
            id,
            test_id,
            title: title(self.context, test_id, tags, text),
            labels: labels(self.labels, own_labels),
            needs: self.needs.to_vec(),
            body,
        }
    }
}

/// Returns the labels of a scenario: that of the suite, those of its area, and its own.
fn labels(common: &[&'static str], own: &str) -> Vec<&'static str> {
    let mut labels = vec!["e2e:serial"];
    labels.extend(common);
    for word in own.split_whitespace() {
        let known = KNOWN.iter().find(|known| **known == word);
        labels.push(
            known
                .copied()
                .expect("labels of the tables are in the list of known labels"),
        );
    }
    labels
}

/// Builds the title as in the catalogue: containers, table, tags, text.
fn title(context: &str, test_id: Option<u32>, tags: &str, text: &str) -> String {
    let id = test_id.map_or(String::new(), |id| format!("[test_id:{id}]"));
    let tags = format!("{id}{tags}");
    [context, &tags, text]
        .iter()
        .filter(|part| !part.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(" ")
}
