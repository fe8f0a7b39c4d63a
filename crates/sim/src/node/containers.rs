//! What others see of the containers of a node, and do to them.

use std::time::Duration;

use cri_runtime::control::{ContainerFacts, ExecOutput, Signal, State, Target};
use fixtures::machines::format_cpu_list;
use nix::sys::signal::Signal as Number;

use super::kubelet::worker::snapshot::ContainerSnapshot;
use super::launcher::Process;
use super::status::facts::Run;
use super::{Error, SimulatedNode};

impl SimulatedNode {
    fn running_container(&self, target: &Target) -> Result<ContainerSnapshot, Error> {
        let snapshots = self.kubelet.snapshots();
        let mut pods = snapshots.into_iter().filter(|snapshot| {
            let metadata = &snapshot.pod.metadata;
            metadata.namespace.as_ref() == Some(&target.namespace)
                && metadata.name.as_ref() == Some(&target.pod)
                && !snapshot.is_over
        });
        pods.find_map(|snapshot| {
            let mut containers = snapshot.containers.into_iter();
            containers.find(|seen| seen.name == target.container && seen.process.is_some())
        })
        .ok_or_else(|| Error::NotRunning(target.clone()))
    }

    /// Sends a signal to a running container; all but `TERM` go to each of its processes.
    pub fn signal(&self, target: &Target, signal: Signal) -> Result<(), Error> {
        let not_running = || Error::NotRunning(target.clone());
        let process = self
            .running_container(target)?
            .process
            .ok_or_else(not_running)?;
        match signal {
            Signal::Stop => process.signal_all(Number::SIGSTOP),
            Signal::Cont => process.signal_all(Number::SIGCONT),
            Signal::Kill => process.signal_all(Number::SIGKILL),
            Signal::Term => {
                process.signal(Number::SIGTERM);
                Ok(())
            }
        }
        .map_err(|_| not_running())
    }

    /// Runs a command in a running container.
    pub async fn exec(
        &self,
        target: &Target,
        command: &[&str],
        limit: Duration,
    ) -> Result<ExecOutput, Error> {
        let seen = self.running_container(target)?;
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let output = self.kubelet.exec(&seen.env, &command, limit).await;
        let output = output.map_err(Error::Exec)?;
        Ok(ExecOutput::new(output.code, &output.stdout, &output.stderr))
    }

    /// Returns every container of the pods that the node knows, with the CPU sets that it would have.
    pub fn containers(&self) -> Vec<ContainerFacts> {
        let mut facts = Vec::new();
        for snapshot in self.kubelet.snapshots() {
            let metadata = &snapshot.pod.metadata;
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let pod = metadata.name.as_deref().unwrap_or_default();
            for seen in &snapshot.containers {
                let Some(id) = &seen.id else { continue };
                let (cpus, mems) = self.kubelet.managers.sets(namespace, pod, &seen.name);
                let list = |ids: Vec<i64>| {
                    let ids: Vec<u32> = ids
                        .into_iter()
                        .filter_map(|id| u32::try_from(id).ok())
                        .collect();
                    format_cpu_list(&ids)
                };
                let (state, exit_code) = match &seen.run {
                    Run::Waiting { .. } => (State::Created, None),
                    Run::Running { .. } => (State::Running, None),
                    Run::Exited(end) => (State::Exited, Some(end.exit_code)),
                };
                facts.push(ContainerFacts {
                    target: Target::new(namespace, pod, &seen.name),
                    pod_uid: metadata.uid.clone().unwrap_or_default(),
                    id: id.clone(),
                    attempt: u32::try_from(seen.attempt).unwrap_or_default(),
                    state,
                    pid: seen.process.as_ref().map(Process::pid),
                    exit_code,
                    cpus: list(cpus),
                    mems: list(mems),
                });
            }
        }
        facts
    }
}
