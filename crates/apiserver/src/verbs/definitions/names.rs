//! Names of custom resources: within a group, the first definition to claim a name gets it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::registry::definition::{condition, set_condition, texts};

/// Names that are in use in a group.
#[derive(Debug, Default)]
pub(super) struct NamesInUse<'a> {
    resources: BTreeSet<&'a str>,
    kinds: BTreeSet<&'a str>,
}

impl<'a> NamesInUse<'a> {
    /// Returns the names that the definitions of a group have.
    pub(super) fn of(definitions: impl Iterator<Item = &'a Value>, group: &str) -> Self {
        let mut in_use = Self::default();
        for definition in definitions.filter(|one| one["spec"]["group"] == group) {
            let names = &definition["status"]["acceptedNames"];
            let text = |field: &str| names[field].as_str().filter(|name| !name.is_empty());
            in_use.resources.extend(text("plural"));
            in_use.resources.extend(text("singular"));
            in_use.resources.extend(texts(&names["shortNames"]));
            in_use.kinds.extend(text("kind"));
            in_use.kinds.extend(text("listKind"));
        }
        in_use
    }

    fn conflict(&self, is_kind: bool, wanted: &str, has: &str) -> Option<String> {
        let in_use = if is_kind {
            &self.kinds
        } else {
            &self.resources
        };
        (wanted != has && in_use.contains(wanted)).then(|| format!("{wanted:?} is already in use"))
    }
}

/// Accepts the names of a definition that are free, and sets a condition about conflicts.
pub(super) fn accept(definition: &mut Value, in_use: &NamesInUse<'_>, now: &str) {
    let wanted = definition["spec"]["names"].clone();
    let has = definition["status"]["acceptedNames"].clone();
    let mut names = has.clone();
    let mut refused: Option<(&str, String)> = None;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (field, is_kind, reason) in [
        ("plural", false, "PluralConflict"),
        ("singular", false, "SingularConflict"),
        ("shortNames", false, "ShortNamesConflict"),
        ("kind", true, "KindConflict"),
        ("listKind", true, "ListKindConflict"),
    ] {
        let conflict = if field == "shortNames" {
            let own: Vec<&str> = texts(&has[field]).collect();
            let others = texts(&wanted[field]).filter(|name| !own.contains(name));
            let conflicts: Vec<String> = others
                .filter_map(|name| in_use.conflict(false, name, ""))
                .collect();
            match conflicts.as_slice() {
                [] => None,
                [one] => Some(one.clone()),
                many => Some(format!("[{}]", many.join(", "))),
            }
        } else {
            in_use.conflict(is_kind, &text(&wanted[field]), &text(&has[field]))
        };
        match conflict {
            Some(why) => refused = Some((reason, why)),
            None => names[field] = wanted[field].clone(),
        }
    }
    names["categories"] = wanted["categories"].clone();
    if let Some(fields) = names.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    definition["status"]["acceptedNames"] = names;
    let is_free = refused.is_none();
    match refused {
        None => set_condition(
            definition,
            "NamesAccepted",
            "True",
            "NoConflicts",
            "no conflicts found",
            now,
        ),
        Some((reason, why)) => {
            set_condition(definition, "NamesAccepted", "False", reason, &why, now);
        }
    }
    let established = condition(definition, "Established").map(|found| found["status"] == "True");
    match (established, is_free) {
        (None | Some(false), true) => {
            let message = "the initial names have been accepted";
            set_condition(
                definition,
                "Established",
                "False",
                "Installing",
                message,
                now,
            );
        }
        (None, false) => {
            let message = "not all names are accepted";
            set_condition(
                definition,
                "Established",
                "False",
                "NotAccepted",
                message,
                now,
            );
        }
        (Some(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::strategy::definition::no_accepted_names;

    fn definition(plural: &str, kind: &str) -> Value {
        json!({"spec": {"group": "g", "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
            "listKind": format!("{kind}List"), "shortNames": ["x"]}}, "status": {"acceptedNames": no_accepted_names()}})
    }

    #[test]
    fn free_names_are_accepted() {
        let mut one = definition("ones", "One");
        accept(&mut one, &NamesInUse::default(), "now");
        assert_eq!(one["status"]["acceptedNames"], one["spec"]["names"]);
        assert_eq!(one["status"]["conditions"][1]["reason"], "Installing");
    }

    #[test]
    fn the_last_conflict_is_told_and_free_names_are_taken() {
        let mut one = definition("ones", "One");
        accept(&mut one, &NamesInUse::default(), "now");
        let mut other = definition("others", "One");
        let all = [one];
        accept(&mut other, &NamesInUse::of(all.iter(), "g"), "now");
        assert_eq!(
            other["status"]["acceptedNames"],
            json!({"kind": "", "plural": "others"})
        );
        assert_eq!(
            other["status"]["conditions"][0]["reason"],
            "ListKindConflict"
        );
        assert_eq!(other["status"]["conditions"][1]["reason"], "NotAccepted");
        // another group has its own names
        accept(&mut other, &NamesInUse::of(all.iter(), "h"), "now");
        assert_eq!(other["status"]["conditions"][0]["status"], "True");
    }
}
