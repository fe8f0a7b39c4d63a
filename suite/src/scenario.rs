//! What a scenario is.

use std::fmt;

use futures::future::LocalBoxFuture;
use reports::event::ScenarioInfo;

use crate::context::Context;
use crate::facts::Facts;
use crate::needs::Need;
use crate::step::StepError;

/// The steps of a scenario.
pub type Body =
    Box<dyn for<'a> Fn(&'a Context) -> LocalBoxFuture<'a, Result<(), StepError>> + Send + Sync>;

/// One scenario of the catalogue.
pub struct Scenario {
    /// Stable id, `area/name`, as in the catalogue.
    pub id: &'static str,
    /// Number that the catalogue refers to.
    pub test_id: Option<u32>,
    /// Title in the catalogue, with its bracketed tags, for `--focus` and `--skip`.
    pub title: String,
    /// Labels.
    pub labels: Vec<&'static str>,
    /// What the cluster must have.
    pub needs: Vec<Need>,
    /// The steps.
    pub body: Body,
}

impl Scenario {
    /// Returns the part of the id before the slash.
    pub fn area(&self) -> &'static str {
        self.id.split_once('/').map_or(self.id, |(area, _)| area)
    }

    /// Returns what reports show about it.
    pub fn info(&self) -> ScenarioInfo {
        ScenarioInfo {
            id: self.id.to_owned(),
            title: self.title.clone(),
            test_id: self.test_id,
            labels: self
                .labels
                .iter()
                .map(|label| (*label).to_owned())
                .collect(),
        }
    }

    /// Returns the first need that the cluster does not meet: what is needed and what the cluster has instead.
    pub fn missing(&self, facts: &Facts) -> Option<String> {
        self.needs.iter().find_map(|need| need.missing(facts))
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario")
            .field("id", &self.id)
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}

/// Makes a [`Body`] from a function.
pub fn body<F>(run: F) -> Body
where
    F: for<'a> Fn(&'a Context) -> LocalBoxFuture<'a, Result<(), StepError>> + Send + Sync + 'static,
{
    Box::new(run)
}
