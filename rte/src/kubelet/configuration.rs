//! The settings of the topology manager and of the managers that it asks, which the scheduler needs (rte.md 2.6).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

use crate::config::extra_file::MAX_NUMA_NODES;
use crate::config::{DEFAULT_KUBELET_CONFIG_FILE, ResourceManagers, TopologyExporter};

/// The kubelet's default, for a configuration without this setting.
const DEFAULT_POLICY: &str = "none";
/// See [`DEFAULT_POLICY`].
const DEFAULT_SCOPE: &str = "container";

/// See [`DEFAULT_POLICY`].
const DEFAULT_CPU_POLICY: &str = "none";
/// See [`DEFAULT_POLICY`].
const DEFAULT_MEMORY_POLICY: &str = "None";

/// The settings that are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyManager {
    /// `none`, `best-effort`, `restricted` or `single-numa-node`; not validated.
    pub policy: String,
    /// `container` or `pod`; not validated.
    pub scope: String,
    /// Maximum number of NUMA nodes that it supports, if set; otherwise schedulers assume 8.
    pub max_numa_nodes: Option<u32>,
    /// Settings of the managers that it asks, if known.
    pub managers: Option<ResourceManagers>,
}

/// The settings cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is not a kubelet configuration.
    #[error("cannot parse {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_yaml::Error,
    },
}

/// The used fields of a `KubeletConfiguration`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubeletConfiguration {
    #[serde(default)]
    topology_manager_policy: Option<String>,
    #[serde(default)]
    topology_manager_scope: Option<String>,
    #[serde(default)]
    topology_manager_policy_options: Option<BTreeMap<String, String>>,
    #[serde(default)]
    cpu_manager_policy: Option<String>,
    #[serde(default)]
    cpu_manager_policy_options: Option<BTreeMap<String, String>>,
    #[serde(default)]
    memory_manager_policy: Option<String>,
}

/// Returns the given policy and scope if both are given, otherwise both from the kubelet's file if it exists, otherwise the given one and
/// the kubelet's default for the other.
///
/// Upstream treats a missing file in two ways: its own binary stops; the operator's binary publishes `none` and `container` for what is not
/// given. Here a file that the user names must exist; the default one need not.
pub fn topology_manager(config: &TopologyExporter) -> Result<TopologyManager, Error> {
    let given = TopologyManager {
        policy: config.topology_manager_policy.clone(),
        scope: config.topology_manager_scope.clone(),
        max_numa_nodes: config.topology_manager_max_numa_nodes,
        managers: config.resource_managers.clone(),
    };
    if !given.policy.is_empty() && !given.scope.is_empty() {
        tracing::info!(policy = %given.policy, scope = %given.scope, "Using given Topology Manager settings");
        return Ok(given);
    }
    let path = Path::new(&config.kubelet_config_file);
    let is_default_path = config.kubelet_config_file == DEFAULT_KUBELET_CONFIG_FILE;
    if path.as_os_str().is_empty() || (is_default_path && !path.exists()) {
        let settings = or_default(given);
        tracing::warn!(policy = %settings.policy, scope = %settings.scope,
            "Topology Manager settings were not given and there is no kubelet configuration: using the kubelet's defaults");
        return Ok(settings);
    }
    let mut settings = read(path)?;
    settings.max_numa_nodes = given.max_numa_nodes.or(settings.max_numa_nodes);
    settings.managers = given.managers.or(settings.managers);
    tracing::info!(policy = %settings.policy, scope = %settings.scope, file = %path.display(),
        "Using the kubelet's Topology Manager settings");
    Ok(settings)
}

/// Reads the settings of a kubelet from its configuration file. Settings that the file does not contain have the kubelet's defaults.
fn read(path: &Path) -> Result<TopologyManager, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let file: KubeletConfiguration =
        serde_yaml::from_str(&text).map_err(|source| Error::Parse {
            path: path.to_owned(),
            source,
        })?;
    Ok(or_default(TopologyManager {
        policy: file.topology_manager_policy.unwrap_or_default(),
        scope: file.topology_manager_scope.unwrap_or_default(),
        max_numa_nodes: file
            .topology_manager_policy_options
            .and_then(|options| options.get(MAX_NUMA_NODES)?.parse().ok()),
        managers: Some(ResourceManagers {
            cpu: policy_or(file.cpu_manager_policy, DEFAULT_CPU_POLICY),
            cpu_options: file.cpu_manager_policy_options.unwrap_or_default(),
            memory: policy_or(file.memory_manager_policy, DEFAULT_MEMORY_POLICY),
        }),
    }))
}

