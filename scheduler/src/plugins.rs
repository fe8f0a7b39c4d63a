//! The plugins, by their Kubernetes names: one file for each, with its filter and its score.
//!
//! Where they act is in [`crate::framework::extension_points`]. In reading order:
//! - the node itself: [`node_unschedulable`], [`taint_toleration`], [`node_affinity`], [`node_ports`];
//! - what is left: [`node_resources_fit`], [`node_resources_balanced_allocation`], and by zone [`node_resource_topology_match`];
//! - volumes: [`volumes`] (what the following share), [`volume_restrictions`], [`node_volume_limits`], [`volume_binding`], [`volume_zone`];
//! - other pods: [`pod_topology_spread`], [`inter_pod_affinity`];
//! - images: [`image_locality`];
//! - if no node is left: [`default_preemption`].
//!
//! [`score`]: what their scores share.

pub mod default_preemption;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_ports;
pub mod node_resource_topology_match;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod pod_topology_spread;
pub mod score;
pub mod taint_toleration;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;
pub mod volumes;
