//! The lanes that bring up a cluster of their own, behind one type.

use std::path::PathBuf;
use std::sync::Arc;

use cluster_faults::Faults;
use cluster_spec::plan::ClusterSpec;
use cluster_spec::progress::Report;
use local_cluster::LocalCluster;
use openshift::machines::Machines;
use serde::{Deserialize, Serialize};

use crate::embedded::{self, EmbeddedCluster, EmbeddedSpec};

/// Which parts a cluster is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lane {
    /// Our own API server, controllers and simulated nodes: no privileges, nothing to install.
    Embedded,
    /// Real Kubernetes parts on this machine: needs Linux and root.
    Local,
}

/// Environment variable that chooses the lane of tests.
pub const VARIABLE: &str = "NUMARESOURCES_LANE";

/// The value of the variable is not a lane.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE} is embedded or local, not {0:?}")]
pub struct UnknownLane(String);

impl Lane {
    /// Returns the lane that [`VARIABLE`] names; the embedded one when it is not set.
    pub fn from_environment() -> Result<Self, UnknownLane> {
        let Some(name) = std::env::var_os(VARIABLE) else {
            return Ok(Self::Embedded);
        };
        let name = name.to_string_lossy();
        <Self as clap::ValueEnum>::from_str(&name, false)
            .map_err(|_| UnknownLane(name.into_owned()))
    }

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Local => "local",
        }
    }
}

/// The spec of a cluster to bring up.
#[derive(Clone, Debug)]
pub enum Spec {
    /// An embedded cluster.
    Embedded(EmbeddedSpec),
    /// A cluster of real Kubernetes parts.
    Local(Box<ClusterSpec>),
}

/// A cluster that this process brought up. Dropping it ends it.
#[derive(Debug)]
pub enum Cluster {
    /// An embedded cluster.
    Embedded(Box<EmbeddedCluster>),
    /// A cluster of real Kubernetes parts.
    Local(Box<LocalCluster>),
}

/// Why a cluster did not come up or does not end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The embedded cluster did not come up.
    #[error(transparent)]
    Embedded(#[from] embedded::Error),
    /// The local cluster did not come up.
    #[error(transparent)]
    Up(#[from] local_cluster::cluster::up::Error),
    /// The local cluster does not end.
    #[error(transparent)]
    Local(#[from] local_cluster::cluster::Error),
    /// The cluster's state cannot be removed.
    #[error(transparent)]
    State(#[from] cluster_state::Error),
}

impl Cluster {
    /// Brings a cluster up to all nodes Ready and labelled, and all devices allocatable.
    pub async fn up(spec: Spec, report: Report<'_>) -> Result<Self, Error> {
        Ok(match spec {
            Spec::Embedded(spec) => {
                Self::Embedded(Box::new(Box::pin(EmbeddedCluster::up(spec, report)).await?))
            }
            Spec::Local(spec) => {
                Self::Local(Box::new(Box::pin(LocalCluster::up(*spec, report)).await?))
            }
        })
    }

    /// Returns the cluster of real Kubernetes parts, if it is one.
    pub fn local(&self) -> Option<&LocalCluster> {
        match self {
            Self::Embedded(_) => None,
            Self::Local(cluster) => Some(cluster),
        }
    }

    /// Returns the embedded cluster, if it is one.
    pub fn embedded(&self) -> Option<&EmbeddedCluster> {
        match self {
            Self::Embedded(cluster) => Some(cluster),
            Self::Local(_) => None,
        }
    }

    /// Returns a client with the administrator's permissions.
    pub fn client(&self) -> kube::Client {
        match self {
            Self::Embedded(cluster) => cluster.client(),
            Self::Local(cluster) => cluster.client(),
        }
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Embedded(cluster) => cluster.kubeconfig(),
            Self::Local(cluster) => cluster.kubeconfig(),
        }
    }

    /// Returns the faults that can be injected into it. The value may outlive the cluster and then does nothing.
    pub fn faults(&self) -> Faults {
        match self {
            Self::Embedded(cluster) => cluster.faults(),
            Self::Local(cluster) => cluster.faults(),
        }
    }

    /// Returns its nodes as machines that can be configured. They stay usable as long as the cluster lives.
    pub fn machines(&self) -> Arc<dyn Machines> {
        match self {
            Self::Embedded(cluster) => cluster.machines(),
            Self::Local(cluster) => cluster.machines(),
        }
    }

    /// Ends every process of the cluster and removes its directory.
    pub fn down(self) -> Result<(), Error> {
        match self {
            Self::Embedded(cluster) => cluster.down()?,
            Self::Local(cluster) => cluster.down()?,
        }
        Ok(())
    }
}
