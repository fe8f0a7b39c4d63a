//! The scheduler's configuration: the built-in one, edited as an untyped tree so that unknown keys survive (operator.md 5.4).

use api::names;
use api::scheduler::v1::{
    CacheResyncDetectionMode, ResourceSpecParams, SchedulerInformerMode, ScoringStrategyType,
};
use serde_json::{Map, Value, json};

/// The built-in configuration (operator.md 6.4). `KNIDebug` is a plugin that the scheduler image registers.
const BUILTIN: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
profiles:
- schedulerName: topo-aware-scheduler
  plugins:
    multiPoint:
      disabled:
      - name: DynamicResources
      enabled:
      - name: NodeResourceTopologyMatch
    filter:
      disabled:
      - name: '*'
      enabled:
      - name: NodeUnschedulable
      - name: NodeName
      - name: TaintToleration
      - name: NodeAffinity
      - name: NodePorts
      - name: KNIDebug
      - name: NodeResourcesFit
      - name: NodeResourceTopologyMatch
      - name: VolumeRestrictions
      - name: NodeVolumeLimits
      - name: VolumeBinding
      - name: VolumeZone
      - name: PodTopologySpread
      - name: InterPodAffinity
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourceTopologyMatchArgs
      scoringStrategy:
        type: LeastAllocated
";

/// The settings from the custom resource.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the leader election lease.
    pub namespace: String,
    /// Name of the profile; the built-in one when absent.
    pub profile: Option<String>,
    /// Resync period of the cache in seconds. Zero or less omits the key, which turns the cache off.
    pub cache_resync_seconds: i64,
    /// Which pods of other schedulers count.
    pub detection: CacheResyncDetectionMode,
    /// Pod informer of the cache.
    pub informer: SchedulerInformerMode,
    /// Kind of score.
    pub scoring: ScoringStrategyType,
    /// Weights of the score; if empty the scheduler's own apply.
    pub resources: Vec<ResourceSpecParams>,
    /// Whether placement may preempt.
    pub preemption: bool,
    /// Whether the pods elect a leader. The original's do when there are several (operator.md 5.4).
    pub leader_elect: bool,
}

impl Settings {
    /// Returns the settings of one pod for a resource that says nothing.
    pub fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            profile: None,
            cache_resync_seconds: 5,
            detection: CacheResyncDetectionMode::Relaxed,
            informer: SchedulerInformerMode::Dedicated,
            scoring: ScoringStrategyType::LeastAllocated,
            resources: Vec::new(),
            preemption: false,
            leader_elect: false,
        }
    }
}

/// The configuration cannot be edited.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not valid YAML.
    #[error("scheduler configuration is not valid YAML")]
    Yaml(#[source] serde_yaml::Error),
    /// An expected key or entry is missing.
    #[error("scheduler configuration has no {0}")]
    Missing(String),
}

/// Returns the built-in configuration with these settings.
pub fn render(settings: &Settings) -> Result<String, Error> {
    edit(BUILTIN, names::SCHEDULER_PROFILE, settings)
}

/// Returns a configuration with these settings in the named profile; everything else stays unchanged.
pub fn edit(text: &str, profile: &str, settings: &Settings) -> Result<String, Error> {
    let mut tree: Value = serde_yaml::from_str(text).map_err(Error::Yaml)?;
    let election = object(&mut tree, "leaderElection")?;
    election.insert("leaderElect".into(), json!(settings.leader_elect));
    election.insert("resourceNamespace".into(), json!(settings.namespace));
    election.insert("resourceName".into(), json!(names::SCHEDULER_LEASE));
    let profile = named(&mut tree, "profiles", "schedulerName", profile)?;
    let plugin = named(profile, "pluginConfig", "name", names::SCHEDULER_PLUGIN)?;
    let args = object(plugin, "args")?;
    put_or_remove(
        args,
        "cacheResyncPeriodSeconds",
        (settings.cache_resync_seconds > 0).then(|| json!(settings.cache_resync_seconds)),
    );
    put_or_remove(
        args,
        "preemptionMode",
        settings.preemption.then(|| json!("Enabled")),
    );
    let cache = object_entry(args, "cache");
    cache.insert("resyncMethod".into(), json!("Autodetect"));
    let detect = match settings.detection {
        CacheResyncDetectionMode::Relaxed => "OnlyExclusiveResources",
        CacheResyncDetectionMode::Aggressive => "All",
    };
    cache.insert("foreignPodsDetect".into(), json!(detect));
    cache.insert("informerMode".into(), json!(settings.informer));
    let strategy = object_entry(args, "scoringStrategy");
    strategy.insert("type".into(), json!(settings.scoring));
    if !settings.resources.is_empty() {
        strategy.insert("resources".into(), json!(settings.resources));
    }
    if let Some(name) = settings.profile.as_ref().filter(|name| !name.is_empty())
        && let Some(profile) = profile.as_object_mut()
    {
        profile.insert("schedulerName".into(), json!(name));
    }
    serde_yaml::to_string(&tree).map_err(Error::Yaml)
}

