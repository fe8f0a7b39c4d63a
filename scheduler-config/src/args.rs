//! NodeResourceTopologyMatchArgs v1 (scheduler.md 1.2).

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

/// Name of the plugin that these arguments belong to.
pub const PLUGIN: &str = "NodeResourceTopologyMatch";
/// Kind of the arguments.
pub const KIND: &str = "NodeResourceTopologyMatchArgs";

/// Arguments with every default filled in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeResourceTopologyMatchArgs {
    /// How nodes are compared.
    pub scoring_strategy: ScoringStrategy,
    /// If above 0, the cache accounts for pods that no NRT shows yet. Otherwise NRTs are used as they are.
    pub cache_resync_period_seconds: i64,
    /// Close a node from reservation to binding instead of accounting for pods. Takes precedence over the period.
    pub discard_reserved_nodes: bool,
    /// Settings of the accounting cache.
    pub cache: Cache,
    /// Whether preemption considers NUMA placement.
    pub preemption_mode: PreemptionMode,
}

/// How nodes are compared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScoringStrategy {
    /// The formula.
    pub kind: ScoringStrategyType,
    /// Weights by resource name, at least 1. A resource that is not listed has weight 1.
    pub resources: Vec<(String, i64)>,
}

/// Settings of the accounting cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cache {
    /// Which pods of other schedulers close a node until it is accounted for.
    pub foreign_pods_detect: ForeignPodsDetect,
    /// Which pods a fingerprint covers.
    pub resync_method: ResyncMethod,
    /// Which pods are known to the cache.
    pub informer_mode: InformerMode,
    /// Whether changed topology manager settings also refresh a node.
    pub resync_scope: ResyncScope,
}

/// Defines an enumeration by its Kubernetes names.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// Returns the value of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $text,)+
                })
            }
        }
    };
}

names! {
    /// Formula of the score.
    ScoringStrategyType {
        /// Prefer zones with the most left.
        LeastAllocated = "LeastAllocated",
        /// Prefer zones with the least left.
        MostAllocated = "MostAllocated",
        /// Prefer zones whose resources are used evenly.
        BalancedAllocation = "BalancedAllocation",
        /// Prefer nodes that need few zones.
        LeastNumaNodes = "LeastNUMANodes",
    }
}

names! {
    /// Which pods of other schedulers close a node.
    ForeignPodsDetect {
        /// All of them.
        All = "All",
        /// None.
        None = "None",
        /// Those with exclusive resources.
        OnlyExclusiveResources = "OnlyExclusiveResources",
    }
}

names! {
    /// Which pods a fingerprint covers.
    ResyncMethod {
        /// As the NRT says.
        Autodetect = "Autodetect",
        /// Every pod.
        All = "All",
        /// Those with exclusive resources.
        OnlyExclusiveResources = "OnlyExclusiveResources",
    }
}

names! {
    /// Which pods are known to the cache.
    InformerMode {
        /// Pods of all phases, seen by a separate watch of the cache.
        Dedicated = "Dedicated",
        /// Running pods, seen by the scheduler's watch.
        Shared = "Shared",
    }
}

names! {
    /// What refreshes a node.
    ResyncScope {
        /// Resources and topology manager settings.
        All = "All",
        /// Resources.
        OnlyResources = "OnlyResources",
    }
}

names! {
    /// Whether preemption considers NUMA placement.
    PreemptionMode {
        /// It does not.
        Disabled = "Disabled",
        /// It does.
        Enabled = "Enabled",
    }
}

