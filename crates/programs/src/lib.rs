//! Where the programs come from that our programs start: [`kubernetes`] finds those of Kubernetes or builds them, [`path`] those of the
//! machine, [`containers`] those of a container runtime, [`debian`] unpacks packages, [`cargo`] calls cargo, [`child`] waits for programs that have to
//! end. [`console`] tells people about it.

pub mod cargo;
pub mod child;
pub mod console;
pub mod containers;
pub mod debian;
pub mod kubernetes;
pub mod path;
