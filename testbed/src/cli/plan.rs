//! What a cluster is made of, as arguments of a command line.

use std::path::{Path, PathBuf};

use anyhow::Context;
use api::labels;
use cluster_spec::flavour::Flavour;
use cluster_spec::kind::Kind;
use cluster_spec::plan::{self, ClusterSpec, NodePlan};
use cluster_spec::progress::{Report, note};
use cluster_spec::runtime::Runtime;
use cri_runtime::filter;
use fixtures::machines::{Machine, profile};
use programs::containers;
use programs::kubernetes::{self, SearchPath};
use serde::{Deserialize, Serialize};

use crate::embedded::EmbeddedSpec;
use crate::lane::{Lane, Spec};

/// The container runtimes by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeName {
    /// Process trees without images; faults reach each of them.
    #[default]
    Builtin,
    /// Real containers.
    Containerd,
}

/// What a cluster is made of.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    /// Directory with the Kubernetes programs [default: `KUBEBUILDER_ASSETS`, `PATH`, a cache, or a build]
    #[arg(long, value_name = "DIR")]
    pub assets: Option<PathBuf>,
    /// Number of worker nodes; the first half aligns containers, the other half pods.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub workers: u8,
    /// Machine profile of the nodes: the name of a profile or a file.
    #[arg(
        long,
        value_name = "FILE|NAME",
        default_value = "two-zones",
        help = format!("Machine profile of the nodes: a YAML file, or one of {}", Machine::NAMES.join(", "))
    )]
    pub machine: String,
    /// YAML file with the plan of each worker, in place of number and machine.
    #[arg(long, value_name = "FILE", hide = true)]
    pub nodes: Option<PathBuf>,
    /// Number of additional light nodes for scale tests: they are Ready and run any pod at once without processes; no zones. Embedded lane
    /// only.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20_000))]
    pub light_nodes: u32,
    /// Directory with the programs of the stack [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Make the cluster an OpenShift: its kinds, its objects, and a process that configures machines.
    #[arg(long, value_enum, value_name = "KIND")]
    pub flavour: Option<Flavour>,
    /// Make the node of the control plane a worker, too, so that it takes pods.
    #[arg(long)]
    pub schedulable_control_plane: bool,
    /// Container runtime of the nodes: that of this project, or containerd with runc and CNI plugins, which come from Debian's packages where
    /// the machine has none. Local lane only.
    #[arg(long, value_enum, default_value = "builtin", value_name = "RUNTIME")]
    pub runtime: RuntimeName,
    /// Refuse objects that nothing in the cluster would act on, such as StatefulSets, in place of a warning. Embedded lane only.
    #[arg(long)]
    pub strict: bool,
    /// Hide allocations from readers of the podresources socket, as a fault.
    #[arg(long, hide = true)]
    pub hide_allocations: bool,
}

impl PlanArgs {
    /// Returns the machine profile that the arguments name.
    pub fn machine(&self) -> anyhow::Result<Machine> {
        if let Some(machine) = Machine::named(&self.machine) {
            return Ok(machine);
        }
        let text = fs_err::read_to_string(&self.machine).with_context(|| {
            format!(
                "{:?} is neither a machine profile nor a readable file",
                self.machine
            )
        })?;
        profile::from_yaml(&text)
            .with_context(|| format!("cannot parse the machine profile {}", self.machine))
    }

    /// Returns all nodes of the cluster: one for the control plane, and the workers that the arguments describe.
    pub fn node_plans(&self) -> anyhow::Result<Vec<NodePlan>> {
        let machine = self.machine()?;
        let mut nodes = match &self.nodes {
            None => NodePlan::all(usize::from(self.workers), &machine),
            Some(path) => {
                let text = fs_err::read_to_string(path)?;
                let workers: Vec<NodePlan> = serde_yaml::from_str(&text).with_context(|| {
                    format!("cannot parse the node plans in {}", path.display())
                })?;
                let control_plane = NodePlan::control_plane(&machine);
                std::iter::once(control_plane).chain(workers).collect()
            }
        };
        if self.flavour == Some(Flavour::Openshift) {
            nodes[0].labels.extend(plan::roles([labels::MASTER]));
        }
        if self.schedulable_control_plane {
            nodes[0].labels.extend(plan::roles([labels::WORKER]));
            nodes[0].taints.clear();
        }
        if self.flavour == Some(Flavour::Hypershift) {
            nodes = nodes.into_iter().map(NodePlan::hosted).collect();
        }
        Ok(nodes)
    }

