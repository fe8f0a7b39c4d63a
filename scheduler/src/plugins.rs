//! The plugins, by their Kubernetes names: one file for each, with its filter and its score.
//!
//! Where they act is in [`crate::framework::extension_points`]. In reading order:
//! - the node itself: [`node_unschedulable`], [`taint_toleration`], [`node_affinity`], [`node_ports`];
//! - what is left: [`node_resources_fit`], [`node_resources_balanced_allocation`], and by zone [`node_resource_topology_match`];
//! - volumes: [`volumes`], and below it VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone;
//! - other pods: [`pod_topology_spread`], [`inter_pod_affinity`];
//! - images: [`image_locality`].
//!
//! [`plugin`]: their names; [`node_info`]: a node as they see it; [`rejection`]: what a filter says; [`score`]: what scores share. DefaultPreemption
//! is in [`crate::framework`], because it runs the filters of all others.

pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_info;
pub mod node_ports;
pub mod node_resource_topology_match;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod plugin;
pub mod pod_topology_spread;
pub mod rejection;
pub mod score;
pub mod taint_toleration;
pub mod volumes;
