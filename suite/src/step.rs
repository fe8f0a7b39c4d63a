//! Why a step of a scenario stops.

use std::fmt;

use reports::event::Failure;

/// Why a scenario or the set-up stops.
#[derive(Debug)]
pub enum StepError {
    /// Something is not as expected.
    Failed(Box<Failure>),
    /// The API server refused or did not answer; during a wait this only counts as "not yet".
    Api(Box<kube::Error>),
    /// The scenario cannot give a verdict here.
    Skip(String),
}

impl StepError {
    /// Returns a failure with a message of one line.
    pub fn fail(message: impl Into<String>) -> Self {
        Self::Failed(Box::new(Failure {
            message: message.into(),
            ..Failure::default()
        }))
    }

    /// Returns a failure with what was expected and what was seen.
    pub fn mismatch(
        message: impl Into<String>,
        expected: impl fmt::Display,
        seen: impl fmt::Display,
    ) -> Self {
        Self::Failed(Box::new(Failure {
            message: message.into(),
            expected: Some(expected.to_string()),
            seen: Some(seen.to_string()),
            ..Failure::default()
        }))
    }

    /// Converts to a failure of the given step.
    pub fn into_failure(self, step: &str) -> Failure {
        match self {
            Self::Failed(mut failure) => {
                if failure.step.is_empty() {
                    step.clone_into(&mut failure.step);
                }
                *failure
            }
            Self::Api(error) => Failure {
                step: step.to_owned(),
                message: format!("the API server refused: {error}"),
                ..Failure::default()
            },
            Self::Skip(reason) => Failure {
                step: step.to_owned(),
                message: reason,
                ..Failure::default()
            },
        }
    }
}

impl From<kube::Error> for StepError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}
