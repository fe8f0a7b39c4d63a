//! A stack that stays on a cluster between runs. Beside the kubeconfig of the cluster a record says what the stack was started from; parts
//! that have changed since are updated.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::names;
use cluster_spec::images::Published;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};
use testbed::cli::RuntimeName;
use testbed::lane::Lane;

use super::reference::Reference;
use super::{Options, available, manifests};
use crate::binaries::{self, Build, EXPORTER, OPERATOR, PROGRAMS, SCHEDULER, TESTBED};
use crate::context::chain;
use crate::context::checks::{Rollout, describe, is_ready};
use crate::context::stack::Component;
use crate::kubeconfig::Kubeconfig;
use crate::recorder::{PollResult, Recorder};
use crate::step::StepError;

/// Name of the record in the cluster's directory.
const FILE: &str = "stack.json";
/// Used as the run's identity when a kept stack is installed, because it belongs to no run.
pub(super) const RUN: &str = crate::claim::KEPT;
/// Advice for everything that cannot change on a running cluster.
const RECREATE_ADVICE: &str =
    "create the cluster again (`cluster down`, then `cluster up --with-stack`)";
/// How long an API server may take to report on a stack.
const AVAILABILITY_TIMEOUT: Duration = Duration::from_secs(5);

/// What is recorded about the stack on a kept cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stack {
    /// Lane of the cluster.
    pub lane: Lane,
    /// The container runtime of its nodes.
    #[serde(default)]
    pub runtime: RuntimeName,
    /// Directory of the programs that run on it.
    pub bin_dir: PathBuf,
    /// The builds of the running programs, by the program's name.
    pub builds: BTreeMap<String, Build>,
    /// Digest of the manifests that the stack was installed from.
    manifests: String,
    /// The unloaded cluster when the stack was installed; `None` before that.
    pub(super) reference: Option<Reference>,
}

impl Stack {
    /// Records a stack that is about to be installed on the cluster with this directory.
    pub fn begin(
        dir: &Path,
        lane: Lane,
        runtime: RuntimeName,
        bin_dir: &Path,
    ) -> Result<(), StepError> {
        let stack = Self {
            lane,
            runtime,
            bin_dir: bin_dir.to_owned(),
            builds: binaries::builds(bin_dir).map_err(|error| StepError::fail(chain(&error)))?,
            manifests: manifests::digest(None)?,
            reference: None,
        };
        stack.write(dir)
    }

    /// Returns the kept stack on the cluster of a kubeconfig, if there is one.
    pub fn load(kubeconfig: &Path) -> Result<Option<Self>, StepError> {
        let path = cluster_dir(kubeconfig).join(FILE);
        let damaged = |error: &dyn std::error::Error| {
            StepError::fail(format!(
                "the record of the stack {} cannot be read: {}; {RECREATE_ADVICE}",
                path.display(),
                chain(error)
            ))
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| damaged(&error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(damaged(&error)),
        }
    }

    fn write(&self, dir: &Path) -> Result<(), StepError> {
        let path = dir.join(FILE);
        let draft = dir.join(format!("{FILE}.new"));
        let written = serde_json::to_string_pretty(self)
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(&draft, text))
            .and_then(|()| std::fs::rename(&draft, &path));
        written.map_err(|error| {
            StepError::fail(format!(
                "the record of the stack {} cannot be written: {error}",
                path.display()
            ))
        })
    }

    /// Describes for `cluster status` where the programs are and which builds of them run, in indented lines.
    pub fn describe(&self, kubeconfig: &Path) -> String {
        let programs = self.builds.iter().map(|(program, build)| {
            let time = Timestamp::try_from(build.modified)
                .map_or_else(|_| "an unknown time".to_owned(), |time| format!("{time:.0}"));
            let change = match Build::of(&self.bin_dir.join(program)) {
                Ok(now) if now == *build => "",
                Ok(_) if program == TESTBED => {
                    ", has changed since: the cluster takes the new one only when it is created again"
                }
                Ok(_) if has_registry(kubeconfig) => {
                    ", has changed since: the cluster's images have the new one only when it is created again"
                }
                Ok(_) => ", has changed since: the next run restarts its pods",
                Err(_) => ", is gone",
            };
            format!("    {program} of {time}{change}\n")
        });
        let head = format!("  programs in {}:\n", self.bin_dir.display());
        std::iter::once(head).chain(programs).collect()
    }

    /// Ensures that the programs are built from the current sources, and that the options of the run match the kept stack.
    pub(super) async fn programs_are_built(
        &self,
        options: &Options,
        recorder: &Recorder,
    ) -> Result<(), StepError> {
        let failed = |error: binaries::Error| StepError::fail(chain(&error));
        if let Some(dir) = &options.plan.bin_dir
            && binaries::existing(dir).map_err(failed)? != self.bin_dir
        {
            return Err(StepError::fail(format!(
                "the stack on this cluster runs the programs of {}, not those of {}; leave --bin-dir out, or {RECREATE_ADVICE}",
                self.bin_dir.display(),
                dir.display()
            )));
        }
        if manifests::digest(options.manifests.as_deref())? != self.manifests {
            return Err(StepError::fail(format!(
                "the stack on this cluster was installed from other manifests than those that this run has; {RECREATE_ADVICE}"
            )));
        }
        binaries::refresh(&self.bin_dir, |line| recorder.note(line))
            .await
            .map_err(failed)
    }

