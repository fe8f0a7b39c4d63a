//! NUMA domain: what a node's zones hold, what a pod requests of them, and whether that fits.
//!
//! No Kubernetes, no I/O, no clock. Everything here is plain values, so that the scheduler, the exporter and the simulated kubelet
//! share the same rules.
//!
//! In reading order:
//! - [`resource`]: resource names with their classes, and lists of amounts.
//! - [`mask`]: zone ids and sets of them.
//! - [`zone`]: a zone's amounts and distances.
//! - [`policy`]: the kubelet's topology manager policy and scope.
//! - [`request`]: containers, quality of service, effective and exclusive requests.
//! - [`fit`]: whether a pod can be aligned to single zones, and if not, why.
//! - [`hint`] and [`merge`]: how the kubelet's topology manager merges the hints of its resource managers into one placement.
//! - [`distance`]: how far apart the zones of a set are.
//!
//! A pod of two cores fits the second zone only:
//! ```
//! use topology::fit::{FreeZone, fit};
//! use topology::mask::ZoneId;
//! use topology::policy::ManagerConfig;
//! use topology::request::{Container, ContainerKind, Pod};
//! use topology::resource::Resources;
//!
//! let two_cores = Resources::from_iter([("cpu", 2000), ("memory", 1 << 30)]);
//! let pod = Pod::new(vec![Container {
//!     name: "main".into(),
//!     kind: ContainerKind::App,
//!     requests: two_cores.clone(),
//!     limits: two_cores,
//! }]);
//! let zone = |id, cpu| {
//!     let available = Resources::from_iter([("cpu", cpu), ("memory", 4 << 30)]);
//!     FreeZone::exactly(ZoneId::new(id).unwrap(), available)
//! };
//! let node = |name: &str| matches!(name, "cpu" | "memory");
//! assert!(fit(&pod, &ManagerConfig::default(), &[zone(0, 1000), zone(1, 4000)], node).is_ok());
//! let misfit = fit(&pod, &ManagerConfig::default(), &[zone(0, 1000), zone(1, 1000)], node).unwrap_err();
//! assert_eq!(misfit.reason(), "cannot align container");
//! ```

pub mod distance;
pub mod fit;
pub mod hint;
pub mod mask;
pub mod merge;
pub mod policy;
pub mod request;
pub mod resource;
pub mod zone;
