//! Compares `docs/compatibility.yaml` with a running stack: what the table says that we have is there, and no flag is there that it does not know.
#![expect(
    clippy::unwrap_used,
    reason = "what a test stands on has to be there: it panics where it is not"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use api::names;
use cluster_spec::flavour::Flavour;
use cluster_spec::kubelet::TopologyPolicy;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::{Discovery, Scope};
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::json;
use suite::binaries;
use testbed::lane::Lane;

use crate::harness::eventually;
use crate::openshift::{POOL, TestCluster, spanning_pod};

/// Longer than any part of the stack takes to show what the table says.
const TIMEOUT: Duration = Duration::from_secs(40);

/// What this test reads of a section of the table; `xtask` holds the whole shape.
#[derive(Deserialize)]
struct Section {
    title: String,
    kind: String,
    #[serde(default)]
    program: String,
    #[serde(default)]
    proof: String,
    #[serde(default)]
    same: Vec<String>,
    #[serde(default)]
    other: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    status: String,
}

impl Section {
    /// Returns the names of what we have.
    fn present(&self) -> BTreeSet<&str> {
        let others = self.other.iter().filter(|row| row.status != "missing");
        let names = self.same.iter().chain(others.map(|row| &row.name));
        names.map(String::as_str).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_is_true_of_a_running_stack() {
    let file = binaries::workspace()
        .unwrap()
        .join("docs/compatibility.yaml");
    let table = std::fs::read_to_string(file).unwrap();
    let sections: Vec<Section> = serde_yaml::from_str(&table).unwrap();
    let here: Vec<&Section> = sections
        .iter()
        .filter(|section| section.proof.contains("compatibility.rs"))
        .collect();
    assert!(here.len() > 5, "{} sections", here.len());

    let cluster = TestCluster::up(Lane::Embedded, Flavour::Openshift).await;
    cluster
        .configure(TopologyPolicy::SingleNumaNode, "single-numa-node")
        .await;
    cluster.wait_for_policy("single-numa-node").await;
    // one pod is placed, another one is not: some metrics are there only then
    cluster.apply(&spanning_pod()).await;
    let mut small = spanning_pod();
    small["metadata"]["name"] = json!("small");
    small["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1", "memory": "64Mi"}});
    cluster.apply(&small).await;
    let stack = Stack {
        cluster: &cluster,
        discovery: Discovery::new(cluster.client()).run().await.unwrap(),
        bin_dir: binaries::locate(None, |_| {}).await.unwrap(),
    };
    eventually("the table is true", TIMEOUT, async || {
        let mut wrong = Vec::new();
        for section in &here {
            for difference in stack.differences(section).await? {
                wrong.push(format!("{}: {difference}", section.title));
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("; "))
        }
    })
    .await;
}

struct Stack<'a> {
    cluster: &'a TestCluster,
    discovery: Discovery,
    bin_dir: PathBuf,
}