fn policy_or(policy: Option<String>, default: &str) -> String {
    let given = policy.filter(|policy| !policy.is_empty());
    given.unwrap_or_else(|| default.to_owned())
}

fn or_default(mut settings: TopologyManager) -> TopologyManager {
    if settings.policy.is_empty() {
        DEFAULT_POLICY.clone_into(&mut settings.policy);
    }
    if settings.scope.is_empty() {
        DEFAULT_SCOPE.clone_into(&mut settings.scope);
    }
    settings
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const KUBELET: &str = "kind: KubeletConfiguration\ntopologyManagerPolicy: single-numa-node\n\
        topologyManagerScope: pod\nreservedMemory:\n- {numaNode: 0, limits: {memory: 1Gi}}\n";

    #[rstest]
    #[case::both_given("restricted", "container", Some(KUBELET), "restricted", "container")]
    #[case::lone_policy_gives_way_to_the_file(
        "restricted",
        "",
        Some(KUBELET),
        "single-numa-node",
        "pod"
    )]
    #[case::nothing_given("", "", Some(KUBELET), "single-numa-node", "pod")]
    #[case::silent_file("", "", Some("kind: KubeletConfiguration\n"), "none", "container")]
    #[case::no_file_asked_for("restricted", "", None, "restricted", "container")]
    fn settings_come_from_the_strongest_source(
        #[case] policy: &str,
        #[case] scope: &str,
        #[case] file: Option<&str>,
        #[case] expected_policy: &str,
        #[case] expected_scope: &str,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        if let Some(text) = file {
            fs::write(&path, text).unwrap();
        }
        let config = TopologyExporter {
            topology_manager_policy: policy.to_owned(),
            topology_manager_scope: scope.to_owned(),
            kubelet_config_file: file.map_or_else(String::new, |_| path.display().to_string()),
            ..TopologyExporter::default()
        };
        let settings = topology_manager(&config).unwrap();
        assert_eq!(
            (settings.policy.as_str(), settings.scope.as_str()),
            (expected_policy, expected_scope)
        );
        assert_eq!(settings.max_numa_nodes, None);
    }

    #[rstest]
    #[case::silent("", "none", None, "None")]
    #[case::whole_cores(
        "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\nmemoryManagerPolicy: Static\n",
        "static",
        Some("true"),
        "Static"
    )]
    #[case::switched_off(
        "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: \"false\"}\n",
        "static",
        Some("false"),
        "None"
    )]
    fn other_managers_come_from_the_kubelets_file(
        #[case] text: &str,
        #[case] cpu: &str,
        #[case] full_cores: Option<&str>,
        #[case] memory: &str,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        fs::write(&path, format!("{KUBELET}{text}")).unwrap();
        let mut config = TopologyExporter {
            kubelet_config_file: path.display().to_string(),
            ..TopologyExporter::default()
        };
        let expected = ResourceManagers {
            cpu: cpu.to_owned(),
            cpu_options: full_cores
                .map(|value| ("full-pcpus-only".to_owned(), value.to_owned()))
                .into_iter()
                .collect(),
            memory: memory.to_owned(),
        };
        assert_eq!(topology_manager(&config).unwrap().managers, Some(expected));
        (
            config.topology_manager_policy,
            config.topology_manager_scope,
        ) = ("restricted".to_owned(), "pod".to_owned());
        let settings = topology_manager(&config).unwrap();
        assert_eq!(settings.managers, None, "the file is not read");
    }

    /// Flaw 29: the scheduler reads how many NUMA nodes the topology manager supports, but upstream does not publish it.
    #[test]
    fn number_of_numa_nodes_comes_from_the_policy_options() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        let text = "topologyManagerPolicyOptions: {max-allowable-numa-nodes: \"16\", prefer-closest-numa-nodes: \"true\"}\n";
        fs::write(&path, format!("{KUBELET}{text}")).unwrap();
        let mut config = TopologyExporter {
            kubelet_config_file: path.display().to_string(),
            ..TopologyExporter::default()
        };
        let most = |config: &TopologyExporter| topology_manager(config).unwrap().max_numa_nodes;
        assert_eq!(most(&config), Some(16));
        config.topology_manager_max_numa_nodes = Some(12);
        assert_eq!(most(&config), Some(12), "the extra file is stronger");
    }

    #[test]
    fn named_file_has_to_be_readable() {
        let config = TopologyExporter {
            kubelet_config_file: "/nowhere/config.yaml".to_owned(),
            ..TopologyExporter::default()
        };
        let error = topology_manager(&config).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nowhere/config.yaml");
    }
}