    /// Returns the same as arguments of a command line, without those that the embedded lane does not need.
    pub(crate) fn to_arguments(&self) -> Vec<std::ffi::OsString> {
        let Self {
            // the embedded cluster needs no Kubernetes programs
            assets: _,
            runtime: _,
            workers,
            machine,
            nodes,
            light_nodes,
            bin_dir,
            flavour,
            schedulable_control_plane,
            strict,
            hide_allocations,
        } = self;
        let mut arguments: Vec<std::ffi::OsString> = vec![
            "--workers".into(),
            workers.to_string().into(),
            "--machine".into(),
            machine.into(),
        ];
        if *light_nodes > 0 {
            arguments.extend(["--light-nodes".into(), light_nodes.to_string().into()]);
        }
        if let Some(file) = nodes {
            arguments.extend(["--nodes".into(), file.into()]);
        }
        if let Some(dir) = bin_dir {
            arguments.extend(["--bin-dir".into(), dir.into()]);
        }
        if let Some(flavour) = flavour {
            arguments.extend(["--flavour".into(), flavour.name().into()]);
        }
        if *schedulable_control_plane {
            arguments.push("--schedulable-control-plane".into());
        }
        if *strict {
            arguments.push("--strict".into());
        }
        if *hide_allocations {
            arguments.push("--hide-allocations".into());
        }
        arguments
    }

    pub(crate) fn programs(&self) -> anyhow::Result<PathBuf> {
        match &self.bin_dir {
            Some(dir) => dir
                .canonicalize()
                .with_context(|| format!("no directory {}", dir.display())),
            None => own_dir(),
        }
    }

    /// Returns the whole plan. Where the lane needs the Kubernetes programs, it locates them and, if necessary, builds them.
    pub fn spec(
        &self,
        lane: Lane,
        name: &str,
        state_root: &Path,
        report: Report<'_>,
    ) -> anyhow::Result<Spec> {
        anyhow::ensure!(
            lane == Lane::Local || self.runtime == RuntimeName::Builtin,
            "--runtime containerd needs the local lane: an embedded cluster has no containers"
        );
        Ok(match lane {
            Lane::Local => Spec::Local(Box::new(self.local_spec(name, state_root, report)?)),
            Lane::Embedded => Spec::Embedded(EmbeddedSpec {
                light_nodes: usize::try_from(self.light_nodes)?,
                hide_allocations: self.hide_allocations,
                flavour: self.flavour,
                strict: self.strict,
                ..EmbeddedSpec::new(name, state_root, &self.programs()?, self.node_plans()?)
            }),
        })
    }

    fn local_spec(
        &self,
        name: &str,
        state_root: &Path,
        report: Report<'_>,
    ) -> anyhow::Result<ClusterSpec> {
        anyhow::ensure!(
            self.light_nodes == 0,
            "--light-nodes needs the embedded lane: in a cluster of real parts nothing would keep them ready"
        );
        anyhow::ensure!(
            !self.strict,
            "--strict needs the embedded lane: a cluster of real parts acts on all objects"
        );
        Ok(ClusterSpec {
            name: name.to_owned(),
            state_root: state_root.to_owned(),
            nodes: self.node_plans()?,
            bin_dir: self.programs()?,
            assets: kubernetes::locate(&SearchPath::from_environment(self.assets.clone()), report)?,
            hide_allocations: self.hide_allocations,
            flavour: self.flavour,
            runtime: self.runtime(report)?,
        })
    }

    /// Returns the runtime with its programs, which it locates.
    fn runtime(&self, report: Report<'_>) -> anyhow::Result<Runtime> {
        Ok(match self.runtime {
            RuntimeName::Builtin => Runtime::Builtin,
            RuntimeName::Containerd => {
                let mut programs = containers::locate(self.assets.as_deref(), report)?;
                if filter::is_available() {
                    let search_path = SearchPath::from_environment(self.assets.clone());
                    programs.kube_proxy = Some(kubernetes::locate_proxy(&search_path, report)?);
                } else {
                    note(
                        report,
                        "no program nft: Services do not answer and network policies do not hold",
                    );
                }
                Runtime::Containerd(programs)
            }
        })
    }
}

fn own_dir() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let dir = program.parent().context("this program has no directory")?;
    Ok(dir.to_owned())
}

/// Writes what the nodes of a kind cluster with these workers mount to a directory, and returns the cluster's configuration. `mark` is the label that
/// allows the cluster's use for tests.
///
/// # Errors
/// Returns an error if the arguments describe no cluster, or if a file cannot be written.
pub fn kind_configuration(
    plan: &PlanArgs,
    name: &str,
    dir: &Path,
    mark: (&str, &str),
) -> anyhow::Result<serde_json::Value> {
    let nodes = plan.node_plans()?;
    let kind = Kind {
        name,
        nodes: &nodes,
        dir,
        mark,
    };
    kind.write()?;
    Ok(kind.configuration())
}
