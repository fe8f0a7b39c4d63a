//! The scheduler's configuration: the stack's own, with the parameters of the command line (deployer.md 7.3).

use api::names;
use manifests::scheduler::config;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Profile of the scheduler unless a flag names another.
pub const PROFILE: &str = "topology-aware-scheduler";
/// Lease of several schedulers unless a flag names another.
pub const LEASE: &str = "nrtmatch-scheduler";

/// How often the scheduler's cache is compared with the cluster, and what it counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CacheParams {
    /// `Autodetect`, `All` or `OnlyExclusiveResources`.
    pub resync_method: String,
    /// `None`, `All` or `OnlyExclusiveResources`.
    pub foreign_pods_detect: String,
    /// `Shared` or `Dedicated`; the scheduler's own default when absent.
    pub informer_mode: Option<String>,
}

impl Default for CacheParams {
    fn default() -> Self {
        Self {
            resync_method: "Autodetect".into(),
            foreign_pods_detect: "OnlyExclusiveResources".into(),
            informer_mode: None,
        }
    }
}

/// How nodes are scored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoringStrategy {
    /// `MostAllocated`, `BalancedAllocation` or `LeastAllocated`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Weights of resources.
    #[serde(default)]
    pub resources: Vec<Weight>,
}

/// Weight of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// Name of the resource.
    pub name: String,
    /// Its weight.
    pub weight: i64,
}

/// The lease by which several schedulers elect one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its namespace; that of the scheduler when absent.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// Parameters that the command line gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Name of the profile.
    pub profile: String,
    /// Resync period of the cache in seconds; 0 turns the cache off.
    pub resync_seconds: i64,
    /// Parameters of the cache.
    pub cache: CacheParams,
    /// Score; that of the stack when absent.
    pub scoring: Option<ScoringStrategy>,
    /// The lease.
    pub lease: Lease,
}

/// A parameter is not valid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is no YAML of this form.
    #[error("not a file of this form (deployer --help names the keys)")]
    Yaml(#[source] serde_yaml::Error),
    /// The value of a key is none of those that it may have.
    #[error("unsupported {key}: {value} (it is one of {allowed})")]
    Value {
        /// Name of the parameter, as the original names it.
        key: &'static str,
        /// The value.
        value: String,
        /// The values that it may have.
        allowed: String,
    },
    /// The lease has more than a namespace and a name.
    #[error("malformed leader election resource: {0:?}")]
    Lease(String),
    /// The stack's own configuration cannot be edited.
    #[error("failed to render the scheduler configuration")]
    Render(#[from] config::Error),
}

fn one_of(key: &'static str, value: &str, allowed: &[&str]) -> Result<(), Error> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(Error::Value {
        key,
        value: value.to_owned(),
        allowed: allowed.join(", "),
    })
}

impl CacheParams {
    /// Reads the text of a file over the defaults.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let params: Option<Self> = serde_yaml::from_str(text).map_err(Error::Yaml)?;
        let params = params.unwrap_or_default();
        let methods = ["Autodetect", "All", "OnlyExclusiveResources"];
        one_of("cacheResyncMethod", &params.resync_method, &methods)?;
        let modes = ["None", "All", "OnlyExclusiveResources"];
        one_of("foreignPodsDetectMode", &params.foreign_pods_detect, &modes)?;
        if let Some(mode) = &params.informer_mode {
            one_of("cacheInformerMode", mode, &["Shared", "Dedicated"])?;
        }
        Ok(params)
    }
}

impl ScoringStrategy {
    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let strategy: Self = serde_yaml::from_str(text).map_err(Error::Yaml)?;
        let kinds = ["MostAllocated", "BalancedAllocation", "LeastAllocated"];
        one_of("scoringStrategyType", &strategy.kind, &kinds)?;
        Ok(strategy)
    }
}

impl Lease {
    /// Parses `NAMESPACE/NAME`; an empty half takes its default, and a word alone is a name.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let filled = |part: &str| (!part.is_empty()).then(|| part.to_owned());
        let parts: Vec<&str> = text.split('/').collect();
        let (namespace, name) = match parts[..] {
            [name] => ("", name),
            [namespace, name] => (namespace, name),
            _ => return Err(Error::Lease(text.to_owned())),
        };
        Ok(Self {
            namespace: filled(namespace),
            name: filled(name).unwrap_or_else(|| LEASE.to_owned()),
        })
    }
}

