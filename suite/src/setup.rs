//! Prepares a cluster for the scenarios, from nothing or from a kubeconfig (scenarios-serial.md 1.1, 2).
//!
//! Reading order, which is that of [`run`]: `connect` (a client, and whether the cluster may be used), [`kept`] (a stack that stays on a
//! cluster between runs), `kubelets` and `install` with `manifests` (the stack), `available` (until it is there), `infra` (what scenarios need besides), `reference` (the
//! unloaded cluster, against which scenarios measure), `proof` with `verdicts` (the stack works).

mod available;
mod connect;
mod infra;
mod install;
pub mod kept;
mod kubelets;
mod manifests;
mod proof;
mod reference;
mod sums;
mod verdicts;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use cluster_spec::images::Published;
use cluster_spec::progress::Progress;
use cri_runtime::filter;
use kept::Stack;
use kube::Client;
use reports::event::Event;
use testbed::cli::PlanArgs;
use testbed::lane;

use crate::binaries;
use crate::claim::Claim;
use crate::context::{Cluster, chain};
use crate::environment::Place;
use crate::facts::Facts;
use crate::health::Restarts;
use crate::interrupt::Interrupt;
use crate::kubeconfig::Kubeconfig;
use crate::recorder::{Deadlines, Recorder};
use crate::step::StepError;

pub use connect::{ALLOW_ALL, ALLOW_COMMAND, ALLOW_LABEL, allow};

/// Where the cluster comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterSource {
    /// A cluster of this lane that is brought up for the run and ends with it.
    Own(lane::Lane),
    /// A cluster that is given to the run: that of a kubeconfig.
    Kubeconfig(Kubeconfig),
}

/// How to prepare a cluster for the scenarios.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the cluster comes from.
    pub cluster: ClusterSource,
    /// Composition of our own cluster.
    pub plan: PlanArgs,
    /// How many clusters of our own share the scenarios; each runs one scenario at a time.
    pub clusters: usize,
    /// Which of them this is, from 1.
    pub number: usize,
    /// Directory of our own clusters, if not the default.
    pub state_root: Option<PathBuf>,
    /// Whether the stack may be installed on a cluster that does not have it.
    pub install: bool,
    /// Directory of the stack's manifests, if not the built-in ones.
    pub manifests: Option<PathBuf>,
    /// Scheduler that test pods name; `None` for that of the scheduler resource.
    pub scheduler: Option<String>,
    /// Time limits.
    pub deadlines: Deadlines,
    /// Identity of the run.
    pub run: String,
    /// Where the run records what it changes on a given cluster, which it then has to itself. `None` leaves that to who calls.
    pub ledger: Option<PathBuf>,
    /// The seed of the scenarios' order, for the reports, if it is random.
    pub seed: Option<u64>,
    /// The program that collects the state of the cluster when a scenario has failed, if one does.
    pub must_gather: Option<PathBuf>,
}

impl Options {
    /// Returns options for the built-in stack on a new cluster of ours. The flags are those of `cluster up`; without flags it is the
    /// default cluster.
    ///
    /// # Errors
    /// Returns an error if a flag is unknown or its value is invalid.
    pub fn own(lane: lane::Lane, flags: &[&str]) -> Result<Self, clap::Error> {
        #[derive(Parser)]
        #[command(no_binary_name = true)]
        struct Flags {
            #[command(flatten)]
            plan: PlanArgs,
        }
        Ok(Self {
            cluster: ClusterSource::Own(lane),
            plan: Flags::try_parse_from(flags)?.plan,
            clusters: 1,
            number: 1,
            state_root: None,
            install: true,
            manifests: None,
            scheduler: None,
            deadlines: Deadlines::default(),
            run: new_run_id(),
            ledger: None,
            seed: None,
            must_gather: None,
        })
    }

    /// The name of a phase of this cluster as a unit of the run: the first one's has no number.
    pub fn unit(&self, phase: &str) -> String {
        match self.number {
            1 => phase.to_owned(),
            number => format!("{phase} {number}"),
        }
    }
}

/// What exists so far, even if the set-up fails or is interrupted.
#[derive(Default)]
pub struct Partial {
    /// The cluster that was brought up for this run.
    pub own: Option<lane::Cluster>,
    /// Client of the cluster.
    pub client: Option<Client>,
    /// How often containers of a stack that was there before had restarted.
    pub restarts: Restarts,
    /// How the run is stopped from outside.
    pub interrupt: Interrupt,
    /// The given cluster belongs to the run.
    pub claim: Option<Claim>,
}