impl Stack<'_> {
    /// Returns one sentence for each name that the table has and the stack has not, or the other way round.
    async fn differences(&self, section: &Section) -> Result<Vec<String>, String> {
        let present = section.present();
        let seen: BTreeSet<String> = match section.kind.as_str() {
            "flag" => {
                return Ok(flag_differences(
                    &self.bin_dir.join(&section.program),
                    &present,
                ));
            }
            "metric" => self.metrics(&section.program).await?,
            "condition" => self.conditions(&section.program).await?,
            "object" => self.objects(&present).await?,
            "endpoint" => self.endpoints(&present).await?,
            kind => return Err(format!("nothing is known of the kind {kind:?}")),
        };
        let lacking = present.into_iter().filter(|name| !seen.contains(*name));
        Ok(lacking.map(|name| format!("no {name}")).collect())
    }

    /// Returns the types and names of the metrics that a product serves.
    async fn metrics(&self, product: &str) -> Result<BTreeSet<String>, String> {
        let (label, port) = match product {
            "exporter" => ("name=resource-topology", 2112),
            "operator" => ("app=numaresources-operator", 8080),
            _ => ("app=secondary-scheduler", 10259),
        };
        let text = self.get(label, port, "/metrics").await?;
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        Ok(types
            .filter_map(|line| line.split(' ').next())
            .map(str::to_owned)
            .collect())
    }

    async fn endpoints(&self, paths: &BTreeSet<&str>) -> Result<BTreeSet<String>, String> {
        let mut served = BTreeSet::new();
        for path in paths {
            if self
                .get("app=secondary-scheduler", 10259, path)
                .await
                .is_ok()
            {
                served.insert((*path).to_owned());
            }
        }
        Ok(served)
    }

    /// Asks the first pod with a label, as the cluster's administrator.
    async fn get(&self, label: &str, port: u16, path: &str) -> Result<String, String> {
        let pod = self.pod(label).await?;
        let address = pod
            .status
            .and_then(|status| status.pod_ip)
            .ok_or("the pod has no address")?;
        let kubeconfig = Kubeconfig::read_from(self.cluster.kubeconfig()).unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        config.cluster_url = format!("https://{address}:{port}").parse().unwrap();
        // the certificate is for a Service, or the program's own
        config.accept_invalid_certs = true;
        let client = Client::try_from(config).unwrap();
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let answer = client.request_text(request).await;
        answer.map_err(|error| format!("{path} of {label}: {error}"))
    }

    async fn pod(&self, label: &str) -> Result<Pod, String> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), names::NAMESPACE);
        let list = pods.list(&ListParams::default().labels(label)).await;
        let list = list.map_err(|error| error.to_string())?;
        list.items
            .into_iter()
            .next()
            .ok_or_else(|| format!("no pod with {label}"))
    }

    async fn conditions(&self, whose: &str) -> Result<BTreeSet<String>, String> {
        if whose == "exporter" {
            let status = self.pod("name=resource-topology").await?.status;
            let conditions = status.and_then(|status| status.conditions);
            let types = conditions.into_iter().flatten();
            return Ok(types.map(|condition| condition.type_).collect());
        }
        let api = self.api(whose)?;
        let list = api.list(&ListParams::default()).await;
        let list = list.map_err(|error| error.to_string())?;
        let conditions = list.iter().filter_map(|object| {
            let conditions = object.data.pointer("/status/conditions")?;
            Some(conditions.as_array()?.clone())
        });
        let types = conditions
            .flatten()
            .filter_map(|condition| Some(condition["type"].as_str()?.to_owned()));
        Ok(types.collect())
    }

    /// Returns which of these objects, `Kind name`, are there.
    async fn objects(&self, wanted: &BTreeSet<&str>) -> Result<BTreeSet<String>, String> {
        let mut there = BTreeSet::new();
        for object in wanted {
            let (kind, name) = object
                .split_once(' ')
                .ok_or("an object is a kind and a name")?;
            let found = self.api(kind)?.get_opt(&name.replace("<pool>", POOL)).await;
            if found.map_err(|error| error.to_string())?.is_some() {
                there.insert((*object).to_owned());
            }
        }
        Ok(there)
    }

    /// Returns the resource of a kind: of the whole cluster, or of the stack's namespace.
    fn api(&self, kind: &str) -> Result<Api<DynamicObject>, String> {
        let (resource, capabilities) = self
            .discovery
            .groups()
            .flat_map(kube::discovery::ApiGroup::recommended_resources)
            .find(|(resource, _)| resource.kind == kind)
            .ok_or_else(|| format!("the cluster has no kind {kind}"))?;
        let client = self.cluster.client();
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => Api::namespaced_with(client, names::NAMESPACE, &resource),
        })
    }
}

/// Compares the flags of a program with the table.
fn flag_differences(program: &Path, wanted: &BTreeSet<&str>) -> Vec<String> {
    let output = Command::new(program).arg("--help").output().unwrap();
    let help = [output.stdout, output.stderr].concat();
    let help = String::from_utf8(help).unwrap();
    let shown: BTreeSet<&str> = help.lines().filter_map(flag).collect();
    let bare = |name: &'_ str| name.trim_start_matches('-').to_owned();
    let known: BTreeSet<String> = wanted.iter().map(|name| bare(name)).collect();
    let new = shown
        .iter()
        .filter(|name| !known.contains(**name))
        .map(|name| format!("the table does not have the flag {name}"));
    let lacking = wanted
        .iter()
        .filter(|name| !shown.contains(bare(name).as_str()) && is_unknown(program, name))
        .map(|name| format!("the program does not know {name}"));
    new.chain(lacking).collect()
}

/// Returns the flag that a line of a help text is about.
fn flag(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.split_once(", ") {
        Some((short, rest)) if short.len() == 2 => rest,
        _ => line,
    };
    let name = line.strip_prefix("--").or_else(|| line.strip_prefix('-'))?;
    let end = name.find(|c: char| !matches!(c, '-' | '_') && !c.is_ascii_alphanumeric());
    let name = &name[..end.unwrap_or(name.len())];
    (!name.is_empty()).then_some(name)
}

/// Returns whether a program refuses a flag that its help does not show. It is asked for its help, too, so that it ends.
fn is_unknown(program: &Path, flag: &str) -> bool {
    let output = Command::new(program)
        .args([&format!("{flag}=1"), "--help"])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ["unexpected argument", "not defined", "unknown flag"]
        .iter()
        .any(|words| complaint.contains(words))
}
