//! What the TLS profile of the cluster means for kubelets (operator.md 2.2).

use api::openshift::config::TlsSecurityProfile;
use serde_json::{Map, Value};

/// The smallest TLS version in a kubelet's configuration.
const MIN_VERSION: &str = "tlsMinVersion";

/// TLS settings other than those of the profile `Intermediate`, which nodes come with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Settings {
    min_version: String,
    /// Suites of a profile of one's own. They are part of what is rendered, so that a change rolls the pools; kubelets do not get them, because
    /// they know suites by other names.
    ciphers: Vec<String>,
}

impl Settings {
    /// Returns the settings of a profile; `None` for `Intermediate`, which is also what no and an unknown name stand for.
    pub(super) fn of(profile: &TlsSecurityProfile) -> Option<Self> {
        let (min_version, ciphers) = match profile.profile.as_str() {
            "Old" => ("VersionTLS10", Vec::new()),
            "Modern" => ("VersionTLS13", Vec::new()),
            "Custom" => {
                let custom = profile.custom.as_ref()?;
                (custom.min_version.as_str(), custom.ciphers.clone())
            }
            _ => return None,
        };
        Some(Self {
            min_version: min_version.to_owned(),
            ciphers,
        })
    }

    /// Adds the smallest version to a kubelet's configuration, unless that says something else.
    pub(super) fn add_to(&self, payload: Option<Value>) -> Value {
        let mut fields = match payload {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let is_given = fields
            .get(MIN_VERSION)
            .and_then(Value::as_str)
            .is_some_and(|version| !version.is_empty());
        if !is_given && !self.min_version.is_empty() {
            fields.insert(MIN_VERSION.to_owned(), self.min_version.clone().into());
        }
        Value::Object(fields)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::unset(json!({"type": ""}), None)]
    #[case::intermediate(json!({"type": "Intermediate"}), None)]
    #[case::modern(json!({"type": "Modern"}), Some(json!({"maxPods": 7, "tlsMinVersion": "VersionTLS13"})))]
    #[case::custom(
        json!({"type": "Custom", "custom": {"ciphers": ["c"], "minTLSVersion": "VersionTLS11"}}),
        Some(json!({"maxPods": 7, "tlsMinVersion": "VersionTLS11"}))
    )]
    fn kubelets_get_the_smallest_version_of_the_profile(
        #[case] profile: Value,
        #[case] expected: Option<Value>,
    ) {
        let settings = Settings::of(&serde_json::from_value(profile).unwrap());
        let payload = settings.map(|settings| settings.add_to(Some(json!({"maxPods": 7}))));
        assert_eq!(payload, expected);
    }

    #[test]
    fn version_of_a_kubelet_configuration_wins() {
        let modern = TlsSecurityProfile {
            profile: "Modern".to_owned(),
            custom: None,
        };
        let settings = Settings::of(&modern).unwrap();
        let own = json!({"tlsMinVersion": "VersionTLS12"});
        assert_eq!(settings.add_to(Some(own.clone())), own);
        let empty = settings.add_to(Some(json!({"tlsMinVersion": ""})));
        assert_eq!(empty["tlsMinVersion"], "VersionTLS13");
    }
}