/// Prepares everything, step by step. `partial` records what exists so far.
pub async fn run(
    options: &Options,
    recorder: &Recorder,
    partial: &mut Partial,
) -> Result<Rc<Cluster>, StepError> {
    let Reached {
        client,
        exporter,
        published,
        mut kept,
    } = reach(options, recorder, partial).await?;
    partial.client = Some(client.clone());
    let run = options.run.clone();
    // missing parts of a kept stack do not belong to the run that restores them
    let installer = Options {
        run: kept::RUN.to_owned(),
        ..options.clone()
    };
    let options = if kept.is_some() { &installer } else { options };
    let kubernetes = recorder
        .step(
            "the API server is there",
            connect::version(recorder, &client),
        )
        .await?;
    recorder
        .step(
            "the cluster may be used for disruptive tests",
            connect::allowed(&client),
        )
        .await?;
    partial.restarts = Restarts::count(&client).await?;
    claim(options, &run, recorder, &client, partial).await?;
    let status = install_stack(options, recorder, &client, &published, kept.as_mut()).await?;
    infra::numacell(options, recorder, &client, &published).await?;
    let known = kept
        .as_ref()
        .and_then(|(stack, _)| stack.reference.as_ref());
    let reference = reference::take(options, recorder, &client, known).await?;
    if let Some((stack, kubeconfig)) = &mut kept {
        stack.installed(&reference, kubeconfig)?;
        recorder.keep_all();
    }
    let is_kept = kept.is_some();
    let own = match &options.cluster {
        ClusterSource::Own(lane) => Some((*lane, options.plan.runtime)),
        ClusterSource::Kubeconfig(_) => kept.map(|(stack, _)| (stack.lane, stack.runtime)),
    };
    let place = own.map_or(Place::Kubeconfig, |(lane, runtime)| {
        Place::of_ours(lane, runtime, is_kept)
    });
    let scheduler = options
        .scheduler
        .clone()
        .or(status.scheduler)
        .unwrap_or_default();
    let facts = Facts {
        kubernetes,
        environment: connect::environment(&client, place).await?,
        network_policies: match own {
            None => true,
            Some((lane::Lane::Local, _)) => filter::is_available(),
            Some((lane::Lane::Embedded, _)) => false,
        },
        scheduler,
        scheduler_resource: status.scheduler_resource,
        cache_resync: status.cache_resync,
        devices: reference::devices(&reference.nodes),
        exporter,
        published,
        faults: partial.own.as_ref().map(lane::Cluster::faults),
        nodes: reference.nodes,
        allocatable: reference.allocatable,
    };
    let cluster = Rc::new(Cluster {
        client,
        run,
        facts,
        deadlines: options.deadlines,
        between_polls: between_polls(&options.cluster),
    });
    let own_scheduler = options.scheduler.is_none();
    proof::works(&cluster, recorder, &partial.restarts, own_scheduler).await?;
    Ok(cluster)
}

/// Takes a given cluster for the run, unless another run is on it or has left something there.
async fn claim(
    options: &Options,
    run: &str,
    recorder: &Recorder,
    client: &Client,
    partial: &mut Partial,
) -> Result<(), StepError> {
    let (ClusterSource::Kubeconfig(kubeconfig), Some(ledger)) = (&options.cluster, &options.ledger)
    else {
        return Ok(());
    };
    recorder
        .step("no other run is on the cluster", async {
            let notes = recorder.note_sender();
            let claim = Claim::take(client, run, &partial.interrupt, notes).await?;
            let claim = partial.claim.insert(claim);
            let event = Event::ClusterClaimed {
                unit: recorder.unit().to_owned(),
                cluster: crate::claim::identity(client).await?,
                kubeconfig: kubeconfig.absolute_files(),
            };
            recorder.stream().secure(event).map_err(StepError::fail)?;
            claim.begin(ledger).await
        })
        .await
}

/// A cluster with a client, before it is looked at.
struct Reached<'a> {
    client: Client,
    /// Program of the exporter, if it is known.
    exporter: Option<PathBuf>,
    /// The images of its own registry.
    published: Published,
    /// The stack that is kept on it, and its kubeconfig.
    kept: Option<(Stack, &'a Path)>,
}

