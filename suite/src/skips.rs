//! The list of expected skips, and the comparison of a run with it (`--strict-skips`).
//!
//! The built-in list is `suite/skips.yaml`; its head says how to read and change it.

use std::path::{Path, PathBuf};

use reports::event::{Event, Failure, SKIPS, Verdict};
use reports::stream::Stream;
use serde::Deserialize;
use thiserror::Error;

use crate::environment::{Environment, Place, Platform};
use crate::scenario::Scenario;

/// Environment variable that asks for the comparison where there are no options: a file, or [`BUILT_IN`].
pub const VARIABLE: &str = "NUMARESOURCES_STRICT_SKIPS";
/// Stands for the built-in list in place of a file.
pub const BUILT_IN: &str = "built-in";

const BUILT_IN_TEXT: &str = include_str!("../skips.yaml");
const BUILT_IN_NAME: &str = "suite/skips.yaml";

/// Why a list cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the list of expected skips {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The text is no list.
    #[error("{list} is no list of expected skips")]
    Parse {
        /// The list.
        list: String,
        /// Why.
        #[source]
        source: serde_yaml::Error,
    },
    /// An entry names no scenario.
    #[error("{list} lists {pattern:?}, but no scenario has such an id")]
    NoScenario {
        /// The list.
        list: String,
        /// What it has in place of an id.
        pattern: String,
    },
}

/// Which scenarios are skipped on which clusters, and why.
#[derive(Clone, Debug)]
pub struct Skips {
    /// Where it is from, for messages.
    name: String,
    entries: Vec<Entry>,
}

/// Scenarios that are skipped for one reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Entry {
    /// The reason as reports show it; `*` stands for any text.
    reason: String,
    /// Ids, or `area/*`.
    scenarios: Vec<String>,
    /// Where; everywhere when left out.
    places: Option<Vec<Place>>,
    /// On which kinds of cluster; on all when left out.
    platforms: Option<Vec<Platform>>,
    /// Only where the control plane takes pods, or only where it does not.
    schedulable_control_plane: Option<bool>,
}

impl Skips {
    /// Returns the list of a file, or the one that [`BUILT_IN`] stands for.
    pub fn load(path: &Path, scenarios: &[Scenario]) -> Result<Self, Error> {
        if path == Path::new(BUILT_IN) {
            return Self::parse(BUILT_IN_NAME, BUILT_IN_TEXT, scenarios);
        }
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&path.display().to_string(), &text, scenarios)
    }

    /// Returns the list that the environment asks for, if it does.
    pub fn from_environment(scenarios: &[Scenario]) -> Result<Option<Self>, Error> {
        let value = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        value
            .map(|value| Self::load(Path::new(&value), scenarios))
            .transpose()
    }

    fn parse(name: &str, text: &str, scenarios: &[Scenario]) -> Result<Self, Error> {
        let entries: Vec<Entry> = serde_yaml::from_str(text).map_err(|source| Error::Parse {
            list: name.to_owned(),
            source,
        })?;
        let mut patterns = entries.iter().flat_map(|entry| &entry.scenarios);
        let is_unknown = |pattern: &&String| {
            let mut ids = scenarios.iter().map(|scenario| scenario.id);
            !ids.any(|id| matches(pattern, id))
        };
        if let Some(pattern) = patterns.find(is_unknown) {
            return Err(Error::NoScenario {
                list: name.to_owned(),
                pattern: pattern.clone(),
            });
        }
        Ok(Self {
            name: name.to_owned(),
            entries,
        })
    }

    /// Returns the entries about a scenario on such a cluster.
    fn entries(&self, environment: Environment, id: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| {
            entry.applies_to(environment)
                && entry.scenarios.iter().any(|pattern| matches(pattern, id))
        })
    }

    /// Compares verdicts with the list. Returns what differs, in the order of the verdicts.
    fn differences<'a>(
        &self,
        environment: Environment,
        verdicts: impl IntoIterator<Item = (&'a str, &'a Verdict)>,
    ) -> Vec<String> {
        let difference = |(id, verdict): (&str, &Verdict)| {
            let mut listed = self.entries(environment, id).map(|entry| &entry.reason);
            match verdict {
                Verdict::Passed => {
                    let reason = listed.next()?;
                    Some(format!("{id} passed; the list has it skipped: {reason}"))
                }
                Verdict::Skipped { reason, .. } => {
                    let reasons: Vec<&String> = listed.collect();
                    if reasons.is_empty() {
                        Some(format!("{id} was skipped and is not listed: {reason}"))
                    } else if reasons.iter().any(|listed| matches(listed, reason)) {
                        None
                    } else {
                        let reasons: Vec<&str> = reasons.into_iter().map(String::as_str).collect();
                        let reasons = reasons.join("; or: ");
                        Some(format!(
                            "{id} was skipped for another reason than listed: {reason}; listed: {reasons}"
                        ))
                    }
                }
                Verdict::Failed(_) | Verdict::Interrupted { .. } => None,
            }
        };
        verdicts.into_iter().filter_map(difference).collect()
    }

    /// Compares verdicts with the list and reports what differs. Returns whether all is as listed.
    pub fn check<'a>(
        &self,
        environment: Environment,
        verdicts: impl IntoIterator<Item = (&'a str, &'a Verdict)>,
        stream: &Stream,
    ) -> bool {
        let differences = self.differences(environment, verdicts);
        if differences.is_empty() {
            return true;
        }
        let number = differences.len();
        let failure = Failure {
            message: format!(
                "{number} {} not as {} has it for this cluster ({environment})",
                if number == 1 {
                    "scenario is"
                } else {
                    "scenarios are"
                },
                self.name
            ),
            details: differences,
            ..Failure::default()
        };
        stream.emit(Event::PhaseFailed {
            unit: SKIPS.to_owned(),
            failure,
        });
        false
    }
}

impl Entry {
    fn applies_to(&self, environment: Environment) -> bool {
        let Environment {
            place,
            platform,
            schedulable_control_plane,
        } = environment;
        self.places
            .as_ref()
            .is_none_or(|places| places.contains(&place))
            && self
                .platforms
                .as_ref()
                .is_none_or(|platforms| platforms.contains(&platform))
            && self
                .schedulable_control_plane
                .is_none_or(|wanted| wanted == schedulable_control_plane)
    }
}

/// Returns whether a text is as a pattern says, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return pattern == text;
    };
    text.strip_prefix(before).is_some_and(|rest| {
        let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
        ends.any(|at| matches(after, &rest[at..]))
    })
}

#[cfg(test)]
mod tests;
