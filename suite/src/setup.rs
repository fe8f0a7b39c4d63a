//! From nothing, or from a kubeconfig, to a cluster that scenarios can run on (scenarios-serial.md 1.1, 2).

mod connect;
mod infra;
mod install;
pub mod kept;
mod kubelets;
mod manifests;
mod reference;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use kube::Client;
use testbed::cli::PlanArgs;
use testbed::lane;
use testbed::local::Progress;
use testbed::node::filter;

use crate::binaries;
use crate::context::{Cluster, chain};
use crate::facts::Facts;
use crate::recorder::{Deadlines, Recorder};
use crate::scenario::Stop;
use kept::Stack;

pub use connect::{ALLOW_COMMAND, ALLOW_LABEL, allow};

/// Where the cluster comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Brought up for the run, and gone with it.
    Own(lane::Lane),
    /// Given by a kubeconfig file.
    Kubeconfig(PathBuf),
}

/// How to get to a cluster that scenarios can run on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the cluster comes from.
    pub lane: Lane,
    /// What a cluster of our own is made of.
    pub plan: PlanArgs,
    /// Directory of our own clusters, if not the usual one.
    pub state_root: Option<PathBuf>,
    /// Whether the stack may be installed into a cluster that does not have it.
    pub install: bool,
    /// Directory of the stack's manifests, if not the built-in ones.
    pub manifests: Option<PathBuf>,
    /// Scheduler that test pods name; none means that of the scheduler resource.
    pub scheduler: Option<String>,
    /// How long things may take.
    pub deadlines: Deadlines,
    /// Identity of the run.
    pub run: String,
}

impl Options {
    /// The stack as it comes, on a new cluster of ours that is made as the flags of `cluster up` say; without any, the default one.
    ///
    /// # Errors
    /// When there is no such flag, or its value is none.
    pub fn own(lane: lane::Lane, flags: &[&str]) -> Result<Self, clap::Error> {
        #[derive(Parser)]
        #[command(no_binary_name = true)]
        struct Flags {
            #[command(flatten)]
            plan: PlanArgs,
        }
        Ok(Self {
            lane: Lane::Own(lane),
            plan: Flags::try_parse_from(flags)?.plan,
            state_root: None,
            install: true,
            manifests: None,
            scheduler: None,
            deadlines: Deadlines::default(),
            run: crate::run::new_run_id(),
        })
    }
}

/// What exists so far, also when the set-up fails or is interrupted half-way.
#[derive(Default)]
pub struct Partial {
    /// The cluster that was brought up for this run.
    pub own: Option<lane::Cluster>,
    /// Client of the cluster.
    pub client: Option<Client>,
}

/// Prepares everything, step by step. What exists so far is kept in `partial`.
pub async fn run(
    options: &Options,
    recorder: &Recorder,
    partial: &mut Partial,
) -> Result<Cluster, Stop> {
    let mut exporter = None;
    let mut kept = None;
    let client = match &options.lane {
        Lane::Kubeconfig(path) => {
            if let Some(stack) = Stack::beside(path)? {
                recorder
                    .step(
                        "the programs under test are built",
                        stack.programs_are_built(options, recorder),
                    )
                    .await?;
                exporter = Some(stack.bin_dir.join(binaries::OPERATOR));
                kept = Some((stack, path));
            }
            recorder
                .step(
                    format!("the cluster of {} answers", path.display()),
                    connect::client(path),
                )
                .await?
        }
        Lane::Own(lane) => {
            let bin_dir = recorder
                .step("the programs under test are built", async {
                    let tell = |line: &str| recorder.tell(line);
                    binaries::locate(options.plan.bin_dir.as_deref(), tell)
                        .await
                        .map_err(|error| Stop::fail(chain(&error)))
                })
                .await?;
            exporter = Some(bin_dir.join(binaries::OPERATOR));
            let own = recorder
                .step(
                    format!("a cluster is up ({})", lane.name()),
                    own_cluster(*lane, options, bin_dir, recorder),
                )
                .await?;
            let client = own.client();
            partial.own = Some(own);
            allow(&client).await?;
            client
        }
    };
    partial.client = Some(client.clone());
    let run = options.run.clone();
    // what is missing of a kept stack does not belong to the run that puts it there again
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
    let may_install = options.install || connect::may_install(&client).await?;
    if may_install {
        kubelets::configured(options, recorder, &client).await?;
    }
    install::stack(options, recorder, &client, may_install).await?;
    if let Some((stack, kubeconfig)) = &mut kept {
        stack.renew(options, recorder, &client, kubeconfig).await?;
    }
    let status = install::available(options, recorder, &client).await?;
    if kept.is_some() {
        kept::is_running(options, recorder, &client).await?;
    }
    infra::numacell(options, recorder, &client).await?;
    let known = kept
        .as_ref()
        .and_then(|(stack, _)| stack.reference.as_ref());
    let reference = reference::take(options, recorder, &client, known).await?;
    if let Some((stack, kubeconfig)) = &mut kept {
        stack.installed(&reference, kubeconfig)?;
        recorder.keep_all();
    }
    let own = match &options.lane {
        Lane::Own(lane) => Some(*lane),
        Lane::Kubeconfig(_) => kept.map(|(stack, _)| stack.lane),
    };
    let scheduler = options
        .scheduler
        .clone()
        .or(status.scheduler)
        .unwrap_or_default();
    let facts = Facts {
        kubernetes,
        openshift: connect::has_group(&client, "machineconfiguration.openshift.io").await?,
        network_policies: match own {
            None => true,
            Some(lane::Lane::Local) => filter::is_possible(),
            Some(lane::Lane::Embedded) => false,
        },
        scheduler,
        cache_resync: status.cache_resync,
        devices: reference::devices(&reference.nodes),
        exporter,
        faults: partial.own.as_ref().map(lane::Cluster::faults),
        nodes: reference.nodes,
        allocatable: reference.allocatable,
    };
    Ok(Cluster {
        client,
        run,
        facts,
        deadlines: options.deadlines,
        between_looks: between_looks(&options.lane),
    })
}

/// Time between the two looks that have to agree. It is many times what a kubelet and an exporter need to tell what they have begun: in an
/// embedded cluster that takes a few milliseconds.
fn between_looks(lane: &Lane) -> Duration {
    Duration::from_millis(match lane {
        Lane::Own(lane::Lane::Embedded) => 50,
        Lane::Own(lane::Lane::Local) | Lane::Kubeconfig(_) => 200,
    })
}

async fn own_cluster(
    lane: lane::Lane,
    options: &Options,
    bin_dir: PathBuf,
    recorder: &Recorder,
) -> Result<lane::Cluster, Stop> {
    let root = options.state_root.clone().unwrap_or_else(|| match lane {
        lane::Lane::Embedded => testbed::state::passing_root(),
        lane::Lane::Local => testbed::state::default_root(),
    });
    let plan = PlanArgs {
        bin_dir: Some(bin_dir),
        ..options.plan.clone()
    };
    let name = format!("run-{}", options.run);
    let told = recorder.teller();
    let report = move |progress: Progress| told.tell(&progress.to_string());
    let spec = plan
        .spec(lane, &name, &root, &report)
        .map_err(|error| Stop::fail(format!("{error:#}")))?;
    lane::Cluster::up(spec, &report)
        .await
        .map_err(|error| Stop::fail(chain(&error)))
}
