//! Selects the scenarios that run.

use regex::Regex;
use thiserror::Error;

use crate::labels::{self, Expression, KNOWN, nearest};
use crate::scenario::Scenario;

/// What the user asked for, as on the command line. All given conditions must hold.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Selection {
    /// Ids of the scenarios to run [default: all that the options below select]
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,

    /// Only scenarios with these labels: && || ! (), /regex/, key: containsAny {a, b}
    #[arg(
        id = "label",
        long = "label",
        visible_alias = "label-filter",
        value_name = "EXPRESSION",
        help_heading = "Selection"
    )]
    pub labels: Option<String>,
    /// Only tiers 0 to N; scenarios without a tier are left out, and counted in a message
    #[arg(long, value_name = "N", help_heading = "Selection")]
    pub tier_up_to: Option<u8>,
    /// Only scenarios whose id or title matches
    #[arg(long, value_name = "REGEX", help_heading = "Selection")]
    pub focus: Option<String>,
    /// No scenarios whose id or title matches
    #[arg(long, value_name = "REGEX", help_heading = "Selection")]
    pub skip: Option<String>,
}

/// Why a selection is invalid.
#[derive(Debug, Error)]
pub enum Error {
    /// An id that no scenario has.
    #[error("no scenario has the id {id:?}{}", hint(.near))]
    UnknownId {
        /// The given id.
        id: String,
        /// Similar ids.
        near: Vec<String>,
    },
    /// A label that no scenario can have.
    #[error("unknown label {label:?}{}", hint(.near))]
    UnknownLabel {
        /// The given label.
        label: String,
        /// Similar labels.
        near: Vec<String>,
    },
    /// The label expression is invalid.
    #[error(transparent)]
    Labels(#[from] labels::ParseError),
    /// A pattern is no regular expression.
    #[error("{option} {pattern:?} is no regular expression: {reason}")]
    Pattern {
        /// The option.
        option: &'static str,
        /// The given pattern.
        pattern: String,
        /// Why it is invalid.
        reason: String,
    },
    /// No scenario is selected.
    #[error("no scenario matches the selection; --list shows all")]
    Nothing,
}

fn hint(near: &[String]) -> String {
    if near.is_empty() {
        String::new()
    } else {
        format!("; did you mean {}?", near.join(", "))
    }
}

fn owned(near: Vec<&str>) -> Vec<String> {
    near.into_iter().map(str::to_owned).collect()
}

impl Selection {
    /// Returns for each of the scenarios whether it is selected. An empty selection is an error.
    pub fn apply(&self, scenarios: &[Scenario]) -> Result<Vec<bool>, Error> {
        if let Some(id) = self
            .ids
            .iter()
            .find(|id| scenarios.iter().all(|scenario| scenario.id != **id))
        {
            let near = owned(nearest(id, scenarios.iter().map(|scenario| scenario.id)));
            return Err(Error::UnknownId {
                id: id.clone(),
                near,
            });
        }
        let expression = self.labels.as_deref().map(Expression::parse).transpose()?;
        if let Some(label) = expression
            .as_ref()
            .and_then(|expression| expression.unknown_labels().into_iter().next())
        {
            let near = owned(nearest(&label, KNOWN.iter().copied()));
            return Err(Error::UnknownLabel { label, near });
        }
        let focus = pattern("--focus", self.focus.as_deref())?;
        let skip = pattern("--skip", self.skip.as_deref())?;
        let matches = |regex: &Regex, scenario: &Scenario| {
            regex.is_match(scenario.id) || regex.is_match(&scenario.title)
        };
        let selected: Vec<bool> = scenarios
            .iter()
            .map(|scenario| {
                let labels = &scenario.labels;
                (self.ids.is_empty() || self.ids.iter().any(|id| id == scenario.id))
                    && expression
                        .as_ref()
                        .is_none_or(|expression| expression.selects(labels))
                    && self
                        .tier_up_to
                        .is_none_or(|up_to| tier(labels).is_some_and(|tier| tier <= up_to))
                    && focus.as_ref().is_none_or(|regex| matches(regex, scenario))
                    && !skip.as_ref().is_some_and(|regex| matches(regex, scenario))
            })
            .collect();
        if selected.contains(&true) {
            Ok(selected)
        } else {
            Err(Error::Nothing)
        }
    }

