//! The lanes that bring up a cluster of their own, behind one type.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::embedded::{EmbeddedCluster, EmbeddedSpec, cluster};
use crate::faults::Faults;
use crate::local::progress::Report;
use crate::local::{ClusterSpec, LocalCluster};
use crate::openshift::machines::Machines;
use crate::state;

/// Which parts a cluster is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lane {
    /// Our own API server, controllers and simulated nodes: no privileges, nothing to install.
    Embedded,
    /// Real Kubernetes parts on this machine: needs Linux and root.
    Local,
}

/// The variable that chooses the lane of tests.
pub const VARIABLE: &str = "NUMARESOURCES_LANE";

/// The variable names no lane.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE} is embedded or local, not {0:?}")]
pub struct UnknownLane(String);

impl Lane {
    /// The lane that the environment asks for ([`VARIABLE`]); the embedded one when it asks for none.
    pub fn from_environment() -> Result<Self, UnknownLane> {
        let Some(name) = std::env::var_os(VARIABLE) else {
            return Ok(Self::Embedded);
        };
        let name = name.to_string_lossy();
        <Self as clap::ValueEnum>::from_str(&name, false)
            .map_err(|_| UnknownLane(name.into_owned()))
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Local => "local",
        }
    }
}

/// What to bring up.
#[derive(Clone, Debug)]
pub enum Spec {
    /// An embedded cluster.
    Embedded(EmbeddedSpec),
    /// A cluster of real Kubernetes parts.
    Local(ClusterSpec),
}

/// A cluster that was brought up by its user. Dropping it ends it.
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
    /// The embedded one did not come up.
    #[error(transparent)]
    Embedded(#[from] cluster::Error),
    /// The local one did not come up.
    #[error(transparent)]
    Up(#[from] crate::local::cluster::up::Error),
    /// The local one does not end.
    #[error(transparent)]
    Local(#[from] crate::local::cluster::Error),
    /// What it kept cannot be removed.
    #[error(transparent)]
    State(#[from] state::Error),
}

impl Cluster {
    /// Brings a cluster up to all nodes Ready and labelled, and all devices allocatable.
    pub async fn up(spec: Spec, report: Report<'_>) -> Result<Self, Error> {
        Ok(match spec {
            Spec::Embedded(spec) => {
                Self::Embedded(Box::new(Box::pin(EmbeddedCluster::up(spec, report)).await?))
            }
            Spec::Local(spec) => {
                Self::Local(Box::new(Box::pin(LocalCluster::up(spec, report)).await?))
            }
        })
    }

    /// The cluster of real Kubernetes parts, if it is one.
    pub fn local(&self) -> Option<&LocalCluster> {
        match self {
            Self::Embedded(_) => None,
            Self::Local(cluster) => Some(cluster),
        }
    }

    /// The embedded cluster, if it is one.
    pub fn embedded(&self) -> Option<&EmbeddedCluster> {
        match self {
            Self::Embedded(cluster) => Some(cluster),
            Self::Local(_) => None,
        }
    }

    /// A client with the administrator's rights.
    pub fn client(&self) -> kube::Client {
        match self {
            Self::Embedded(cluster) => cluster.client(),
            Self::Local(cluster) => cluster.client(),
        }
    }

    /// Kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Embedded(cluster) => cluster.kubeconfig(),
            Self::Local(cluster) => cluster.kubeconfig(),
        }
    }

    /// What can go wrong in it on demand. It stays usable after the cluster, and then disturbs nothing.
    pub fn faults(&self) -> Faults {
        match self {
            Self::Embedded(cluster) => cluster.faults(),
            Self::Local(cluster) => cluster.faults(),
        }
    }

    /// Its nodes as machines that can be configured. They stay usable as long as the cluster lives.
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
