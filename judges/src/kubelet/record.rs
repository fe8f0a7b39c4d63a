//! Drives the real kubelets of a local cluster through random pod sequences, records what they do, and compares it with the model at once.
//!
//! A run can be stopped at any time and started again: complete files are left alone. When a configuration fails, it is tried once more and
//! then left to the next run.

mod recorder;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cluster_spec::kubernetes::Assets;
use cluster_spec::plan::{ClusterSpec, NodePlan};
use cluster_spec::progress::{Progress, Report};
use cluster_spec::runtime::Runtime;
use fixtures::machines::Machine;
use local_cluster::cluster::up;
use local_cluster::{LocalCluster, node_handle};
use tokio::sync::mpsc;

use self::recorder::Recorder;
use super::composition::Composition;
use super::configurations::{self, NamedSettings};
use super::corpus;
use super::replay::{self, Difference};

/// Numbers of machines, of configurations per machine, and of sequences per configuration, in a [fresh](Plan::fresh) run.
const FRESH_SIZE: (usize, usize, u64) = (5, 2, 5);
/// Longest time that a kubelet may take for an operation on a pod.
const OPERATION_TIMEOUT: Duration = Duration::from_mins(1);

/// The plan of a recording.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The state root of clusters.
    pub state_root: PathBuf,
    /// The Kubernetes programs.
    pub assets: Assets,
    /// Directory with `numaresources-testbed`.
    pub bin_dir: PathBuf,
    /// Machines, each with the kubelet settings that it is recorded with, by name.
    pub configurations: Vec<(Machine, NamedSettings)>,
    /// Directory of the corpus; without it nothing is written.
    pub out: Option<PathBuf>,
    /// Sequences for each configuration.
    pub sequences: u64,
    /// Seed of the first sequence.
    pub seed: u64,
    /// Time limit of the run: no sequence begins later.
    pub limit: Duration,
}

impl Plan {
    /// Returns a plan for 50 sequences of this seed, which are compared but not written.
    pub fn fresh(
        seed: u64,
        state_root: PathBuf,
        assets: Assets,
        bin_dir: PathBuf,
    ) -> Result<Self, Error> {
        let (machines, each, sequences) = FRESH_SIZE;
        Ok(Self {
            state_root,
            assets,
            bin_dir,
            configurations: configurations::sample(seed, machines, each)?,
            out: None,
            sequences,
            seed,
            limit: Duration::from_mins(10),
        })
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was recorded in this run.
    pub composition: Composition,
    /// Number of configurations whose files were already complete.
    pub kept: usize,
    /// Where the model differs: (configuration, difference).
    pub differences: Vec<(String, Difference)>,
    /// Configurations that could not be recorded: (configuration, why).
    pub failures: Vec<(String, String)>,
}

impl Outcome {
    fn absorb(&mut self, other: Self) {
        self.kept += other.kept;
        self.differences.extend(other.differences);
        self.failures.extend(other.failures);
    }
}

/// Why recording failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A built-in machine is invalid.
    #[error(transparent)]
    Machine(#[from] fixtures::machines::profile::Error),
    /// The cluster did not come up.
    #[error(transparent)]
    Up(#[from] up::Error),
    /// A node failed.
    #[error(transparent)]
    Node(#[from] node_handle::Error),
    /// The API server refused a request.
    #[error("a request about {name} failed at the API server")]
    Api {
        /// Pod or node.
        name: String,
        /// What went wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// The path of the kubelet's socket is unusable.
    #[error("the podresources socket path is unusable: {0}")]
    Socket(String),
    /// The podresources client failed.
    #[error(transparent)]
    PodResources(#[from] podresources::client::Error),
    /// A state file of the kubelet could not be parsed.
    #[error("cannot read a state file of the kubelet")]
    State(#[from] serde_json::Error),
    /// A corpus file could not be used.
    #[error(transparent)]
    Corpus(#[from] corpus::Error),
    /// The model cannot follow the sequence.
    #[error(transparent)]
    Replay(#[from] replay::Error),
    /// A step took too long.
    #[error("{name}: {what} took more than {} s", OPERATION_TIMEOUT.as_secs())]
    Timeout {
        /// Pod.
        name: String,
        /// What the recorder waited for, and what it saw last.
        what: String,
    },
    /// A recording task panicked or was cancelled.
    #[error("a recording task ended")]
    Task(#[from] tokio::task::JoinError),
}

/// Records the plan on one node for each machine, all at once.
pub async fn record(plan: Plan, report: Report<'_>) -> Result<Outcome, Error> {
    let nodes = plan
        .configurations
        .iter()
        .filter_map(|(machine, list)| {
            Some(NodePlan {
                name: machine.name().to_owned(),
                machine: machine.clone(),
                kubelet: list.first()?.1.clone(),
                labels: BTreeMap::new(),
                taints: Vec::new(),
            })
        })
        .collect();
    let spec = ClusterSpec {
        name: "record-kubelet".to_owned(),
        state_root: plan.state_root.clone(),
        assets: plan.assets.clone(),
        bin_dir: plan.bin_dir.clone(),
        nodes,
        hide_allocations: false,
        flavour: None,
        runtime: Runtime::Builtin,
    };
    let cluster = LocalCluster::up(spec, report).await?;
    let deadline = Instant::now() + plan.limit;
    let (sender, mut recorded) = mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    for node in cluster.nodes() {
        let list = plan
            .configurations
            .iter()
            .find(|(machine, _)| machine.name() == node.name())
            .map(|(_, list)| list.clone());
        let recorder = Recorder::new(node.clone(), cluster.client(), deadline, sender.clone());
        tasks.spawn(recorder.run(list.unwrap_or_default(), plan.clone()));
    }
    drop(sender);
    let mut outcome = Outcome::default();
    while let Some(recorder::File {
        configuration,
        sequences,
    }) = recorded.recv().await
    {
        outcome.composition.add(&configuration, &sequences);
        report(Progress::Advanced(format!(
            "{}: {} sequences, {} in all",
            configuration.name,
            sequences.len(),
            outcome.composition.sequences
        )));
    }
    let mut failure = None;
    while let Some(ended) = tasks.join_next().await {
        match ended? {
            Ok(part) => outcome.absorb(part),
            Err(error) => failure = Some(error),
        }
    }
    drop(cluster);
    failure.map_or(Ok(outcome), Err)
}

fn api_error(name: &str, source: kube::Error) -> Error {
    Error::Api {
        name: name.to_owned(),
        source: Box::new(source),
    }
}

fn check_deadline(
    deadline: Instant,
    name: &str,
    what: impl FnOnce() -> String,
) -> Result<(), Error> {
    if Instant::now() > deadline {
        return Err(Error::Timeout {
            name: name.to_owned(),
            what: what(),
        });
    }
    Ok(())
}
