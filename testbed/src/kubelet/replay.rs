//! Replays what was recorded on real kubelets against the model.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::corpus::{Configuration, ContainerView, Operation, Seen, Sequence};
use super::node::Node;
use super::record::NAMESPACE;
use super::workload::{self, Amounts};
use super::{recipe::PodRecipe, settings};

/// Why a replay could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubelet ran with these settings, the model refuses them.
    #[error("the model does not start")]
    Start(#[from] settings::Error),
    /// A recorded pod cannot be read.
    #[error(transparent)]
    Pod(#[from] workload::Error),
    /// A recorded quantity cannot be read.
    #[error("quantity {0:?} cannot be read")]
    Quantity(String),
}

/// A difference between kubelet and model.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Seed of the sequence and index of the step; none for what is said before any pod.
    pub step: Option<(u64, usize)>,
    /// What differs.
    pub what: &'static str,
    /// As recorded.
    pub kubelet: String,
    /// As the model has it.
    pub model: String,
}

/// Replays the sequences of one kubelet one after another; the first difference of each sequence that has one. After a
/// difference the rest of its sequence is not compared, because everything later follows from it.
pub fn replay(
    configuration: &Configuration,
    sequences: &[Sequence],
) -> Result<Vec<Difference>, Error> {
    let mut node = Node::new(&configuration.machine, &configuration.settings)?;
    let mut differences = Vec::new();
    let mut note = |what, kubelet: String, model: String| {
        if kubelet != model {
            differences.push(Difference {
                step: None,
                what,
                kubelet,
                model,
            });
        }
    };
    note(
        "capacity",
        show(&amounts(&configuration.capacity)?),
        show(&node.capacity()),
    );
    note(
        "allocatable",
        show(&amounts(&configuration.allocatable)?),
        show(&node.allocatable()),
    );
    note(
        "GetAllocatableResources",
        show(&configuration.resources),
        show(&ContainerView::of_allocatable(
            &node.allocatable_resources(),
        )),
    );
    for sequence in sequences {
        let mut differs = false;
        for (index, step) in sequence.steps.iter().enumerate() {
            let seen = perform(&mut node, &step.operation, &step.seen)?;
            let found = compare(&step.seen, &seen);
            if let Some((what, kubelet, model)) = found.filter(|_| !differs) {
                differs = true;
                differences.push(Difference {
                    step: Some((sequence.seed, index)),
                    what,
                    kubelet,
                    model,
                });
            }
        }
    }
    Ok(differences)
}

fn amounts(list: &std::collections::BTreeMap<String, String>) -> Result<Amounts, Error> {
    list.iter()
        .map(|(name, text)| {
            let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.clone());
            let read = if name == "cpu" {
                api::quantity::milli(&quantity)
            } else {
                api::quantity::units(&quantity)
            };
            let amount = read.map_err(|_| Error::Quantity(text.clone()))?;
            Ok((name.clone(), amount))
        })
        .collect()
}

fn show(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn perform(node: &mut Node, operation: &Operation, recorded: &Seen) -> Result<Seen, Error> {
    let mut seen = Seen::default();
    match operation {
        Operation::Create { name, pod } => {
            node.devices().favour(recorded.devices.clone());
            match node.admit(&object(name, pod))? {
                Ok(()) if pod.runs => node.all_started(name),
                Ok(()) => {}
                Err(refusal) => seen.refusal = Some(refusal),
            }
        }
        Operation::Delete { name } => node.stopped(name),
        Operation::Drain => {
            let all: Vec<String> = node.active().map(str::to_owned).collect();
            for uid in all {
                node.stopped(&uid);
            }
        }
    }
    seen.list = node
        .list()
        .pod_resources
        .iter()
        .map(|pod| (pod.name.clone(), ContainerView::of_pod(pod)))
        .collect();
    if let Operation::Create { name, .. } = operation {
        let pod = node.get(NAMESPACE, name).ok();
        seen.get = pod.as_ref().map(ContainerView::of_pod);
    }
    seen.cpu = node.cpu_state();
    seen.memory = node.memory_state();
    seen.devices = node.device_entries().to_vec();
    Ok(seen)
}

/// The pod with its name as UID, as the corpus has it.
fn object(name: &str, recipe: &PodRecipe) -> Pod {
    let mut pod = recipe.pod(NAMESPACE, name, "");
    pod.metadata.uid = Some(name.to_owned());
    pod
}

/// The blocks of a container come in no particular order from the kubelet.
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

fn compare(kubelet: &Seen, model: &Seen) -> Option<(&'static str, String, String)> {
    if kubelet.refusal != model.refusal {
        return Some(("verdict", show(&kubelet.refusal), show(&model.refusal)));
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
