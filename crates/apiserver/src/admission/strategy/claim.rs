//! The source of the data of a claim of a volume, which has two fields: the newer one can name any kind.

use serde_json::{Value, json};

use crate::values::fields::{copy, remove};

const OLDER: &str = "dataSource";
const NEWER: &str = "dataSourceRef";

/// Drops sources that a real server ignores, and lets both fields tell the same where one is given.
pub(super) fn settle(spec: &mut Value, before: Option<&Value>) {
    let had = |field: &str| before.is_some_and(|before| !before[field].is_null());
    // a source in another namespace needs a feature that is not on
    if is_elsewhere(spec) && !had(NEWER) {
        remove(spec, NEWER);
    }
    let has_neither_before = !had(OLDER) && !had(NEWER);
    if has_neither_before && spec[NEWER].is_null() && !is_of_old(&spec[OLDER]) {
        remove(spec, OLDER);
    }
    match (spec[OLDER].is_null(), spec[NEWER].is_null()) {
        (false, true) => follow(spec, OLDER, NEWER),
        (true, false) if !is_elsewhere(spec) => follow(spec, NEWER, OLDER),
        _ => {}
    }
}

fn is_elsewhere(spec: &Value) -> bool {
    let namespace = spec[NEWER]["namespace"].as_str();
    namespace.is_some_and(|namespace| !namespace.is_empty())
}

/// Returns whether a source is of a kind that the older field can name.
fn is_of_old(source: &Value) -> bool {
    let of = |field: &str| source[field].as_str().unwrap_or_default();
    matches!(
        (of("apiGroup"), of("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

fn follow(spec: &mut Value, from: &str, to: &str) {
    let mut source = json!({});
    for field in ["apiGroup", "kind", "name"] {
        copy(&spec[from], &mut source, field);
    }
    spec[to] = source;
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::older(json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "c"}}), "c")]
    #[case::newer(json!({"dataSourceRef": {"apiGroup": "a.example.com", "kind": "K", "name": "c"}}), "c")]
    fn both_fields_tell_the_source(#[case] mut spec: Value, #[case] name: &str) {
        settle(&mut spec, None);
        for field in [OLDER, NEWER] {
            assert_eq!(spec[field]["name"], name, "{spec}");
        }
    }

    #[rstest]
    #[case::kind(json!({"dataSource": {"apiGroup": "a.example.com", "kind": "K", "name": "c"}}))]
    #[case::namespace(json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "c", "namespace": "n"}}))]
    fn a_source_that_cannot_be_is_dropped(#[case] mut spec: Value) {
        settle(&mut spec, None);
        assert_eq!(spec, json!({}));
    }

    #[test]
    fn a_source_stays_in_a_change() {
        let mut given =
            json!({"dataSource": {"apiGroup": "a.example.com", "kind": "K", "name": "c"}});
        let before =
            json!({"dataSource": given["dataSource"], "dataSourceRef": given["dataSource"]});
        settle(&mut given, Some(&before));
        assert_eq!(given, before);
    }
}
