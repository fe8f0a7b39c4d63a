//! The description of a cluster of either lane, as plain data: nobody needs a lane to name a node or a setting.
//!
//! Reading order: [`plan`] (a cluster and its nodes), [`kubelet`] (the settings of a node's kubelet), [`hardware`] (the files that show a
//! node's machine), [`images`] (what the images of the stack hold), [`subnet`] (addresses of a local cluster), [`flavour`] (the kinds of
//! OpenShift), [`runtime`] (the nodes' container runtime), [`kubernetes`] (the version of Kubernetes), [`kind`] (the same plan as a cluster of
//! kind), [`progress`] (what is told while a cluster comes up).

pub mod flavour;
pub mod hardware;
pub mod images;
pub mod kind;
pub mod kubelet;
pub mod kubernetes;
pub mod plan;
pub mod progress;
pub mod runtime;
pub mod subnet;