    /// Restarts the pods of programs that have changed since they were started, and no others.
    pub(super) async fn restart_changed(
        &mut self,
        options: &Options,
        recorder: &Recorder,
        client: &Client,
        kubeconfig: &Path,
    ) -> Result<(), StepError> {
        let now =
            binaries::builds(&self.bin_dir).map_err(|error| StepError::fail(chain(&error)))?;
        let changed: BTreeSet<&str> = PROGRAMS
            .into_iter()
            .filter(|program| now.get(*program) != self.builds.get(*program))
            .collect();
        if changed.contains(TESTBED) {
            recorder.note(&format!(
                "{TESTBED} has changed since the cluster was brought up, which still runs the former build; for the new one {RECREATE_ADVICE}"
            ));
        }
        let of_images = changed.iter().find(|program| **program != TESTBED);
        if let Some(program) = of_images.filter(|_| has_registry(kubeconfig)) {
            return Err(StepError::fail(format!(
                "{program} has changed since the cluster's images were made; {RECREATE_ADVICE}"
            )));
        }
        for (program, component) in [
            (OPERATOR, Component::Operator),
            (EXPORTER, Component::Exporters),
            (SCHEDULER, Component::Scheduler),
        ] {
            if !changed.contains(program) {
                continue;
            }
            recorder
                .step(
                    format!("{} restarts: {program} has changed", in_words(component)),
                    restart(component, options, recorder, client),
                )
                .await?;
            self.builds.extend(
                now.get_key_value(program)
                    .map(|(name, build)| (name.clone(), *build)),
            );
            self.write(cluster_dir(kubeconfig))?;
        }
        Ok(())
    }

    /// Records the reference of a stack that was just installed.
    pub(super) fn installed(
        &mut self,
        reference: &Reference,
        kubeconfig: &Path,
    ) -> Result<(), StepError> {
        if self.reference.is_some() {
            return Ok(());
        }
        self.reference = Some(reference.clone());
        self.write(cluster_dir(kubeconfig))
    }
}

/// Waits until the pods of the stack are as specified and ready.
pub(super) async fn is_running(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
) -> Result<(), StepError> {
    let what = "all pods of the stack are ready";
    let poll = async || {
        Ok(match not_running(client).await? {
            None => PollResult::Ready(()),
            Some(why) => PollResult::NotYet(why),
        })
    };
    let limit = options.deadlines.installed;
    recorder.step(what, recorder.until(what, limit, poll)).await
}

/// Describes in one line whether the stack on a cluster is available now, by the conditions of its resources.
pub async fn availability(kubeconfig: &Path) -> String {
    let unavailable = async {
        available::unavailable(
            &Kubeconfig::from(kubeconfig.to_owned())
                .client(AVAILABILITY_TIMEOUT)
                .await?,
        )
        .await
    };
    match tokio::time::timeout(AVAILABILITY_TIMEOUT, unavailable).await {
        Ok(Ok(None)) => "the stack is available".to_owned(),
        Ok(Ok(Some(why))) => format!("the stack is not available: {why}"),
        Ok(Err(error)) => format!(
            "the state of the stack is unknown: {}",
            error.into_failure("").message
        ),
        Err(_) => "the state of the stack is unknown: the API server does not answer".to_owned(),
    }
}

/// Returns whether the cluster has a registry, whose images were made when it was brought up.
fn has_registry(kubeconfig: &Path) -> bool {
    Published::beside(kubeconfig).is_ok_and(|published| !published.0.is_empty())
}

/// Returns the directory of the cluster that a kubeconfig belongs to.
fn cluster_dir(kubeconfig: &Path) -> &Path {
    kubeconfig.parent().unwrap_or(kubeconfig)
}

/// Returns the first difference between the stack's pods and its Deployments and DaemonSets.
async fn not_running(client: &Client) -> Result<Option<String>, StepError> {
    let all = ListParams::default();
    let deployments = Api::<Deployment>::namespaced(client.clone(), names::NAMESPACE);
    for deployment in deployments.list(&all).await?.items {
        let rollout = Rollout::of_deployment(&deployment);
        if !rollout.is_over() {
            let name = deployment.name_any();
            return Ok(Some(format!("Deployment {name}: {rollout}")));
        }
    }
    let sets = Api::<DaemonSet>::namespaced(client.clone(), names::NAMESPACE);
    let sets = sets.list(&all).await?.items;
    Ok(sets.iter().find_map(|set| {
        let rollout = Rollout::of(set);
        (!rollout.is_over()).then(|| format!("DaemonSet {}: {rollout}", set.name_any()))
    }))
}

fn in_words(component: Component) -> &'static str {
    match component {
        Component::Operator => "the operator",
        Component::Exporters => "every exporter",
        Component::Scheduler => "the scheduler",
    }
}

/// Deletes the pods of a component and waits until as many new ones are ready.
async fn restart(
    component: Component,
    options: &Options,
    recorder: &Recorder,
    client: &Client,
) -> Result<(), StepError> {
    let pods = Api::<Pod>::namespaced(client.clone(), names::NAMESPACE);
    let ours = ListParams::default().labels(&component.selector());
    let before = pods.list(&ours).await?.items;
    for pod in &before {
        match pods.delete(&pod.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => other.map(drop)?,
        }
    }
    let old: BTreeSet<Option<String>> = before.iter().map(ResourceExt::uid).collect();
    let what = format!("{} runs in new pods", in_words(component));
    recorder
        .until(&what, options.deadlines.installed, async || {
            let now = pods.list(&ours).await?.items;
            let waits = now
                .iter()
                .find(|pod| old.contains(&pod.uid()) || !is_ready(pod));
            Ok(match waits {
                Some(pod) => PollResult::NotYet(describe(pod)),
                None if now.len() < before.len() => {
                    PollResult::NotYet(format!("{} of {} pods are there", now.len(), before.len()))
                }
                None => PollResult::Ready(()),
            })
        })
        .await?;
    recorder.saw(format!("{} pods", before.len()));
    Ok(())
}
