//! Where the programs come from that our programs start: [`kubernetes`] finds those of Kubernetes or builds them, [`path`] those of the
//! machine, [`containers`] those of a container runtime, [`registry`] the registry of their images, [`debian`] unpacks packages, [`go`] builds from Go modules, [`cargo`] calls cargo, [`child`] waits for programs that have to
//! end. [`console`] tells people about it.

pub mod cargo;
pub mod child;
pub mod console;
pub mod containers;
pub mod debian;
pub mod go;
pub mod kubernetes;
pub mod path;
pub mod registry;
