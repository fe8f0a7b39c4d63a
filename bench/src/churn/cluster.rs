//! Four real kubelets with the stack, installed by its operator with the samples for new users.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::names;
use api::nrt::v1alpha2::NodeResourceTopology;
use api::operator::v1::NumaResourcesOperator;
use api::scheduler::v1::NumaResourcesScheduler;
use apply::{Applier, wait};
use cluster_spec::kubelet::KubeletSettings;
use cluster_spec::plan::{self, ClusterSpec, NodePlan, WORKER};
use cluster_spec::runtime::Runtime;
use fixtures::machines::{Machine, profile};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use local_cluster::{LocalCluster, NodeHandle};
use programs::console::note;
use programs::kubernetes::{self, SearchPath};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// Workers.
const WORKERS: usize = 4;
/// Two zones of eight cores, 32 CPUs.
const MACHINE: &str = "
name: churn
threadsPerCore: 2
zones:
- {cores: 8, memory: 32Gi}
- {cores: 8, memory: 32Gi}
";
/// Longest time for set-up, and for getting idle.
const LIMIT: Duration = Duration::from_mins(3);
/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The cluster; it ends with this value.
pub(super) struct Cluster {
    local: LocalCluster,
    /// CPUs for pods of every zone, node by node.
    pub(super) zones: Vec<u32>,
    _directory: tempfile::TempDir,
}

impl Cluster {
    /// Brings it up with the programs in `bin_dir`, and waits until exporters and scheduler work.
    pub(super) async fn start(bin_dir: &Path) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let machine = profile::from_yaml(MACHINE)?;
        // one core of the machine is reserved for the system: 30 of 32 CPUs are left
        let reserved = machine.core_cpus(0);
        let kubelet = KubeletSettings {
            reserved_cpus: Some(reserved.clone()),
            ..KubeletSettings::default()
        };
        let worker = |index| NodePlan {
            name: format!("worker-{index}"),
            machine: machine.clone(),
            kubelet: kubelet.clone(),
            labels: plan::roles([WORKER]),
            taints: Vec::new(),
        };
        let control_plane = NodePlan::control_plane(&Machine::default_profile());
        let spec = ClusterSpec {
            name: "churn".to_owned(),
            state_root: directory.path().to_owned(),
            assets: kubernetes::locate(&SearchPath::from_environment(None), &|_| {})?,
            bin_dir: bin_dir.to_owned(),
            nodes: std::iter::once(control_plane)
                .chain((0..WORKERS).map(worker))
                .collect(),
            hide_allocations: false,
            flavour: None,
            runtime: Runtime::Builtin,
        };
        note("starting a cluster of four real kubelets");
        let local = LocalCluster::up(spec, &|_| {}).await?;
        let zone = |zone| {
            let cpus = machine.zone_cpus(zone).into_iter();
            cpus.filter(|cpu| !reserved.contains(cpu)).count()
        };
        let zones = (0..WORKERS)
            .flat_map(|_| (0..machine.zones().len()).map(zone))
            .map(u32::try_from)
            .collect::<Result<_, _>>()?;
        let cluster = Self {
            local,
            zones,
            _directory: directory,
        };
        note("installing the stack");
        cluster.install().await?;
        cluster.wait_until_free().await?;
        Ok(cluster)
    }

    pub(super) fn client(&self) -> Client {
        self.local.client()
    }

    /// Returns the index in [`Self::zones`] of the zone that the kubelet assigned to a pod.
    pub(super) fn zone_of(&self, node: &str, uid: &str) -> anyhow::Result<usize> {
        let workers = self.workers();
        let index = workers.iter().position(|worker| worker.name() == node);
        let index = index.with_context(|| format!("no worker is called {node}"))?;
        let state: Value = serde_json::from_str(&workers[index].state_file("cpu_manager_state")?)?;
        let cpus = state["entries"][uid]["main"].as_str();
        let cpus = cpus.with_context(|| format!("pod {uid} has no CPUs on {node}: {state}"))?;
        let first = cpus.split(['-', ',']).next().unwrap_or_default();
        let machine = workers[index].machine();
        Ok(index * machine.zones().len() + machine.zone_of(first.parse()?))
    }

    fn workers(&self) -> Vec<&NodeHandle> {
        let nodes = self.local.nodes().iter();
        nodes
            .filter(|node| node.name().starts_with("worker-"))
            .collect()
    }

    /// Returns the names of the workers.
    pub(super) fn worker_names(&self) -> Vec<String> {
        let names = self.workers().into_iter().map(NodeHandle::name);
        names.map(str::to_owned).collect()
    }

    /// Waits until the NRT of every worker has everything available.
    pub(super) async fn wait_until_free(&self) -> anyhow::Result<()> {
        let api: Api<NodeResourceTopology> = Api::all(self.client());
        let deadline = Instant::now() + LIMIT;
        loop {
            let objects = api.list(&ListParams::default()).await?.items;
            let is_free = |object: &NodeResourceTopology| {
                let mut resources = object.zones.iter().flat_map(|zone| &zone.resources);
                resources.all(|resource| resource.available == resource.allocatable)
            };
            let free: Vec<String> = objects
                .iter()
                .filter(|object| is_free(object))
                .map(kube::ResourceExt::name_any)
                .collect();
            if self
                .workers()
                .iter()
                .all(|node| free.iter().any(|name| name == node.name()))
            {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "only {free:?} of the workers are published as free"
            );
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn install(&self) -> anyhow::Result<()> {
        let client = self.client();
        let applier = Applier::new(client.clone());
        let config = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../config"));
        for definition in api::crd::all() {
            applier.apply(&serde_json::to_value(&definition)?).await?;
            wait::definition(&client, &definition.name_any(), LIMIT).await?;
        }
        for file in [
            "operator.yaml",
            "samples/numaresourcesoperator.yaml",
            "samples/numaresourcesscheduler.yaml",
        ] {
            let path = config.join(file);
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            for document in serde_yaml::Deserializer::from_str(&text) {
                let object = Value::deserialize(document)?;
                if !object.is_null() {
                    applier.apply(&object).await?;
                }
            }
        }
        let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
        let schedulers: Api<NumaResourcesScheduler> = Api::all(client);
        let deadline = Instant::now() + LIMIT;
        loop {
            let operator = operators.get(names::OPERATOR_CR).await?.status;
            let operator = operator.map(|status| status.conditions).unwrap_or_default();
            let scheduler = schedulers.get(names::SCHEDULER_CR).await?.status;
            let scheduler = scheduler
                .map(|status| status.conditions)
                .unwrap_or_default();
            if is_available(&operator) && is_available(&scheduler) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the stack does not become available: {operator:?}, {scheduler:?}");
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Takes it down.
    pub(super) fn down(self) -> anyhow::Result<()> {
        Ok(self.local.down()?)
    }
}

fn is_available(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| {
        condition.type_ == api::conditions::AVAILABLE && condition.status == "True"
    })
}