/// Why arguments are refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments are of another kind.
    #[error(
        "args for plugin {PLUGIN} were not of type {KIND}.kubescheduler.config.k8s.io, got {0}"
    )]
    Kind(String),
    /// The arguments do not match the schema.
    #[error("failed to decode the args of plugin {PLUGIN}")]
    Decode(#[source] serde_json::Error),
    /// A value is none of the known names.
    #[error("{field}: invalid {what}: {value:?}")]
    Value {
        /// Path of the field.
        field: &'static str,
        /// What the value should name.
        what: &'static str,
        /// The value.
        value: String,
    },
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Wire {
    api_version: Option<String>,
    kind: Option<String>,
    scoring_strategy: Option<WireStrategy>,
    cache_resync_period_seconds: Option<i64>,
    discard_reserved_nodes: bool,
    cache: Option<WireCache>,
    preemption_mode: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WireStrategy {
    #[serde(rename = "type")]
    kind: String,
    resources: Vec<WireResource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireResource {
    name: String,
    #[serde(default)]
    weight: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WireCache {
    foreign_pods_detect: Option<String>,
    resync_method: Option<String>,
    informer_mode: Option<String>,
    resync_scope: Option<String>,
}

impl Default for NodeResourceTopologyMatchArgs {
    fn default() -> Self {
        Self {
            scoring_strategy: ScoringStrategy {
                kind: ScoringStrategyType::LeastAllocated,
                resources: default_resources(),
            },
            cache_resync_period_seconds: 0,
            discard_reserved_nodes: false,
            cache: Cache {
                foreign_pods_detect: ForeignPodsDetect::All,
                resync_method: ResyncMethod::Autodetect,
                informer_mode: InformerMode::Dedicated,
                resync_scope: ResyncScope::All,
            },
            preemption_mode: PreemptionMode::Disabled,
        }
    }
}

fn default_resources() -> Vec<(String, i64)> {
    vec![("cpu".to_owned(), 1), ("memory".to_owned(), 1)]
}

impl NodeResourceTopologyMatchArgs {
    /// Decodes the `args` object of a `pluginConfig` entry and fills in the defaults. No object means all defaults.
    ///
    /// The original does not check the names in the cache's settings and treats an unknown name as another value. Here they are
    /// refused (scheduler.md 9, point 16).
    ///
    /// # Errors
    /// When the object is of another kind, has unknown fields, or a value is none of the known names.
    pub fn decode(args: Option<&Value>) -> Result<Self, Error> {
        let wire: Wire = match args {
            None | Some(Value::Null) => Wire::default(),
            Some(value) => Wire::deserialize(value).map_err(Error::Decode)?,
        };
        let version_is_right = wire
            .api_version
            .as_deref()
            .is_none_or(|version| version.starts_with("kubescheduler.config.k8s.io/"));
        if !version_is_right || wire.kind.as_deref().is_some_and(|kind| kind != KIND) {
            let kind = wire.kind.unwrap_or_else(|| KIND.to_owned());
            let group = wire.api_version.unwrap_or_default();
            return Err(Error::Kind(format!(
                "{kind}.{}",
                group.split('/').next().unwrap_or_default()
            )));
        }
        let defaults = Self::default();
        let scoring_strategy = match wire.scoring_strategy {
            None => defaults.scoring_strategy,
            Some(strategy) => ScoringStrategy {
                // a strategy without a type is invalid: the default applies only if the whole strategy is absent
                kind: named(
                    "scoringStrategy.type",
                    "ScoringStrategyType",
                    ScoringStrategyType::from_name,
                    &strategy.kind,
                )?,
                resources: if strategy.resources.is_empty() {
                    default_resources()
                } else {
                    strategy
                        .resources
                        .into_iter()
                        .map(|resource| (resource.name, resource.weight.max(1)))
                        .collect()
                },
            },
        };
        let cache = wire.cache.unwrap_or_default();
        Ok(Self {
            scoring_strategy,
            cache_resync_period_seconds: wire.cache_resync_period_seconds.unwrap_or(0),
            discard_reserved_nodes: wire.discard_reserved_nodes,
            cache: Cache {
                foreign_pods_detect: named_or(
                    ("cache.foreignPodsDetect", "ForeignPodsDetectMode"),
                    ForeignPodsDetect::from_name,
                    cache.foreign_pods_detect,
                    defaults.cache.foreign_pods_detect,
                )?,
                resync_method: named_or(
                    ("cache.resyncMethod", "CacheResyncMethod"),
                    ResyncMethod::from_name,
                    cache.resync_method,
                    defaults.cache.resync_method,
                )?,
                informer_mode: named_or(
                    ("cache.informerMode", "CacheInformerMode"),
                    InformerMode::from_name,
                    cache.informer_mode,
                    defaults.cache.informer_mode,
                )?,
                resync_scope: named_or(
                    ("cache.resyncScope", "CacheResyncScope"),
                    ResyncScope::from_name,
                    cache.resync_scope,
                    defaults.cache.resync_scope,
                )?,
            },
            preemption_mode: named_or(
                ("preemptionMode", "PreemptionMode"),
                PreemptionMode::from_name,
                wire.preemption_mode,
                defaults.preemption_mode,
            )?,
        })
    }
}

fn named<T>(
    field: &'static str,
    what: &'static str,
    from_name: impl Fn(&str) -> Option<T>,
    value: &str,
) -> Result<T, Error> {
    from_name(value).ok_or_else(|| Error::Value {
        field,
        what,
        value: value.to_owned(),
    })
}

fn named_or<T>(
    (field, what): (&'static str, &'static str),
    from_name: impl Fn(&str) -> Option<T>,
    value: Option<String>,
    default: T,
) -> Result<T, Error> {
    value.map_or(Ok(default), |value| named(field, what, from_name, &value))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::absent(None)]
    #[case::null(Some(json!(null)))]
    #[case::empty(Some(json!({})))]
    #[case::only_its_type(Some(json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": KIND})))]
    fn empty_arguments_are_all_defaults(#[case] args: Option<Value>) {
        assert_eq!(
            NodeResourceTopologyMatchArgs::decode(args.as_ref()).unwrap(),
            NodeResourceTopologyMatchArgs::default()
        );
    }

    #[test]
    fn given_values_are_taken() {
        let args = json!({
            "scoringStrategy": {"type": "LeastNUMANodes", "resources": [{"name": "cpu", "weight": 3}, {"name": "x/y"}]},
            "cacheResyncPeriodSeconds": 5,
            "cache": {"foreignPodsDetect": "OnlyExclusiveResources", "informerMode": "Shared"},
            "preemptionMode": "Enabled",
        });
        let decoded = NodeResourceTopologyMatchArgs::decode(Some(&args)).unwrap();
        assert_eq!(
            decoded.scoring_strategy.kind,
            ScoringStrategyType::LeastNumaNodes
        );
        assert_eq!(
            decoded.scoring_strategy.resources,
            [("cpu".to_owned(), 3), ("x/y".to_owned(), 1)]
        );
        assert_eq!(decoded.cache_resync_period_seconds, 5);
        assert_eq!(
            decoded.cache.foreign_pods_detect,
            ForeignPodsDetect::OnlyExclusiveResources
        );
        assert_eq!(decoded.cache.informer_mode, InformerMode::Shared);
        assert_eq!(decoded.cache.resync_method, ResyncMethod::Autodetect);
        assert_eq!(decoded.preemption_mode, PreemptionMode::Enabled);
    }

    #[rstest]
    #[case::unknown_field(json!({"kubeconfigpath": "/x"}), "failed to decode the args")]
    #[case::strategy_without_type(json!({"scoringStrategy": {"resources": []}}), "invalid ScoringStrategyType: \"\"")]
    #[case::unknown_strategy(json!({"scoringStrategy": {"type": "Best"}}), "invalid ScoringStrategyType: \"Best\"")]
    #[case::unknown_preemption(json!({"preemptionMode": "On"}), "invalid PreemptionMode: \"On\"")]
    #[case::unknown_detection(json!({"cache": {"foreignPodsDetect": "Some"}}), "cache.foreignPodsDetect")]
    #[case::another_kind(json!({"kind": "NodeResourcesFitArgs"}), "got NodeResourcesFitArgs")]
    fn wrong_arguments_are_refused(#[case] args: Value, #[case] expected: &str) {
        let error = NodeResourceTopologyMatchArgs::decode(Some(&args))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}
