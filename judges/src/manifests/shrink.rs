//! The smallest manifest about which two servers differ in the same way.

use serde_json::Value;

use super::answers::Difference;
use super::documents::Document;
use super::judge::{Error, Finding, Judge};

/// Most manifests that are tried for one difference.
const TRIES: usize = 300;

/// Drops fields and items of the manifest while the difference stays.
pub(super) async fn shrink(
    judge: &Judge,
    document: &Document,
    finding: &mut Finding,
) -> Result<(), Error> {
    let wanted = Difference::between(&finding.real, &finding.ours);
    let mut tries = 0;
    let mut places = places(&finding.manifest);
    while let Some(place) = places.pop() {
        let mut smaller = finding.manifest.clone();
        if !without(&mut smaller, &place) {
            continue;
        }
        tries += 1;
        if tries > TRIES {
            break;
        }
        let (difference, real, ours) = judge.difference(document, &smaller).await?;
        if difference == wanted {
            (finding.manifest, finding.real, finding.ours) = (smaller, real, ours);
        }
    }
    Ok(())
}

/// Returns every place, so that the last one is the first to try: the outer before the inner ones, and of a list its end before its begin, so
/// that an item that goes moves no other.
fn places(manifest: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![(Vec::new(), manifest)];
    while let Some((path, value)) = open.pop() {
        let inner: Vec<(String, &Value)> = match value {
            Value::Object(fields) => {
                let fields = fields.iter();
                fields.map(|(name, field)| (name.clone(), field)).collect()
            }
            Value::Array(list) => {
                let list = list.iter().enumerate();
                list.map(|(at, item)| (at.to_string(), item)).collect()
            }
            _ => Vec::new(),
        };
        for (step, value) in inner {
            let mut path = path.clone();
            path.push(step);
            found.push(path.clone());
            open.push((path, value));
        }
    }
    found.retain(|path| path.as_slice() != ["apiVersion"] && path.as_slice() != ["kind"]);
    // by depth, then by place; a stable sort keeps the order of the items of a list
    found.sort_by_key(|path| std::cmp::Reverse(path.len()));
    found
}

/// Removes a place; returns false where there is none.
fn without(manifest: &mut Value, path: &[String]) -> bool {
    let Some((last, parents)) = path.split_last() else {
        return false;
    };
    let mut place = manifest;
    for step in parents {
        let inner = match place {
            Value::Object(fields) => fields.get_mut(step),
            Value::Array(list) => step.parse().ok().and_then(|at: usize| list.get_mut(at)),
            _ => None,
        };
        let Some(inner) = inner else {
            return false;
        };
        place = inner;
    }
    match place {
        Value::Object(fields) => fields.remove(last).is_some(),
        Value::Array(list) => match last.parse() {
            Ok(at) if at < list.len() => {
                list.remove(at);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_but_the_kind_can_go_and_the_outer_places_go_first() {
        let mut manifest = json!({"kind": "K", "spec": {"a": [1, 2]}, "x": 1});
        let mut places = places(&manifest);
        let mut order = Vec::new();
        while let Some(place) = places.pop() {
            order.push(place.join("/"));
        }
        assert_eq!(order, ["x", "spec", "spec/a", "spec/a/1", "spec/a/0"]);
        assert!(without(
            &mut manifest,
            &["spec".into(), "a".into(), "0".into()]
        ));
        assert_eq!(manifest, json!({"kind": "K", "spec": {"a": [2]}, "x": 1}));
    }
}
