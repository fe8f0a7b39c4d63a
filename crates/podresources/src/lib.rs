//! The gRPC interfaces around the kubelet, over unix sockets: `PodResources` v1, device plugin v1beta1 and the container
//! runtime interface (CRI) v1, each as client and as server.
//!
//! The interface definitions are in `proto/`; `cargo xtask protos` turns them into Rust.
//!
//! # Generated code
//! [`v1`], [`deviceplugin::v1beta1`] and [`cri::v1`] are generated from the definitions: messages, and a client and a server trait per
//! service. A method that an implementation of a server trait does not define answers `Unimplemented`. Maps are `BTreeMap`s.
//!
//! # Reading order
//! The three modules of messages, then [`socket`] (paths of unix sockets), then the two sides: [`client`], and [`server`] with
//! [`device_plugin`].

pub mod client;
pub mod device_plugin;
mod generated;
pub mod server;
pub mod socket;

/// Size limit for received messages, in bytes. gRPC's default of 4 MiB is too small for `List` on a full node; other clients of the kubelet
/// use 16 MiB (rte.md 4.1).
pub const MAX_MESSAGE_SIZE: usize = 16 << 20;

pub use generated::podresources_v1 as v1;

/// The device plugin interface: the kubelet serves `Registration`, every plugin serves `DevicePlugin`.
pub mod deviceplugin {
    pub use crate::generated::deviceplugin_v1beta1 as v1beta1;
}

/// The container runtime interface: the runtime serves `RuntimeService` and `ImageService` on one socket.
pub mod cri {
    pub use crate::generated::cri_v1 as v1;
}
