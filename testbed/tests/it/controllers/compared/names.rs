//! Objects as lines, without what differs from run to run: generated names and times.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Annotation of endpoint slices, which is present or absent depending on timing.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Generated names, and their replacements in the comparison.
#[derive(Default)]
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    /// Records that a name with a random or computed suffix is replaced by its prefix.
    pub(super) fn learn(&mut self, kind: &str, object: &DynamicObject) {
        let name = object.name_any();
        let owner = object.owner_references().first();
        let beginning = match kind {
            "ReplicaSet" | "ControllerRevision" | "EndpointSlice" => {
                owner.map(|owner| owner.name.clone())
            }
            // a pod of a stateful set keeps its name
            "Pod" => owner
                .filter(|owner| owner.kind != "StatefulSet")
                .map(|owner| match owner.kind.as_str() {
                    "ReplicaSet" => owner
                        .name
                        .rsplit_once('-')
                        .map_or("", |(name, _)| name)
                        .to_owned(),
                    _ => owner.name.clone(),
                }),
            _ => None,
        };
        if let Some(beginning) = beginning {
            self.0.insert(name, format!("{beginning}-*"));
        }
    }

    fn replace(&self, text: &str) -> String {
        // The longest names come first, because the name of a pod begins with that of its ReplicaSet.
        let mut names: Vec<_> = self.0.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut text = text.to_owned();
        for (name, called) in names {
            text = text.replace(name, called);
        }
        text
    }

    /// Returns the line of an object, if it is compared.
    pub(super) fn line(&self, kind: &str, object: &DynamicObject) -> Option<String> {
        if kind == "Event" {
            return self.event(object);
        }
        let owners: Vec<String> = object
            .owner_references()
            .iter()
            .map(|owner| {
                let (controller, block) = (owner.controller, owner.block_owner_deletion);
                format!("{}/{} {controller:?} {block:?}", owner.kind, owner.name)
            })
            .collect();
        let mut labels = object.labels().clone();
        for hash in [
            "pod-template-hash",
            "controller-revision-hash",
            "controller.kubernetes.io/hash",
        ] {
            if let Some(value) = labels.get_mut(hash) {
                "*".clone_into(value);
            }
        }
        for uid in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            if let Some(value) = labels.get_mut(uid) {
                "*".clone_into(value);
            }
        }
        let status = match kind {
            // The rest of a pod's status comes from kubelets.
            "Pod" => json!(object.data["status"]["phase"]),
            "EndpointSlice" => {
                let endpoints = object.data["endpoints"].as_array().into_iter().flatten();
                let conditions: Vec<&Value> = endpoints.map(|one| &one["conditions"]).collect();
                json!({"conditions": conditions, "ports": object.data["ports"]})
            }
            "ReplicaSet" => {
                json!({"status": object.data["status"], "wanted": object.data["spec"]["replicas"]})
            }
            "ControllerRevision" => object.data["revision"].clone(),
            _ => object.data["status"].clone(),
        };
        // The real controller drops this annotation when it writes a slice a second time for the same change of a pod.
        let annotations = object.annotations().keys();
        let annotations: Vec<_> = annotations.filter(|key| *key != TRIGGER).collect();
        let text = format!(
            "{kind} {} owners {owners:?} labels {labels:?} annotations {annotations:?} finalizers {:?} deleting {} generation {:?} {}",
            object.name_any(),
            object.finalizers(),
            object.metadata.deletion_timestamp.is_some(),
            // How often a slice is written depends on how fast pods come and go.
            object
                .metadata
                .generation
                .filter(|_| kind != "EndpointSlice"),
            without_times(&status),
        );
        Some(self.replace(&text))
    }

    /// Returns the line of an event of a controller. Schedulers and kubelets have their own tests.
    fn event(&self, object: &DynamicObject) -> Option<String> {
        let data = &object.data;
        let component = data["source"]["component"].as_str()?;
        // nothing binds claims in an embedded cluster, so nothing says why they are not bound either
        if !component.ends_with("controller") || component == "persistentvolume-controller" {
            return None;
        }
        // Such an event depends on timing: two writers changed one object, and one of them tried again.
        if data["message"]
            .as_str()?
            .contains("the object has been modified")
        {
            return None;
        }
        let about = &data["involvedObject"];
        let text = format!(
            "Event {}/{} {} {} {} by {component}",
            about["kind"].as_str()?,
            about["name"].as_str()?,
            data["type"].as_str()?,
            data["reason"].as_str()?,
            data["message"].as_str()?,
        );
        let replaced = self.replace(&text);
        // The object of the event may be gone, so its name is not known.
        let words = replaced.split(' ').map(without_random_end);
        Some(words.collect::<Vec<_>>().join(" "))
    }
}

/// Removes the suffixes of a generated name from a word: a template hash and five letters, or one of them.
fn without_random_end(word: &str) -> String {
    const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
    let trimmed = word.trim_end_matches([',', '.']);
    let mut rest = trimmed;
    while let Some((before, end)) = rest.rsplit_once('-') {
        let made_up =
            (5..=10).contains(&end.len()) && end.chars().all(|letter| LETTERS.contains(letter));
        if !made_up {
            break;
        }
        rest = before;
    }
    if rest == trimmed {
        return word.to_owned();
    }
    format!("{rest}-*{}", &word[trimmed.len()..])
}

/// Returns JSON without times.
pub(super) fn without_times(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| !key.ends_with("Time") && !key.ends_with("Timestamp"))
            .map(|(key, value)| (key.clone(), without_times(value)))
            .collect(),
        Value::Array(list) => list.iter().map(without_times).collect(),
        other => other.clone(),
    }
}
