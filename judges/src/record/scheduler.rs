//! `cargo xtask record scheduler`: the verdict of each filter plugin of a real kube-scheduler on a pod and a node, and the scores of each
//! score plugin.
//!
//! All objects of the cases exist before the scheduler starts, so that it knows them before its first verdict. The verdict is read from the
//! binding or from the message of the pod's condition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use programs::console::note;
use programs::kubernetes::{self, SearchPath};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::api_server::{self, ApiServer};
use testbed::cli::print_progress;
use testbed::lane::Lane;

use self::cases::{Case, PLUGINS, Plugin, pinned_by};
use self::score_cases::{VARIANTS, Variant};

mod cases;
mod score_cases;
mod scores;

/// Cases whose objects are created concurrently.
const CONCURRENCY: usize = 16;
/// Longest time until every pod has its verdict.
const VERDICT_TIMEOUT: Duration = Duration::from_mins(5);
/// Service account of the scheduler.
const ACCOUNT: &str = "recorded-scheduler";

/// What to record, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cases for each plugin.
    #[arg(long, default_value_t = 200)]
    cases: u64,
    /// Seed of the first case.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only plugins whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Changes nothing; fails and names the cases whose verdicts differ from those recorded.
    #[arg(long)]
    check: bool,
    /// Directory of the corpus.
    #[arg(long, default_value = "scheduler/corpus")]
    corpus: PathBuf,
}

/// A case and its verdict: one line of the corpus.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Recorded {
    case: String,
    namespaces: Vec<Value>,
    nodes: Vec<Value>,
    pods: Vec<Value>,
    /// Volumes, claims and the objects that they depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    storage: Vec<Value>,
    pod: Value,
    /// The node that the verdict is about.
    node: String,
    /// The plugin that rejects all other nodes, before the recorded one.
    pinned_by: String,
    /// Why the node is rejected; empty if the pod was bound to it.
    reasons: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(record(args))
}

async fn record(args: Args) -> anyhow::Result<()> {
    let chosen: Vec<usize> = (0..PLUGINS.len())
        .filter(|plugin| {
            let only = args.only.as_deref();
            only.is_none_or(|only| PLUGINS[*plugin].name.contains(only))
        })
        .collect();
    let variants: Vec<&Variant> = VARIANTS
        .iter()
        .filter(|variant| {
            let only = args.only.as_deref();
            only.is_none_or(|only| variant.name.contains(only))
        })
        .collect();
    ensure!(
        !(chosen.is_empty() && variants.is_empty()),
        "no plugin has such a name"
    );
    let mut changed = Vec::new();
    for plugin in chosen {
        let name = PLUGINS[plugin].name;
        let recorded = record_plugin(&args, plugin)
            .await
            .with_context(|| format!("cannot record {name}"))?;
        let path = args.corpus.join(format!("{name}.jsonl"));
        if args.check {
            changed.extend(differing(&path, &recorded, |line| {
                (line.case.clone(), format!("{:?}", line.reasons))
            })?);
        } else {
            write(&path, &recorded)?;
        }
        let feasible = recorded.iter().filter(|line| line.reasons.is_empty());
        note(&format!(
            "{name}: {} of {} nodes will do",
            feasible.count(),
            recorded.len()
        ));
    }
    for variant in variants {
        let name = variant.name;
        let recorded = scores::record(&args, variant)
            .await
            .with_context(|| format!("cannot record {name}"))?;
        let path = args.corpus.join(format!("{name}.jsonl"));
        if args.check {
            changed.extend(differing(&path, &recorded, |line| {
                (line.case.clone(), format!("{:?}", line.scores))
            })?);
        } else {
            write(&path, &recorded)?;
        }
        let scored = recorded.iter().filter(|line| !line.scores.is_empty());
        note(&format!(
            "{name}: {} of {} cases are scored",
            scored.count(),
            recorded.len()
        ));
    }
    ensure!(
        changed.is_empty(),
        "these verdicts differ from the recording:\n{}",
        changed.join("\n")
    );
    Ok(())
}

/// Records one plugin on its own cluster, because pods could also fit on nodes of other plugins' cases.
async fn record_plugin(args: &Args, plugin: usize) -> anyhow::Result<Vec<Recorded>> {
    let server = ApiServer::start(Lane::Local).await?;
    let client = server.client().await?;
    let seeds = args.seed..args.seed + args.cases;
    let cases: Vec<Case> = stream::iter(seeds.map(|seed| Case::new(plugin, seed)))
        .map(|case| create(client.clone(), case))
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    let Plugin { name, pin, .. } = PLUGINS[plugin];
    let named = |name: &str| json!({"name": name});
    let enabled = ["PrioritySort", pinned_by(pin), name, "DefaultBinder"].map(named);
    let profile = json!({
        "schedulerName": name.to_lowercase(),
        "plugins": {
            "multiPoint": {"disabled": [named("*")], "enabled": enabled},
            // no controller binds volumes; only the verdict on the node is needed
            "preBind": {"disabled": [named("*")]},
        },
    });
    let scheduler = Scheduler::start(&server, &client, &profile, 2).await?;
    let verdicts = verdicts(&client, cases.len()).await;
    let mut verdicts = verdicts.with_context(|| scheduler.end_of_log())?;
    let mut recorded = Vec::new();
    for case in cases {
        let verdict = verdicts.remove(&case.id);
        let reasons = match verdict.with_context(|| format!("{} has no verdict", case.id))? {
            Verdict::Bound(node) => {
                ensure!(node == case.node, "{} is on another node", case.id);
                Vec::new()
            }
            Verdict::Rejected(reasons) => reasons,
        };
        recorded.push(Recorded {
            case: case.id,
            namespaces: case.namespaces,
            nodes: case.nodes,
            pods: case.pods,
            storage: case.storage,
            pod: case.pod,
            node: case.node,
            pinned_by: pinned_by(PLUGINS[plugin].pin).to_owned(),
            reasons,
        });
    }
    Ok(recorded)
}

