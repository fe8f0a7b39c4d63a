//! Owners of the desired number of replicas. It is one of many fields of an object, and the only field of its `scale` subresource.

use serde_json::{Value, json};

use super::fields::{Element, FieldSet};
use super::owners::{Owners, Share};

/// API version of writes to the subresource.
const SCALE: &str = "autoscaling/v1";

fn path(names: &str) -> Vec<Element> {
    names
        .trim_start_matches('.')
        .split('.')
        .map(|name| Element::Field(name.to_owned()))
        .collect()
}

fn only(path: &[Element]) -> FieldSet {
    let mut set = FieldSet::default();
    set.insert(path);
    set
}

/// Returns the owners of the number that the subresource shows, given those of the object; `replicas` is the path of the number in the
/// object.
pub(crate) fn owners_of_scale(of_object: &Value, replicas: &str) -> Value {
    let (there, here) = (path(replicas), path("spec.replicas"));
    let owners = Owners::decode(of_object).unwrap_or_default().0;
    let shown = owners
        .into_iter()
        .filter(|(_, share)| share.set.has(&there))
        .map(|(owner, share)| {
            let share = Share {
                set: only(&here),
                version: SCALE.to_owned(),
                time: share.time,
            };
            (owner, share)
        });
    Owners(shown.collect())
        .encode()
        .unwrap_or_else(|| json!([]))
}

/// Returns the owners of the object, given those of its scale: an owner that is missing in the scale loses the number. Updaters are
/// identified by the API version of their writes. The subresource has another version, so they are never found in it.
pub(crate) fn owners_with_scale(
    of_object: &Value,
    of_scale: &Value,
    replicas: &str,
    version: &str,
) -> Value {
    let there = path(replicas);
    let mut scale = Owners::decode(of_scale).unwrap_or_default().0;
    let object = Owners::decode(of_object).unwrap_or_default().0;
    let mut all = Owners::default();
    for (owner, mut share) in object {
        if share.set.has(&there) && scale.remove(&owner).is_none() {
            share.set = share.set.difference(&only(&there));
        }
        if !share.set.is_empty() {
            all.0.insert(owner, share);
        }
    }
    for (owner, share) in scale {
        if share.set.is_empty() {
            continue;
        }
        let share = Share {
            set: only(&there),
            version: version.to_owned(),
            time: None,
        };
        all.0.insert(owner, share);
    }
    all.encode().unwrap_or_else(|| json!([]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": fields})
    }

    #[test]
    fn an_applier_keeps_the_number_and_an_updater_loses_it_to_an_entry_of_its_own() {
        let fields = json!({"f:spec": {"f:paused": {}, "f:replicas": {}}});
        let object = json!([entry("a", "Apply", &fields), entry("b", "Update", &fields)]);
        let scale = owners_of_scale(&object, ".spec.replicas");
        assert_eq!(scale[0]["apiVersion"], "autoscaling/v1");
        assert_eq!(scale[1]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
        let object = owners_with_scale(&object, &scale, ".spec.replicas", "apps/v1");
        let shown: Vec<(&Value, &Value)> = object
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| (&entry["manager"], &entry["fieldsV1"]))
            .collect();
        assert_eq!(
            shown,
            [
                (&json!("a"), &fields),
                (&json!("b"), &json!({"f:spec": {"f:replicas": {}}})),
                (&json!("b"), &json!({"f:spec": {"f:paused": {}}})),
            ]
        );
    }

    #[test]
    fn who_is_no_longer_an_owner_of_the_scale_loses_the_number() {
        let fields = json!({"f:spec": {"f:replicas": {}}});
        let object = json!([entry("a", "Apply", &fields)]);
        let left = owners_with_scale(&object, &json!([]), ".spec.replicas", "apps/v1");
        assert_eq!(left, json!([]));
    }
}