fn object<'a>(tree: &'a mut Value, key: &str) -> Result<&'a mut Map<String, Value>, Error> {
    tree.get_mut(key)
        .and_then(Value::as_object_mut)
        .ok_or_else(|| Error::Missing(key.into()))
}

fn named<'a>(
    tree: &'a mut Value,
    list: &str,
    key: &str,
    name: &str,
) -> Result<&'a mut Value, Error> {
    let items = tree.get_mut(list).and_then(Value::as_array_mut);
    let found = items.and_then(|items| {
        items
            .iter_mut()
            .find(|item| item.get(key).and_then(Value::as_str) == Some(name))
    });
    found.ok_or_else(|| Error::Missing(format!("{name:?} in {list}")))
}

/// Returns the object at a key. Inserts an empty one if there is none.
fn object_entry<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(key).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    value
        .as_object_mut()
        .expect("was made an object just before")
}

fn put_or_remove(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => map.insert(key.into(), value),
        None => map.remove(key),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new("ns")
    }

    fn tree(settings: &Settings) -> Value {
        serde_yaml::from_str(&render(settings).unwrap()).unwrap()
    }

    #[test]
    fn defaults_are_written_out() {
        let tree = tree(&settings());
        assert_eq!(
            tree["leaderElection"],
            json!({"leaderElect": false, "resourceNamespace": "ns", "resourceName": "numa-scheduler-leader"})
        );
        let profile = &tree["profiles"][0];
        assert_eq!(profile["schedulerName"], "topo-aware-scheduler");
        assert_eq!(
            profile["pluginConfig"][0]["args"],
            json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "NodeResourceTopologyMatchArgs",
                "cacheResyncPeriodSeconds": 5,
                "cache": {"resyncMethod": "Autodetect", "foreignPodsDetect": "OnlyExclusiveResources", "informerMode": "Dedicated"},
                "scoringStrategy": {"type": "LeastAllocated"},
            })
        );
        let filters: Vec<&str> = profile["plugins"]["filter"]["enabled"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["name"].as_str().unwrap())
            .collect();
        let wanted = "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts KNIDebug NodeResourcesFit NodeResourceTopologyMatch \
                      VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity";
        assert_eq!(filters.join(" "), wanted);
    }

    #[test]
    fn every_setting_reaches_its_key() {
        let tree = tree(&Settings {
            profile: Some("mine".into()),
            cache_resync_seconds: 0,
            detection: CacheResyncDetectionMode::Aggressive,
            informer: SchedulerInformerMode::Shared,
            scoring: ScoringStrategyType::BalancedAllocation,
            resources: vec![ResourceSpecParams {
                name: "cpu".into(),
                weight: 3,
            }],
            preemption: true,
            leader_elect: true,
            ..settings()
        });
        assert_eq!(tree["leaderElection"]["leaderElect"], true);
        assert_eq!(tree["profiles"][0]["schedulerName"], "mine");
        let args = &tree["profiles"][0]["pluginConfig"][0]["args"];
        assert_eq!(args.get("cacheResyncPeriodSeconds"), None);
        assert_eq!(args["cache"]["foreignPodsDetect"], "All");
        assert_eq!(args["cache"]["informerMode"], "Shared");
        assert_eq!(
            args["scoringStrategy"],
            json!({"type": "BalancedAllocation", "resources": [{"name": "cpu", "weight": 3}]})
        );
        assert_eq!(args["preemptionMode"], "Enabled");
    }

    #[test]
    fn unknown_keys_and_other_profiles_survive() {
        let text = "leaderElection: {}\nextra: 1\nprofiles:\n- schedulerName: other\n- schedulerName: p\n  keep: me\n  pluginConfig:\n  \
                    - name: NodeResourceTopologyMatch\n    args: {future: true}\n";
        let tree: Value = serde_yaml::from_str(&edit(text, "p", &settings()).unwrap()).unwrap();
        assert_eq!(tree["extra"], 1);
        assert_eq!(tree["profiles"][0], json!({"schedulerName": "other"}));
        assert_eq!(tree["profiles"][1]["keep"], "me");
        assert_eq!(
            tree["profiles"][1]["pluginConfig"][0]["args"]["future"],
            true
        );
    }

    #[test]
    fn missing_profile_is_an_error() {
        let error = edit("leaderElection: {}\nprofiles: []\n", "p", &settings()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "scheduler configuration has no \"p\" in profiles"
        );
    }
}