/// Returns the text of the configuration for a scheduler in this namespace with this number of pods.
pub fn render(params: &Params, namespace: &str, replicas: i32) -> Result<String, Error> {
    let base = config::Settings {
        profile: Some(params.profile.clone()),
        cache_resync_seconds: params.resync_seconds,
        leader_elect: replicas > 1,
        ..config::Settings::new(namespace)
    };
    let text = config::render(&base)?;
    let mut tree: Value = serde_yaml::from_str(&text).map_err(Error::Yaml)?;
    if let Some(election) = tree["leaderElection"].as_object_mut() {
        let lease_namespace = params.lease.namespace.as_deref().unwrap_or(namespace);
        election.insert("resourceNamespace".into(), json!(lease_namespace));
        election.insert("resourceName".into(), json!(params.lease.name));
    }
    if let Some(args) = plugin_args(&mut tree) {
        let mut cache = json!({
            "resyncMethod": params.cache.resync_method,
            "foreignPodsDetect": params.cache.foreign_pods_detect,
        });
        if let Some(mode) = &params.cache.informer_mode {
            cache["informerMode"] = json!(mode);
        }
        args.insert("cache".into(), cache);
        if let Some(scoring) = &params.scoring {
            let mut strategy = json!({"type": scoring.kind});
            if !scoring.resources.is_empty() {
                strategy["resources"] = json!(scoring.resources);
            }
            args.insert("scoringStrategy".into(), strategy);
        }
    }
    serde_yaml::to_string(&tree).map_err(Error::Yaml)
}

/// Returns the arguments of the NUMA-aware plugin in the only profile.
fn plugin_args(tree: &mut Value) -> Option<&mut Map<String, Value>> {
    let plugins = tree
        .pointer_mut("/profiles/0/pluginConfig")?
        .as_array_mut()?;
    let plugin = plugins
        .iter_mut()
        .find(|plugin| plugin["name"] == names::SCHEDULER_PLUGIN)?;
    plugin.get_mut("args")?.as_object_mut()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn params() -> Params {
        Params {
            profile: PROFILE.into(),
            resync_seconds: 5,
            cache: CacheParams::default(),
            scoring: None,
            lease: Lease::parse("").unwrap(),
        }
    }

    fn tree(params: &Params, replicas: i32) -> Value {
        serde_yaml::from_str(&render(params, "tas-scheduler", replicas).unwrap()).unwrap()
    }

    fn args(tree: &Value) -> &Value {
        &tree["profiles"][0]["pluginConfig"][0]["args"]
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let tree = tree(&params(), 1);
        assert_eq!(tree["profiles"][0]["schedulerName"], PROFILE);
        assert_eq!(tree["leaderElection"]["leaderElect"], false);
        let args = args(&tree);
        assert_eq!(args["cacheResyncPeriodSeconds"], 5);
        assert_eq!(
            args["cache"],
            json!({"foreignPodsDetect": "OnlyExclusiveResources", "resyncMethod": "Autodetect"})
        );
        assert_eq!(args.get("preemptionMode"), None);
    }

    #[test]
    fn every_parameter_reaches_its_key() {
        let cache = "resyncMethod: All\nforeignPodsDetect: None\ninformerMode: Shared\n";
        let scoring = "type: MostAllocated\nresources:\n- name: cpu\n  weight: 3\n";
        let tree = tree(
            &Params {
                profile: "mine".into(),
                resync_seconds: 0,
                cache: CacheParams::parse(cache).unwrap(),
                scoring: Some(ScoringStrategy::parse(scoring).unwrap()),
                lease: Lease::parse("ns/").unwrap(),
            },
            2,
        );
        assert_eq!(
            tree["leaderElection"],
            json!({"leaderElect": true, "resourceNamespace": "ns", "resourceName": LEASE})
        );
        assert_eq!(tree["profiles"][0]["schedulerName"], "mine");
        let args = args(&tree);
        assert_eq!(args.get("cacheResyncPeriodSeconds"), None);
        assert_eq!(
            args["cache"],
            json!({"foreignPodsDetect": "None", "resyncMethod": "All", "informerMode": "Shared"})
        );
        assert_eq!(
            args["scoringStrategy"],
            json!({"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]})
        );
    }

    #[rstest]
    #[case::method("resyncMethod: Never", "unsupported cacheResyncMethod: Never")]
    #[case::pods("foreignPodsDetect: Some", "unsupported foreignPodsDetectMode: Some")]
    #[case::informer("informerMode: Own", "unsupported cacheInformerMode: Own")]
    #[case::unknown_key("resync: 5", "not a file of this form")]
    fn wrong_parameters_are_refused(#[case] text: &str, #[case] expected: &str) {
        let error = CacheParams::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }

    #[rstest]
    #[case::nothing("", None, LEASE)]
    #[case::name("mine", None, "mine")]
    #[case::both("ns/mine", Some("ns"), "mine")]
    #[case::name_after_nothing("/mine", None, "mine")]
    fn halves_of_a_lease_have_defaults(
        #[case] text: &str,
        #[case] namespace: Option<&str>,
        #[case] name: &str,
    ) {
        let lease = Lease::parse(text).unwrap();
        assert_eq!(
            (lease.namespace.as_deref(), lease.name.as_str()),
            (namespace, name)
        );
        assert!(Lease::parse("a/b/c").is_err());
    }
}