fn write<T: Serialize>(path: &Path, lines: &[T]) -> anyhow::Result<()> {
    let mut text = String::new();
    for line in lines {
        text += &serde_json::to_string(line)?;
        text.push('\n');
    }
    std::fs::create_dir_all(path.parent().unwrap_or(path))
        .and_then(|()| std::fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the cases with other verdicts than in the file. `describe` returns a line's case and its verdict in words.
fn differing<T: DeserializeOwned + PartialEq>(
    path: &Path,
    now: &[T],
    describe: impl Fn(&T) -> (String, String),
) -> anyhow::Result<Vec<String>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let before: Vec<T> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .with_context(|| format!("cannot parse {}", path.display()))?;
    let mut list = Vec::new();
    for line in now {
        let (case, verdict) = describe(line);
        match before.iter().find(|other| describe(other).0 == case) {
            Some(other) if other == line => {}
            Some(other) => list.push(format!("{case}: {verdict}, recorded {}", describe(other).1)),
            None => list.push(format!("{case}: not recorded")),
        }
    }
    Ok(list)
}

/// Creates the objects of a case, and copies the API server's changes to them as far as filters consider them.
async fn create(client: Client, mut case: Case) -> anyhow::Result<Case> {
    let id = case.id.clone();
    let failed = || format!("cannot make the objects of {id}");
    let (post, patch) = (PostParams::default(), PatchParams::default());
    for namespace in &case.namespaces {
        let api: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(namespace.clone())?;
        api.create(&post, &namespace).await.with_context(failed)?;
    }
    for node in &case.nodes {
        let api: Api<Node> = Api::all(client.clone());
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        api.create(&post, &serde_json::from_value(node.clone())?)
            .await
            .with_context(failed)?;
        let amounts = &node["status"]["allocatable"];
        let images = &node["status"]["images"];
        let status =
            json!({"status": {"capacity": amounts, "allocatable": amounts, "images": images}});
        api.patch_status(name, &patch, &Patch::Merge(status))
            .await
            .with_context(failed)?;
        // admission adds a taint to nodes that are not ready
        let taints = json!({"spec": {"taints": node["spec"]["taints"]}});
        api.patch(name, &patch, &Patch::Merge(taints))
            .await
            .with_context(failed)?;
    }
    let is_owned = |object: &&Value| object["metadata"].get("ownerReferences").is_some();
    let (of_pod, others): (Vec<_>, Vec<_>) = case.storage.iter().partition(is_owned);
    for object in others {
        create_stored(&client, object, "")
            .await
            .with_context(failed)?;
    }
    for pod in &mut case.pods {
        create_pod(&client, pod).await.with_context(failed)?;
    }
    let uid = create_pod(&client, &mut case.pod)
        .await
        .with_context(failed)?;
    for object in of_pod {
        create_stored(&client, object, &uid)
            .await
            .with_context(failed)?;
    }
    Ok(case)
}

/// Creates a volume, a claim or an object that they depend on. Owners with uid `pod` get the uid of the pod.
async fn create_stored(client: &Client, object: &Value, pod: &str) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let (name, kind) = (text(&metadata["name"]), text(&object["kind"]));
    let version = text(&object["apiVersion"]);
    let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match metadata["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut wire = object.clone();
    let status = wire.as_object_mut().and_then(|wire| wire.remove("status"));
    let metadata = wire["metadata"].as_object_mut();
    let deleted = metadata.and_then(|metadata| metadata.remove("deletionTimestamp"));
    let owners = wire["metadata"].get_mut("ownerReferences");
    for owner in owners.and_then(Value::as_array_mut).into_iter().flatten() {
        if owner["uid"] == "pod" {
            owner["uid"] = json!(pod);
        }
    }
    api.create(&PostParams::default(), &serde_json::from_value(wire)?)
        .await?;
    if let Some(status) = status {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await?;
    }
    if deleted.is_some() {
        api.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Creates a pod. Returns its uid.
async fn create_pod(client: &Client, pod: &mut Value) -> anyhow::Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (
        text(&pod["metadata"]["namespace"]),
        text(&pod["metadata"]["name"]),
    );
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut wire = pod.clone();
    let status = wire.as_object_mut().and_then(|wire| wire.remove("status"));
    let metadata = wire["metadata"].as_object_mut();
    let deleted = metadata.and_then(|metadata| metadata.remove("deletionTimestamp"));
    let made = api
        .create(&PostParams::default(), &serde_json::from_value(wire)?)
        .await?;
    let uid = made.metadata.uid.clone().unwrap_or_default();
    let made = serde_json::to_value(&made)?;
    for field in ["affinity", "topologySpreadConstraints"] {
        if pod["spec"].get(field).is_some() {
            pod["spec"][field] = made["spec"][field].clone();
        }
    }
    if let Some(status) = status {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await?;
    }
    if deleted.is_some() {
        let at_once = DeleteParams::default().grace_period(0);
        api.delete(&name, &at_once).await?;
    }
    Ok(uid)
}

/// A real kube-scheduler with a profile that runs only a plugin and the one that pins pods to their nodes.
struct Scheduler {
    process: Child,
    directory: TempDir,
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // both fail only if it has already ended
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Scheduler {
    async fn start(
        server: &ApiServer,
        client: &Client,
        profile: &Value,
        verbosity: u8,
    ) -> anyhow::Result<Self> {
        let assets = kubernetes::locate(&SearchPath::from_environment(None), &print_progress)?;
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        let kubeconfig = directory.path().join("kubeconfig");
        let config = directory.path().join("config.yaml");
        grant(client).await?;
        let account = server.account_kubeconfig("default", ACCOUNT).await?;
        api_server::write(&account, &kubeconfig)?;
        let text = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
            "percentageOfNodesToScore": 100,
            "profiles": [profile],
        });
        std::fs::write(&config, text.to_string()).context("cannot write the configuration")?;
        let log = std::fs::File::create(directory.path().join("log"))
            .context("cannot make a log file")?;
        let process = Command::new(&assets.kube_scheduler)
            .arg(format!("--config={}", config.display()))
            .arg("--secure-port=0")
            .arg(format!("-v={verbosity}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", assets.kube_scheduler.display()))?;
        Ok(Self { process, directory })
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

/// Grants the scheduler all permissions.
async fn grant(client: &Client) -> anyhow::Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": ACCOUNT}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = json!({
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
    });
    bindings
        .create(&PostParams::default(), &serde_json::from_value(binding)?)
        .await?;
    Ok(())
}

