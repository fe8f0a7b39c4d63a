//! What runs inside one node of the local lane: the CRI server and the process runtime behind it.
//!
//! A node's process is started inside the mount and network namespaces that the cluster prepared. `/proc` must show the process's own PID
//! namespace there.
//!
//! Reading order: [`spec`] (the input of a node), [`server`] (what it serves), [`runtime`] (sandboxes and containers), [`cri`] and
//! [`control`] (the two interfaces to it); [`helper`] and [`rootfs`] (how a process becomes a container); [`programs`] (the small programs
//! of the stack image); [`cli`] (all command lines).

pub mod addresses;
pub mod cgroup;
pub mod cli;
pub mod control;
pub mod cri;
pub mod filter;
pub mod handoff;
pub mod helper;
pub mod identity;
pub mod logs;
pub mod mountinfo;
pub mod namespaces;
pub mod network;
pub mod processes;
pub mod programs;
pub mod rootfs;
pub mod runtime;
pub mod server;
pub mod spawner;
pub mod spec;
pub mod stop;
pub mod streaming;
