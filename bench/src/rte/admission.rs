//! Pods on a real kubelet, and how soon the exporter publishes that they hold CPUs.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use local_cluster::NodeHandle;
use serde_json::json;
use tokio::time::{Instant, sleep};

/// Longest time that any step may take.
const DEADLINE: Duration = Duration::from_mins(2);
/// Time between two polls when precision does not matter.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// CPUs of each pod.
const CPUS: i64 = 2;
/// Pause for the next event within the exporter's limit of one per second.
const PAUSE: Duration = Duration::from_secs(2);

/// Creates pods on one node.
pub(super) struct Admissions {
    pods: Api<Pod>,
    objects: Api<NodeResourceTopology>,
    node: NodeHandle,
    allocatable: Option<i64>,
    measured: usize,
}

impl Admissions {
    pub(super) fn new(client: Client, node: NodeHandle) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), "default"),
            objects: Api::all(client),
            node,
            allocatable: None,
            measured: 0,
        }
    }

    /// Creates a pod with exclusive CPUs and memory, and waits until it runs.
    pub(super) async fn create_running_pod(&self, name: &str) -> anyhow::Result<()> {
        self.create(name).await?;
        let deadline = Instant::now() + DEADLINE;
        loop {
            let pod = self.pods.get(name).await?;
            match pod.status.and_then(|status| status.phase).as_deref() {
                Some("Running") => return Ok(()),
                Some("Failed") => bail!("pod {name} was refused"),
                _ if Instant::now() > deadline => bail!("pod {name} does not run"),
                _ => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Waits until the NRT shows that this many pods hold CPUs.
    pub(super) async fn wait_until_published(&mut self, pods: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some((allocatable, available)) = self.cpus().await? {
                self.allocatable = Some(allocatable);
                if allocatable - available == CPUS * i64::try_from(pods)? {
                    return Ok(());
                }
            }
            if Instant::now() > deadline {
                bail!("the exporter did not publish {pods} pods");
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Creates one more pod, measures the time from its admission to the update of the NRT, and deletes the pod.
    pub(super) async fn measure(&mut self) -> anyhow::Result<Duration> {
        sleep(PAUSE).await;
        self.measured += 1;
        let name = format!("measured-{}", self.measured);
        let (_, before) = self.cpus().await?.context("there is no object")?;
        let states = self.admitted_at()?;
        self.create(&name).await?;
        let published = self.wait_for_change(before).await?;
        let admitted = self.admitted_at()?;
        if admitted == states {
            bail!("pod {name} was not admitted");
        }
        self.pods
            .delete(&name, &DeleteParams::default().grace_period(0))
            .await?;
        self.wait_for_change(before - CPUS).await?;
        // The kernel stamps files with the time of its last tick, which may differ slightly from our clock.
        Ok(published.duration_since(admitted).unwrap_or_default())
    }

    /// Waits until the available CPUs differ from `from`. Returns when that was seen.
    async fn wait_for_change(&self, from: i64) -> anyhow::Result<SystemTime> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let seen = SystemTime::now();
            if self
                .cpus()
                .await?
                .is_some_and(|(_, available)| available != from)
            {
                return Ok(seen);
            }
            if Instant::now() > deadline {
                bail!("the exporter did not publish a change");
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Returns allocatable and available CPUs of all zones.
    async fn cpus(&self) -> anyhow::Result<Option<(i64, i64)>> {
        let Some(object) = self.objects.get_opt(self.node.name()).await? else {
            return Ok(None);
        };
        let mut sums = (0, 0);
        for zone in &object.zones {
            for resource in zone
                .resources
                .iter()
                .filter(|resource| resource.name == "cpu")
            {
                sums.0 += resource.allocatable.0.parse::<i64>()?;
                sums.1 += resource.available.0.parse::<i64>()?;
            }
        }
        Ok(Some(sums))
    }

    /// Returns when the kubelet last recorded what it assigned to a pod.
    fn admitted_at(&self) -> anyhow::Result<SystemTime> {
        let dir = self
            .node
            .host_path(std::path::Path::new("/var/lib/kubelet"));
        let mut last = SystemTime::UNIX_EPOCH;
        for file in ["cpu_manager_state", "memory_manager_state"] {
            last = last.max(std::fs::metadata(dir.join(file))?.modified()?);
        }
        Ok(last)
    }

    async fn create(&self, name: &str) -> anyhow::Result<()> {
        let amounts = json!({"cpu": CPUS.to_string(), "memory": "64Mi"});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.node.name(),
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "c",
                    "image": api::names::STACK_IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {"requests": amounts, "limits": amounts},
                }],
            },
        }))?;
        self.pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    }
}