    /// Returns the number of scenarios that only the limit on tiers leaves out, because they have none.
    pub fn left_out_without_tier(&self, scenarios: &[Scenario]) -> Result<usize, Error> {
        if self.tier_up_to.is_none() {
            return Ok(0);
        }
        let without_limit = Self {
            tier_up_to: None,
            ..self.clone()
        };
        let selected = without_limit.apply(scenarios)?;
        let without_tier = scenarios
            .iter()
            .zip(selected)
            .filter(|(scenario, selected)| *selected && tier(&scenario.labels).is_none());
        Ok(without_tier.count())
    }
}

fn tier(labels: &[&str]) -> Option<u8> {
    labels
        .iter()
        .find_map(|label| label.strip_prefix("tier")?.parse().ok())
}

fn pattern(option: &'static str, pattern: Option<&str>) -> Result<Option<Regex>, Error> {
    let compile = |pattern: &str| {
        Regex::new(pattern).map_err(|error| Error::Pattern {
            option,
            pattern: pattern.to_owned(),
            reason: error
                .to_string()
                .lines()
                .last()
                .unwrap_or_default()
                .to_owned(),
        })
    };
    pattern.map(compile).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::body;

    fn scenario(id: &'static str, labels: &[&'static str]) -> Scenario {
        Scenario {
            id,
            test_id: None,
            title: format!("[tag] title of {id}"),
            labels: labels.to_vec(),
            needs: Vec::new(),
            body: body(|_| Box::pin(async { Ok(()) })),
        }
    }

    fn selected(selection: &Selection) -> Result<String, String> {
        let scenarios = [
            scenario("a/zero", &["tier0", "scheduler"]),
            scenario("a/one", &["tier1", "scheduler"]),
            scenario("b/two", &["tier2"]),
            scenario("b/none", &["scheduler"]),
        ];
        let flags = selection
            .apply(&scenarios)
            .map_err(|error| error.to_string())?;
        let ids = scenarios
            .iter()
            .zip(flags)
            .filter(|(_, flag)| *flag)
            .map(|(scenario, _)| scenario.id);
        Ok(ids.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn everything_given_must_hold() {
        let selection = |selection: Selection| selected(&selection).expect("something is selected");
        assert_eq!(selection(Selection::default()), "a/zero a/one b/two b/none");
        assert_eq!(
            selection(Selection {
                labels: Some("scheduler && !tier0".to_owned()),
                ..Selection::default()
            }),
            "a/one b/none"
        );
        assert_eq!(
            selection(Selection {
                tier_up_to: Some(1),
                ..Selection::default()
            }),
            "a/zero a/one"
        );
        assert_eq!(
            selection(Selection {
                focus: Some("^b/".to_owned()),
                ..Selection::default()
            }),
            "b/two b/none"
        );
        assert_eq!(
            selection(Selection {
                focus: Some("title of a".to_owned()),
                skip: Some("one".to_owned()),
                ..Selection::default()
            }),
            "a/zero"
        );
        let ids = vec!["b/two".to_owned(), "a/zero".to_owned()];
        assert_eq!(
            selection(Selection {
                ids,
                tier_up_to: Some(0),
                ..Selection::default()
            }),
            "a/zero"
        );
    }

    #[test]
    fn scenarios_without_a_tier_are_counted_if_only_that_leaves_them_out() {
        let scenarios = [
            scenario("a/zero", &["tier0"]),
            scenario("a/two", &["tier2"]),
            scenario("a/none", &["scheduler"]),
            scenario("b/none", &["scheduler"]),
        ];
        let count = |tier_up_to, focus: &str| {
            let selection = Selection {
                tier_up_to,
                focus: Some(focus.to_owned()),
                ..Selection::default()
            };
            selection
                .left_out_without_tier(&scenarios)
                .expect("something is selected")
        };
        assert_eq!(count(Some(1), "^."), 2);
        assert_eq!(count(Some(1), "^a/"), 1);
        assert_eq!(count(None, "^."), 0);
    }

    #[test]
    fn senseless_selections_say_why() {
        let error =
            |selection: Selection| selected(&selection).expect_err("nothing can be selected");
        assert_eq!(
            error(Selection {
                ids: vec!["a/zeroo".to_owned()],
                ..Selection::default()
            }),
            "no scenario has the id \"a/zeroo\"; did you mean a/zero?"
        );
        assert_eq!(
            error(Selection {
                labels: Some("tier9".to_owned()),
                ..Selection::default()
            }),
            "unknown label \"tier9\"; did you mean tier0, tier1, tier2, tier3?"
        );
        assert_eq!(
            error(Selection {
                labels: Some("tier3".to_owned()),
                ..Selection::default()
            }),
            "no scenario matches the selection; --list shows all"
        );
        assert!(
            error(Selection {
                focus: Some("(".to_owned()),
                ..Selection::default()
            })
            .starts_with("--focus \"(\" is no regular expression: ")
        );
        assert_eq!(
            error(Selection {
                labels: Some("tier0 &&".to_owned()),
                ..Selection::default()
            }),
            "a label expected at column 9 of the label expression"
        );
    }
}
