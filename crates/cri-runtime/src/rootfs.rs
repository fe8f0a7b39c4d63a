//! The root file system of a container: [`plan`] lists its parts as [`step`]s, [`apply`] builds it.
//!
//! A container sees an empty tmpfs that contains the programs and libraries of the node's `/usr` (read-only), the programs of its image at
//! the image's paths, its own `/etc`, `/proc`, `/dev` and `/tmp`, the (simulated) `/sys`, and the mounts and devices that the kubelet asked
//! for. `/bin` and `/usr/local/bin` contain only the image's programs and, in `/bin`, a few ordinary tools.
//!
//! Differences from a real runtime: every container has `/usr`, capabilities are not restricted, privileged containers get no more devices
//! than others and no writable `/sys` or `/proc/sys` (these belong to the host), and a bidirectional mount propagates only to the
//! container.

pub mod apply;
pub mod host;
pub mod plan;
pub mod step;