/// The verdict on a pod.
enum Verdict {
    /// It was bound to this node.
    Bound(String),
    /// Why its node was rejected.
    Rejected(Vec<String>),
}

/// Waits until this many pods have a verdict. Returns the verdicts by case.
async fn verdicts(client: &Client, wanted: usize) -> anyhow::Result<BTreeMap<String, Verdict>> {
    let api: Api<Pod> = Api::all(client.clone());
    let params = ListParams::default().fields("metadata.name=pod");
    let deadline = Instant::now() + VERDICT_TIMEOUT;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        let pods = api.list(&params).await.context("cannot list pods")?;
        let mut verdicts = BTreeMap::new();
        for pod in pods {
            let id = pod.metadata.namespace.clone().unwrap_or_default();
            if let Some(verdict) = verdict(&pod).with_context(|| id.clone())? {
                verdicts.insert(id, verdict);
            }
        }
        if verdicts.len() == wanted {
            return Ok(verdicts);
        }
        if Instant::now() > deadline {
            bail!("{} of {wanted} pods have a verdict", verdicts.len());
        }
    }
}

/// Returns the verdict on a pod, if there is one.
fn verdict(pod: &Pod) -> anyhow::Result<Option<Verdict>> {
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
        return Ok(Some(Verdict::Bound(node)));
    }
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let rejected = conditions
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let Some(message) = rejected.and_then(|condition| condition.message.as_deref()) else {
        return Ok(None);
    };
    let reasons =
        reasons(message).with_context(|| format!("this message is not understood: {message}"))?;
    Ok(Some(Verdict::Rejected(reasons)))
}

/// Returns the reasons in a message for the one node that differs from all others.
fn reasons(message: &str) -> Option<Vec<String>> {
    /// Reasons of the nodes to which the pod is not pinned.
    const OTHERS: &[&str] = &[
        "node(s) had untolerated taint(s)",
        "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    ];
    let (_, list) = message.split_once(" nodes are available: ")?;
    let list = list.strip_suffix('.').unwrap_or(list);
    let mut counted: Vec<(u64, &str)> = Vec::new();
    for item in list.split(", ") {
        let Some((count, reason)) = item
            .split_once(' ')
            .and_then(|(count, reason)| Some((count.parse().ok()?, reason)))
        else {
            // one reason for all nodes, before any node was considered
            return Some(vec![list.to_owned()]);
        };
        counted.push((count, reason));
    }
    let mut own: Vec<&str> = counted
        .iter()
        .map(|(_, reason)| *reason)
        .filter(|reason| !OTHERS.contains(reason))
        .collect();
    if own.is_empty() {
        // the same reason as for other nodes, but counted for this node alone or for all
        let all = counted.len() == 1;
        let alone = counted.iter().find(|(count, _)| *count == 1 || all)?;
        own.push(alone.1);
    }
    Some(own.into_iter().map(str::to_owned).collect())
}
