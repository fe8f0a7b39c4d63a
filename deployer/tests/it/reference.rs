//! What `render` prints, compared with the description of the original (deployer.md 4, 5, 6, 7): one assertion a fact, in the order of that page. Where
//! our objects differ, the assertion has what is there instead, under a comment that begins with "ours"; the page of our deployer has the reasons.

use serde_json::{Value, json};

use crate::process::deployer_with;
use crate::rendered::documents;

mod api;
mod exporters;
mod nfd;
mod openshift;
mod scheduler;

pub(crate) const KUBERNETES: &str = "-P kubernetes:v1.35";
pub(crate) const OPENSHIFT: &str = "-P openshift:4.20.0";
pub(crate) const HYPERSHIFT: &str = "-P hypershift:4.20.0";

/// What `render` has printed.
pub(crate) struct Rendered(Vec<Value>);

impl Rendered {
    pub(crate) fn new(flags: &str) -> Self {
        Self::with(&[], flags)
    }

    /// With variables of the environment.
    pub(crate) fn with(variables: &[(&str, &str)], flags: &str) -> Self {
        let ran = deployer_with(variables, &format!("{flags} render"));
        Self(documents(&ran.stdout()))
    }

    /// Returns the only object of that kind and name.
    pub(crate) fn object(&self, kind: &str, name: &str) -> &Value {
        let found = self.of(kind).filter(|it| it["metadata"]["name"] == name);
        let found: Vec<&Value> = found.collect();
        assert_eq!(found.len(), 1, "{kind} {name}");
        found[0]
    }

    /// Returns the names of all objects of a kind.
    pub(crate) fn names(&self, kind: &str) -> Vec<&str> {
        self.of(kind)
            .map(|object| object["metadata"]["name"].as_str().unwrap())
            .collect()
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    /// Returns the pods of a workload.
    pub(crate) fn pods(&self, kind: &str, name: &str) -> &Value {
        &self.object(kind, name)["spec"]["template"]["spec"]
    }
}

/// Returns the item of a list with this name.
pub(crate) fn item<'a>(list: &'a Value, name: &str) -> &'a Value {
    let mut items = list.as_array().unwrap().iter();
    let found = items.find(|item| item["name"] == name);
    assert!(found.is_some(), "no {name} in {list}");
    found.unwrap()
}

/// Returns the names of the items of a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap()).collect()
}

/// Returns the keys of an object, sorted.
pub(crate) fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

/// Returns the only subject of a binding: namespace and account.
pub(crate) fn subject(binding: &Value) -> (&Value, &Value) {
    let subjects = binding["subjects"].as_array().unwrap();
    assert_eq!(subjects.len(), 1, "{binding}");
    assert_eq!(subjects[0]["kind"], "ServiceAccount");
    (&subjects[0]["namespace"], &subjects[0]["name"])
}

/// Returns the verbs that a role gives on a resource, sorted, with the names of objects that they are restricted to.
pub(crate) fn verbs(role: &Value, group: &str, resource: &str) -> Vec<(String, Option<String>)> {
    let has = |list: &Value, word: &str| {
        list.as_array()
            .is_some_and(|all| all.contains(&json!(word)))
    };
    let rules = role["rules"].as_array().unwrap().iter();
    let fitting =
        rules.filter(|rule| has(&rule["apiGroups"], group) && has(&rule["resources"], resource));
    let mut verbs: Vec<(String, Option<String>)> = Vec::new();
    for rule in fitting {
        let names = rule["resourceNames"].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        let only = (!names.is_empty()).then(|| names.join(","));
        let own = rule["verbs"].as_array().unwrap().iter();
        verbs.extend(own.map(|verb| (verb.as_str().unwrap().to_owned(), only.clone())));
    }
    verbs.sort();
    verbs
}

/// Returns the verbs that a role gives on all objects of a resource, sorted.
pub(crate) fn plain_verbs(role: &Value, group: &str, resource: &str) -> String {
    let verbs = verbs(role, group, resource).into_iter();
    let verbs: Vec<String> = verbs
        .map(|(verb, only)| {
            assert_eq!(only, None, "{group} {resource}");
            verb
        })
        .collect();
    verbs.join(" ")
}

/// Asserts what a network policy is about: the pods, and what may go in or out.
pub(crate) fn assert_policy(
    policy: &Value,
    pods: &Value,
    types: &Value,
    egress: &Value,
    ingress: &Value,
) {
    let spec = &policy["spec"];
    assert_eq!(&spec["podSelector"]["matchLabels"], pods);
    assert_eq!(&spec["policyTypes"], types);
    assert_eq!(&spec["egress"], egress);
    assert_eq!(&spec["ingress"], ingress);
}
