//! Translates the result of a reconciliation into the conditions of a status (operator.md 3).

use std::time::Duration;

use api::conditions::{AVAILABLE, BASE, DEGRADED, PROGRESSING, REASON_INTERNAL_ERROR, UPGRADEABLE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// Result of a reconciliation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is in place and ready.
    Available,
    /// Something is not ready yet.
    Progressing {
        /// What is not ready; may be empty.
        message: String,
        /// When to reconcile again if no event arrives earlier.
        requeue_after: Duration,
    },
    /// The resource breaks a rule; only an edit helps.
    Invalid {
        /// Reason of the condition.
        reason: &'static str,
        /// What is wrong.
        message: String,
    },
    /// A call or an object failed; a retry may help.
    Failed {
        /// What failed and why.
        message: String,
    },
}

impl Outcome {
    /// Creates a failure from an error and all its causes.
    pub fn failed(error: &dyn std::error::Error) -> Self {
        Self::Failed {
            message: daemon::log::chain(error),
        }
    }

    fn is_true(&self, condition: &str) -> bool {
        match self {
            Self::Available => matches!(condition, AVAILABLE | UPGRADEABLE),
            Self::Progressing { .. } => condition == PROGRESSING,
            Self::Invalid { .. } | Self::Failed { .. } => condition == DEGRADED,
        }
    }

    pub(crate) fn reason<'a>(&'a self, condition: &'a str) -> &'a str {
        match self {
            Self::Available | Self::Progressing { .. } => condition,
            Self::Invalid { reason, .. } => reason,
            Self::Failed { .. } => REASON_INTERNAL_ERROR,
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Available => "",
            Self::Progressing { message, .. }
            | Self::Invalid { message, .. }
            | Self::Failed { message } => message,
        }
    }
}

/// A condition in addition to the base ones; its reason equals its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Type.
    pub name: &'static str,
    /// `True`, `False`, or `Unknown`.
    pub status: String,
    /// Explanation; may be empty.
    pub message: String,
    /// Generation of the resource that it was found for; absent until it is.
    pub observed_generation: Option<i64>,
}

impl Extra {
    /// Copies the condition from a list; `Unknown` if the list does not have it.
    pub fn unchanged(name: &'static str, existing: &[Condition]) -> Self {
        let found = existing.iter().find(|condition| condition.type_ == name);
        Self {
            name,
            status: found.map_or_else(|| "Unknown".into(), |found| found.status.clone()),
            message: found.map(|found| found.message.clone()).unwrap_or_default(),
            observed_generation: found.and_then(|found| found.observed_generation),
        }
    }
}

/// Returns the conditions after `outcome`: the four base conditions in order, then the extra ones, then all other existing ones. The
/// transition time changes only with the status.
pub fn updated(
    existing: &[Condition],
    outcome: &Outcome,
    extras: &[Extra],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let base = BASE.iter().map(|name| {
        if outcome.is_true(name) {
            condition(
                name,
                "True",
                outcome.reason(name),
                outcome.message(),
                generation,
            )
        } else {
            condition(name, "False", name, "", None)
        }
    });
    let extra = extras.iter().map(|extra| {
        let generation = extra.observed_generation;
        condition(
            extra.name,
            &extra.status,
            extra.name,
            &extra.message,
            generation,
        )
    });
    let mut result: Vec<Condition> = base.chain(extra).collect();
    for condition in &mut result {
        let old = existing
            .iter()
            .find(|old| old.type_ == condition.type_ && old.status == condition.status);
        condition.last_transition_time =
            old.map_or_else(|| Time(now), |old| old.last_transition_time.clone());
    }
    let others = existing
        .iter()
        .filter(|old| !result.iter().any(|new| new.type_ == old.type_))
        .cloned()
        .collect::<Vec<_>>();
    result.extend(others);
    result
}

fn condition(
    name: &str,
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
) -> Condition {
    Condition {
        type_: name.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn brief(conditions: &[Condition]) -> Vec<String> {
        conditions
            .iter()
            .map(|c| {
                format!(
                    "{}={} {} {:?} {:?}",
                    c.type_, c.status, c.reason, c.message, c.observed_generation
                )
            })
            .collect()
    }

    #[test]
    fn success_is_available_and_upgradeable_with_empty_messages() {
        let result = updated(&[], &Outcome::Available, &[], Some(3), at(10));
        assert_eq!(
            brief(&result),
            [
                "Available=True Available \"\" Some(3)",
                "Upgradeable=True Upgradeable \"\" Some(3)",
                "Progressing=False Progressing \"\" None",
                "Degraded=False Degraded \"\" None",
            ]
        );
    }

    #[test]
    fn progress_keeps_its_own_reason() {
        let outcome = Outcome::Progressing {
            message: "ns/ds is updating".into(),
            requeue_after: Duration::from_secs(5),
        };
        let result = updated(&[], &outcome, &[], Some(1), at(10));
        assert_eq!(
            brief(&result)[2],
            "Progressing=True Progressing \"ns/ds is updating\" Some(1)"
        );
        assert_eq!(brief(&result)[0], "Available=False Available \"\" None");
    }

    #[test]
    fn failures_and_broken_rules_degrade_with_their_reasons() {
        let failed = updated(
            &[],
            &Outcome::Failed {
                message: "boom".into(),
            },
            &[],
            None,
            at(1),
        );
        assert_eq!(
            brief(&failed)[3],
            "Degraded=True InternalError \"boom\" None"
        );
        let invalid = updated(
            &[],
            &Outcome::Invalid {
                reason: "CustomUserImage",
                message: "no".into(),
            },
            &[],
            None,
            at(1),
        );
        assert_eq!(
            brief(&invalid)[3],
            "Degraded=True CustomUserImage \"no\" None"
        );
    }

    #[test]
    fn transition_time_moves_only_when_the_status_flips() {
        let first = updated(&[], &Outcome::Available, &[], Some(1), at(10));
        let second = updated(&first, &Outcome::Available, &[], Some(2), at(20));
        assert!(
            second
                .iter()
                .all(|c| c.last_transition_time == Time(at(10)))
        );
        assert_eq!(second[0].observed_generation, Some(2));
        let third = updated(
            &second,
            &Outcome::Failed {
                message: "x".into(),
            },
            &[],
            Some(2),
            at(30),
        );
        let moved: Vec<&str> = third
            .iter()
            .filter(|c| c.last_transition_time == Time(at(30)))
            .map(|c| c.type_.as_str())
            .collect();
        assert_eq!(moved, ["Available", "Upgradeable", "Degraded"]);
    }

    #[test]
    fn extra_and_foreign_conditions_follow_the_base_ones() {
        let foreign = condition("Foreign", "True", "r", "m", None);
        let extra = Extra {
            name: "DedicatedInformerActive",
            status: "Unknown".into(),
            message: String::new(),
            observed_generation: Some(4),
        };
        let result = updated(&[foreign], &Outcome::Available, &[extra], None, at(1));
        let names: Vec<&str> = result.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(
            names,
            [
                "Available",
                "Upgradeable",
                "Progressing",
                "Degraded",
                "DedicatedInformerActive",
                "Foreign"
            ]
        );
        assert_eq!(
            brief(&result)[4],
            "DedicatedInformerActive=Unknown DedicatedInformerActive \"\" Some(4)"
        );
    }
}
