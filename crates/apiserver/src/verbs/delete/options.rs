//! The options of a deletion.

use serde_json::{Value, json};

use crate::failure::{Cause, Failure, Subject};

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(in crate::verbs) struct Options {
    /// Grace period in seconds; `None` takes that of the object.
    pub(in crate::verbs) grace: Option<i64>,
    /// `Orphan`, `Background`, `Foreground` or empty.
    pub(in crate::verbs) propagation: String,
    /// The older form of `propagation`.
    pub(in crate::verbs) orphan: Option<bool>,
    /// Unique id that the object must have.
    pub(in crate::verbs) uid: Option<String>,
    /// Resource version that the object must have.
    pub(in crate::verbs) version: Option<String>,
    /// Whether nothing is written.
    pub(in crate::verbs) dry_run: bool,
}

impl Options {
    /// Parses and checks `DeleteOptions`.
    pub(in crate::verbs) fn parse(given: &Value) -> Result<Self, Failure> {
        let options = Self::parse_unchecked(given);
        options.check(given)?;
        Ok(options)
    }

    /// Parses `DeleteOptions` without checking them.
    pub(in crate::verbs) fn parse_unchecked(given: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            grace: given["gracePeriodSeconds"].as_i64(),
            propagation: text(&given["propagationPolicy"]).unwrap_or_default(),
            orphan: given["orphanDependents"].as_bool(),
            uid: text(&given["preconditions"]["uid"]),
            version: text(&given["preconditions"]["resourceVersion"]),
            dry_run: given["dryRun"]
                .as_array()
                .is_some_and(|list| list.iter().any(|item| item == "All")),
        }
    }

    /// Returns the options as admission shows them.
    pub(super) fn shown(&self) -> Value {
        let mut shown = json!({});
        if let Some(grace) = self.grace {
            shown["gracePeriodSeconds"] = json!(grace);
        }
        if !self.propagation.is_empty() {
            shown["propagationPolicy"] = json!(self.propagation);
        }
        if let Some(orphan) = self.orphan {
            shown["orphanDependents"] = json!(orphan);
        }
        for (field, value) in [("uid", &self.uid), ("resourceVersion", &self.version)] {
            if let Some(value) = value {
                shown["preconditions"][field] = json!(value);
            }
        }
        if self.dry_run {
            shown["dryRun"] = json!(["All"]);
        }
        shown
    }

    /// Refuses options that are not valid; `given` are the options as written.
    pub(in crate::verbs) fn check(&self, given: &Value) -> Result<(), Failure> {
        let mut causes = Vec::new();
        if self.orphan.is_some() && !self.propagation.is_empty() {
            causes.push(Cause::invalid(
                "propagationPolicy",
                &json!(self.propagation),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let known = ["Foreground", "Background", "Orphan"];
        if !self.propagation.is_empty() && !known.contains(&self.propagation.as_str()) {
            causes.push(Cause::unsupported(
                "propagationPolicy",
                &json!(self.propagation),
                &["Foreground", "Background", "Orphan", "nil"].map(str::to_owned),
            ));
        }
        let dry_run = &given["dryRun"];
        if dry_run
            .as_array()
            .is_some_and(|list| list.iter().any(|item| item != "All"))
        {
            let all = ["All".to_owned()];
            causes.push(Cause::unsupported("dryRun", dry_run, &all));
        }
        if causes.is_empty() {
            return Ok(());
        }
        let subject = Subject {
            group: "meta.k8s.io",
            resource: "DeleteOptions",
            name: "",
        };
        Err(Failure::invalid(&subject, &causes))
    }
}