/// Brings a cluster up, or connects to that of the kubeconfig. In both cases the programs under test are built before, where they can be.
async fn reach<'a>(
    options: &'a Options,
    recorder: &Recorder,
    partial: &mut Partial,
) -> Result<Reached<'a>, StepError> {
    let mut exporter = None;
    let mut kept = None;
    let (client, path) = match &options.cluster {
        ClusterSource::Kubeconfig(kubeconfig) => {
            if let Some(path) = kubeconfig.single_file()
                && let Some(stack) = Stack::load(path)?
            {
                recorder
                    .step(
                        "the programs under test are built",
                        stack.programs_are_built(options, recorder),
                    )
                    .await?;
                exporter = Some(stack.bin_dir.join(binaries::EXPORTER));
                kept = Some((stack, path));
            }
            let client = recorder
                .step(
                    format!("the cluster of the {kubeconfig} answers"),
                    kubeconfig.client(options.deadlines.answer),
                )
                .await?;
            (client, kubeconfig.single_file().map(Path::to_owned))
        }
        ClusterSource::Own(lane) => {
            let bin_dir = recorder
                .step("the programs under test are built", async {
                    let note = |line: &str| recorder.note(line);
                    binaries::locate(options.plan.bin_dir.as_deref(), note)
                        .await
                        .map_err(|error| StepError::fail(chain(&error)))
                })
                .await?;
            exporter = Some(bin_dir.join(binaries::EXPORTER));
            let own = recorder
                .step(
                    format!("a cluster is up ({})", lane.name()),
                    own_cluster(*lane, options, bin_dir, recorder),
                )
                .await?;
            let (client, path) = (own.client(), own.kubeconfig());
            partial.own = Some(own);
            allow(&client).await?;
            (client, Some(path))
        }
    };
    let published = path.as_deref().map(Published::beside).transpose();
    let published = published.map_err(|error| {
        StepError::fail(format!(
            "it is unknown which images the cluster's registry has: {error}"
        ))
    })?;
    let published = published.unwrap_or_default();
    Ok(Reached {
        client,
        exporter,
        published,
        kept,
    })
}

/// Installs what is missing of the stack, and waits until it is available. Of a kept stack, the pods of changed programs restart.
async fn install_stack(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
    published: &Published,
    mut kept: Option<&mut (Stack, &Path)>,
) -> Result<available::Status, StepError> {
    let may_install = options.install || connect::may_install(client).await?;
    if may_install {
        kubelets::configured(options, recorder, client).await?;
    }
    install::stack(options, recorder, client, published, may_install).await?;
    if let Some((stack, kubeconfig)) = kept.as_deref_mut() {
        stack
            .restart_changed(options, recorder, client, kubeconfig)
            .await?;
    }
    let status = available::available(options, recorder, client).await?;
    if kept.is_some() {
        kept::is_running(options, recorder, client).await?;
    }
    Ok(status)
}

/// Returns the time between the two polls that must agree. It is many times what a kubelet and an exporter need to publish a change that
/// has begun; in an embedded cluster that takes a few milliseconds.
fn between_polls(source: &ClusterSource) -> Duration {
    Duration::from_millis(match source {
        ClusterSource::Own(lane::Lane::Embedded) => 50,
        ClusterSource::Own(lane::Lane::Local) | ClusterSource::Kubeconfig(_) => 200,
    })
}

async fn own_cluster(
    lane: lane::Lane,
    options: &Options,
    bin_dir: PathBuf,
    recorder: &Recorder,
) -> Result<lane::Cluster, StepError> {
    let root = options.state_root.clone().unwrap_or_else(|| match lane {
        lane::Lane::Embedded => cluster_state::temporary_root(),
        lane::Lane::Local => cluster_state::default_root(),
    });
    let plan = PlanArgs {
        bin_dir: Some(bin_dir),
        ..options.plan.clone()
    };
    let name = match options.number {
        1 => format!("run-{}", options.run),
        number => format!("run-{}-{number}", options.run),
    };
    let sender = recorder.note_sender();
    let report = move |progress: Progress| sender.note(&progress.to_string());
    let spec = plan
        .spec(lane, &name, &root, &report)
        .map_err(|error| StepError::fail(format!("{error:#}")))?;
    lane::Cluster::up(spec, &report)
        .await
        .map_err(|error| StepError::fail(chain(&error)))
}

/// Makes a short identity that no other run has.
pub fn new_run_id() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    id[..8].to_owned()
}
