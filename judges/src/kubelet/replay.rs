//! Replays the recordings of real kubelets against the model.

use std::collections::BTreeSet;

use api::quantity::Amount;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::node::{self, Node, Refusal};
use kubelet_model::workload::{self, Amounts};
use kubelet_model::{checkpoint, preemption, settings};
use serde_json::Value;

use super::corpus::{Configuration, ContainerView, Files, Observation, Operation, Sequence, Step};
use super::recipe::{ContainerRecipe, NAMESPACE, PodRecipe};

/// Why a replay is not possible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model refuses settings with which the kubelet ran.
    #[error("the model does not start")]
    Start(#[from] settings::Error),
    /// A recorded pod could not be parsed.
    #[error(transparent)]
    Pod(#[from] workload::Error),
    /// The model does not restart where the kubelet did.
    #[error(transparent)]
    Restart(#[from] node::NoSharedCpus),
    /// A recorded state file does not have the expected structure.
    #[error(transparent)]
    File(#[from] checkpoint::Error),
    /// A recorded state file is not JSON.
    #[error("a recorded state file is damaged")]
    Json(#[from] serde_json::Error),
    /// A recorded quantity could not be parsed.
    #[error("cannot parse quantity {0:?}")]
    Quantity(String),
}

/// A difference between kubelet and model.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Seed of the sequence and index of the step; none for answers before any pod.
    pub step: Option<(u64, usize)>,
    /// What differs.
    pub what: &'static str,
    /// The recorded value.
    pub kubelet: String,
    /// The value of the model.
    pub model: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((seed, step)) = self.step {
            write!(f, "sequence {seed}, step {step}: ")?;
        }
        let Self {
            what,
            kubelet,
            model,
            ..
        } = self;
        write!(f, "{what}:\n  kubelet {kubelet}\n  model   {model}")
    }
}

/// Name of what differs, the recorded value, and the value of the model.
type Found = (&'static str, String, String);

/// Replays the sequences of one kubelet one after another; returns the first difference of each sequence that has one.
pub fn replay(
    configuration: &Configuration,
    sequences: &[Sequence],
) -> Result<Vec<Difference>, Error> {
    let (mut replay, mut differences) = Replay::new(configuration)?;
    for sequence in sequences {
        differences.extend(replay.sequence(sequence)?);
    }
    Ok(differences)
}

/// The model, replaying one kubelet.
#[derive(Clone)]
pub struct Replay {
    machine: Machine,
    node: Node,
    /// Pods whose containers were started.
    running: BTreeSet<String>,
}

impl Replay {
    /// Creates the model of a kubelet; returns it with the differences in the answers before any pod.
    pub fn new(configuration: &Configuration) -> Result<(Self, Vec<Difference>), Error> {
        let node = Node::new(&configuration.machine, &configuration.settings)?;
        let pairs = [
            (
                "capacity",
                show(&amounts(&configuration.capacity)?),
                show(&node.capacity()),
            ),
            (
                "allocatable",
                show(&amounts(&configuration.allocatable)?),
                show(&node.allocatable()),
            ),
            (
                "GetAllocatableResources",
                show(&configuration.resources),
                show(&ContainerView::of_allocatable(
                    &node.allocatable_resources(),
                )),
            ),
        ];
        let differences = pairs
            .into_iter()
            .filter(|(_, kubelet, model)| kubelet != model)
            .map(|(what, kubelet, model)| Difference {
                step: None,
                what,
                kubelet,
                model,
            })
            .collect();
        let replay = Self {
            machine: configuration.machine.clone(),
            node,
            running: BTreeSet::new(),
        };
        Ok((replay, differences))
    }

    /// Replays the next sequence and returns its first difference. Later ones are not reported, because they follow from the first.
    pub fn sequence(&mut self, sequence: &Sequence) -> Result<Option<Difference>, Error> {
        let mut first = None;
        for (index, step) in sequence.steps.iter().enumerate() {
            let found = self.step(step)?;
            if let Some((what, kubelet, model)) = found.filter(|_| first.is_none()) {
                first = Some(Difference {
                    step: Some((sequence.seed, index)),
                    what,
                    kubelet,
                    model,
                });
            }
        }
        let files = sequence.files.as_ref().filter(|_| first.is_none());
        if let Some((what, kubelet, model)) = files.map(compare_files).transpose()?.flatten() {
            first = Some(Difference {
                step: Some((sequence.seed, sequence.steps.len())),
                what,
                kubelet,
                model,
            });
        }
        Ok(first)
    }

    /// Performs a step and returns what differs. Where the kubelet iterates over a hash table to forget pods and the order matters, the
    /// model may use any order that leads to the recorded result.
    fn step(&mut self, step: &Step) -> Result<Option<Found>, Error> {
        let before = self.clone();
        let observed = self.perform(&step.operation, &step.observed)?;
        let found = compare(&step.observed, &observed);
        if found.is_none() {
            return Ok(None);
        }
        for order in 0.. {
            let mut other = before.clone();
            other.node.set_release_order(order);
            let observed = other.perform(&step.operation, &step.observed)?;
            if !other.node.used_release_order() {
                break;
            }
            if compare(&step.observed, &observed).is_none() {
                *self = other;
                return Ok(None);
            }
        }
        Ok(found)
    }

    fn perform(
        &mut self,
        operation: &Operation,
        recorded: &Observation,
    ) -> Result<Observation, Error> {
        let node = &mut self.node;
        let mut observed = Observation::default();
        match operation {
            Operation::Create { name, pod } => {
                node.devices().set_first_choice(recorded.devices.clone());
                node.prefer_victims(recorded.failed.keys().cloned());
                match node.admit(&object(name, pod))? {
                    Ok(()) if pod.runs => node.all_started(name),
                    Ok(()) => {}
                    Err(refusal) => observed.refusal = Some(refusal),
                }
                if pod.runs {
                    self.running.insert(name.clone());
                }
                for name in node.take_preempted() {
                    let ended = preempted(self.running.contains(&name));
                    observed.failed.insert(name, ended);
                }
            }
            Operation::Delete { name } => node.stopped(name),
            Operation::Restart { probe } => {
                observed.failed = node.restart()?;
                node.register_devices(&self.machine);
                let recipe = PodRecipe {
                    containers: vec![ContainerRecipe::default()],
                    ..PodRecipe::default()
                };
                // Whether the probe was admitted or not, it is deleted again.
                drop(node.admit(&object(probe, &recipe))?);
                node.stopped(probe);
            }
            Operation::Drain => {
                let all: Vec<String> = node.active().map(str::to_owned).collect();
                for uid in all {
                    node.stopped(&uid);
                }
            }
        }
        observed.list = node
            .list()
            .pod_resources
            .iter()
            .map(|pod| (pod.name.clone(), ContainerView::of_pod(pod)))
            .collect();
        if let Operation::Create { name, .. } = operation {
            let pod = node.get(NAMESPACE, name).ok();
            observed.get = pod.as_ref().map(ContainerView::of_pod);
        }
        observed.cpu = node.cpu_state();
        observed.memory = node.memory_state();
        observed.devices = node.device_entries().to_vec();
        Ok(observed)
    }
}

/// Returns the status of a preempted pod: empty if its containers ran, because they exited with 0.
fn preempted(ran: bool) -> Refusal {
    let (reason, message) = if ran {
        ("", "")
    } else {
        (preemption::REASON, preemption::MESSAGE)
    };
    Refusal {
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// Compares the recorded files with what the model would write for their contents, checksums included.
fn compare_files(files: &Files) -> Result<Option<Found>, Error> {
    type Render = fn(&Value) -> Result<String, checkpoint::Error>;
    let kinds: [(&'static str, &String, Render); 3] = [
        (
            "bytes of cpu_manager_state",
            &files.cpu,
            checkpoint::cpu_manager_state,
        ),
        (
            "bytes of memory_manager_state",
            &files.memory,
            checkpoint::memory_manager_state,
        ),
        (
            "bytes of the device checkpoint",
            &files.devices,
            checkpoint::device_checkpoint_of,
        ),
    ];
    for (what, text, render) in kinds {
        if text.is_empty() {
            continue;
        }
        let ours = render(&serde_json::from_str(text)?)?;
        if ours != *text {
            return Ok(Some((what, text.clone(), ours)));
        }
    }
    Ok(None)
}

fn amounts(list: &std::collections::BTreeMap<String, String>) -> Result<Amounts, Error> {
    list.iter()
        .map(|(name, text)| {
            let amount: Amount = text.parse().map_err(|_| Error::Quantity(text.clone()))?;
            Ok((name.clone(), amount.in_unit_of(name)))
        })
        .collect()
}

fn show(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

/// Returns the pod with its name as UID, as in the corpus.
fn object(name: &str, recipe: &PodRecipe) -> Pod {
    let mut pod = recipe.pod(NAMESPACE, name, "");
    pod.metadata.uid = Some(name.to_owned());
    pod
}

/// Sorts the blocks of each container, because their order in the kubelet is unspecified.
fn sorted_blocks(memory: &Value) -> Value {
    let mut memory = memory.clone();
    let pods = memory.get_mut("entries").and_then(Value::as_object_mut);
    for container in pods
        .into_iter()
        .flat_map(|pods| pods.values_mut())
        .filter_map(Value::as_object_mut)
        .flat_map(|containers| containers.values_mut())
    {
        if let Some(blocks) = container.as_array_mut() {
            blocks.sort_by_key(ToString::to_string);
        }
    }
    memory
}

fn compare(kubelet: &Observation, model: &Observation) -> Option<Found> {
    if kubelet.refusal != model.refusal {
        return Some(("verdict", show(&kubelet.refusal), show(&model.refusal)));
    }
    if kubelet.failed != model.failed {
        return Some(("failed pods", show(&kubelet.failed), show(&model.failed)));
    }
    if kubelet.cpu != model.cpu {
        return Some((
            "cpu_manager_state",
            kubelet.cpu.to_string(),
            model.cpu.to_string(),
        ));
    }
    let (ours, theirs) = (sorted_blocks(&model.memory), sorted_blocks(&kubelet.memory));
    if ours != theirs {
        return Some(("memory_manager_state", theirs.to_string(), ours.to_string()));
    }
    if kubelet.devices != model.devices {
        return Some((
            "device checkpoint",
            show(&kubelet.devices),
            show(&model.devices),
        ));
    }
    if kubelet.list != model.list {
        return Some(("List", show(&kubelet.list), show(&model.list)));
    }
    if kubelet.get != model.get {
        return Some(("Get", show(&kubelet.get), show(&model.get)));
    }
    None
}
