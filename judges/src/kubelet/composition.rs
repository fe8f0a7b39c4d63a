//! The contents of a corpus, as counts.

use std::collections::BTreeSet;

use cluster_spec::kubelet::{CpuPolicy, MemoryPolicy, TopologyPolicy};

use super::corpus::{Configuration, Operation, Sequence, Step};
use super::recipe::Kind;

/// Counts over sequences, and the values that occur in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composition {
    /// Number of sequences.
    pub sequences: usize,
    /// Sequences of 8 or more pods.
    pub long: usize,
    /// Sequences with a refused pod.
    pub with_refusal: usize,
    /// Sequences with a deletion while other pods stay.
    pub with_deletion: usize,
    /// Sequences with a restart of the kubelet.
    pub with_restart: usize,
    /// Sequences with a pod that ended for a critical one.
    pub with_preemption: usize,
    /// Sequences with their state files, byte for byte.
    pub with_files: usize,
    /// Number of pods.
    pub pods: usize,
    /// Different machines with different kubelet settings, as text.
    pub configurations: BTreeSet<String>,
    /// Numbers of zones.
    pub zones: BTreeSet<usize>,
    /// Numbers of threads per core.
    pub threads: BTreeSet<u32>,
    /// Policies, scopes and options, by the names of the kubelet's settings.
    pub settings: BTreeSet<String>,
    /// Resources that containers ask for.
    pub resources: BTreeSet<String>,
    /// Kinds of containers.
    pub kinds: BTreeSet<&'static str>,
    /// Reasons of refusals.
    pub reasons: BTreeSet<String>,
}

impl Composition {
    /// Adds the sequences that one kubelet saw.
    pub fn add(&mut self, configuration: &Configuration, sequences: &[Sequence]) {
        let settings = &configuration.settings;
        self.configurations
            .insert(format!("{:?} {settings:?}", configuration.machine));
        self.zones.insert(configuration.machine.zones().len());
        self.threads
            .insert(configuration.machine.threads_per_core());
        let policy = settings.topology_manager_policy;
        self.settings.insert(format!("topology {policy:?}"));
        if policy != TopologyPolicy::None {
            self.settings
                .insert(format!("{policy:?} {:?}", settings.topology_manager_scope));
        }
        if settings.cpu_manager_policy == CpuPolicy::None {
            self.settings.insert("cpu none".to_owned());
        }
        if settings.memory_manager_policy == MemoryPolicy::None {
            self.settings.insert("memory none".to_owned());
        }
        let options = settings.cpu_manager_policy_options.keys();
        let rules = settings.topology_manager_policy_options.keys();
        self.settings.extend(options.chain(rules).cloned());
        for sequence in sequences {
            self.add_sequence(sequence);
        }
    }

    fn add_sequence(&mut self, sequence: &Sequence) {
        let count = |is: fn(&Operation) -> bool| {
            let operations = sequence.steps.iter().map(|step| &step.operation);
            operations.filter(|operation| is(operation)).count()
        };
        let pods = count(|operation| matches!(operation, Operation::Create { .. }));
        let has = |is: fn(&Operation) -> bool| usize::from(count(is) > 0);
        self.sequences += 1;
        self.pods += pods;
        self.long += usize::from(pods >= 8);
        self.with_deletion += has(|operation| matches!(operation, Operation::Delete { .. }));
        self.with_restart += has(|operation| matches!(operation, Operation::Restart { .. }));
        self.with_files += usize::from(sequence.files.is_some());
        let steps = &sequence.steps;
        let refused = steps
            .iter()
            .filter_map(|step| step.observed.refusal.as_ref());
        let failed = || steps.iter().flat_map(|step| step.observed.failed.values());
        self.with_refusal += usize::from(refused.clone().next().is_some());
        let preempts = |step: &Step| {
            matches!(step.operation, Operation::Create { .. }) && !step.observed.failed.is_empty()
        };
        self.with_preemption += usize::from(steps.iter().any(preempts));
        self.reasons
            .extend(refused.chain(failed()).map(|end| end.reason.clone()));
        self.reasons.remove("");
        for step in steps {
            let Operation::Create { pod, .. } = &step.operation else {
                continue;
            };
            for container in &pod.containers {
                self.resources.extend(container.limits.keys().cloned());
                self.kinds.insert(match container.kind {
                    Kind::App => "app",
                    Kind::Init => "init",
                    Kind::Sidecar => "sidecar",
                });
            }
        }
    }
}
