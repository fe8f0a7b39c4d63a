//! Fields of a configuration that are read and checked, but change nothing in this scheduler (scheduler.md 1.2, 1.3).

use serde_json::Value;

/// A field that is given and changes nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WithoutEffect {
    /// Path of the field.
    pub field: String,
    /// What the configuration says.
    pub value: String,
    /// What happens whatever it says.
    pub instead: &'static str,
}

/// A field that changes nothing: its path, the value with which it says what happens anyway, and what that is.
type Rule = (&'static str, Option<&'static str>, &'static str);

const JSON: &str = "application/json";
const IN_JSON: &str = "the API server is spoken to in JSON";
const NO_PROFILES: &str = "no profiles are served";

/// Fields of the whole configuration.
const RULES: &[Rule] = &[
    (
        "parallelism",
        Some("1"),
        "one thread examines the nodes, and remembers what it saw of them",
    ),
    ("enableProfiling", Some("false"), NO_PROFILES),
    ("enableContentionProfiling", Some("false"), NO_PROFILES),
    (
        "delayCacheUntilActive",
        Some("false"),
        "a scheduler that waits for the lease already knows the cluster",
    ),
    ("clientConnection.contentType", Some(JSON), IN_JSON),
    ("clientConnection.acceptContentTypes", Some(JSON), IN_JSON),
];
/// Fields of the arguments of NodeResourceTopologyMatch.
const TOPOLOGY_MATCH: &[Rule] = &[
    (
        "cache.informerMode",
        None,
        "the pods of an NRT are recognised whether it covers terminated ones or not",
    ),
    (
        "cache.resyncScope",
        Some("All"),
        "changed settings of the topology manager hold as soon as an NRT has them",
    ),
    (
        "cacheResyncPeriodSeconds",
        Some("0"),
        "only whether it is above 0 matters: an NRT is taken over when it arrives",
    ),
];

/// Returns the fields of a valid configuration that are given and change nothing, unless they say what happens anyway.
pub fn without_effect(text: &str) -> Vec<WithoutEffect> {
    // a text that cannot be read has no fields, and `parse` says why
    let document: Value = serde_yaml::from_str(text).unwrap_or_default();
    let mut found = matching(&document, RULES, "");
    let profiles = document["profiles"].as_array();
    for (index, profile) in profiles.into_iter().flatten().enumerate() {
        let config = profile["pluginConfig"].as_array();
        let config = config.into_iter().flatten();
        for entry in config.filter(|entry| entry["name"] == crate::args::PLUGIN) {
            let path = format!("profiles[{index}].pluginConfig.{}.", crate::args::PLUGIN);
            found.extend(matching(&entry["args"], TOPOLOGY_MATCH, &path));
        }
    }
    found
}

fn matching(object: &Value, rules: &[Rule], path: &str) -> Vec<WithoutEffect> {
    let given = |&(field, anyway, instead): &Rule| {
        let value = field.split('.').fold(object, |value, key| &value[key]);
        let value = match value {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        (!value.is_empty() && Some(value.as_str()) != anyway).then(|| WithoutEffect {
            field: format!("{path}{field}"),
            value,
            instead,
        })
    };
    rules.iter().filter_map(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<String> {
        let header =
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        let text = format!("{header}{text}");
        crate::parse(&text).expect("valid");
        let found = without_effect(&text);
        assert!(
            found
                .iter()
                .all(|it| !it.value.is_empty() && !it.instead.is_empty())
        );
        found.into_iter().map(|found| found.field).collect()
    }

    #[test]
    fn given_fields_that_change_nothing_are_named() {
        let text = "
parallelism: 16
enableProfiling: true
enableContentionProfiling: true
delayCacheUntilActive: true
clientConnection: {contentType: application/vnd.kubernetes.protobuf, acceptContentTypes: 'application/json,x', qps: 5}
profiles:
- schedulerName: a
- schedulerName: b
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args: {cacheResyncPeriodSeconds: 5, cache: {informerMode: Shared, resyncScope: OnlyResources, resyncMethod: All}}
";
        let args = "profiles[1].pluginConfig.NodeResourceTopologyMatch";
        let expected = [
            "parallelism".to_owned(),
            "enableProfiling".to_owned(),
            "enableContentionProfiling".to_owned(),
            "delayCacheUntilActive".to_owned(),
            "clientConnection.contentType".to_owned(),
            "clientConnection.acceptContentTypes".to_owned(),
            format!("{args}.cache.informerMode"),
            format!("{args}.cache.resyncScope"),
            format!("{args}.cacheResyncPeriodSeconds"),
        ];
        assert_eq!(fields(text), expected);
    }

    #[test]
    fn what_happens_anyway_and_what_has_an_effect_is_not_named() {
        let text = "
parallelism: 1
enableProfiling: false
delayCacheUntilActive: false
percentageOfNodesToScore: 50
clientConnection: {contentType: application/json}
profiles:
- pluginConfig:
  - name: NodeResourceTopologyMatch
    args: {discardReservedNodes: true, cache: {resyncScope: All, foreignPodsDetect: None}}
  - name: NodeResourcesFit
    args: {ignoredResources: [a.b/c]}
";
        assert_eq!(fields(text), Vec::<String>::new());
        assert_eq!(fields(""), Vec::<String>::new());
    }
}
