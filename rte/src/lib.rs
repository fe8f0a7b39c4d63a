//! Resource topology exporter: publishes the NUMA zones of a node as a `NodeResourceTopology`.
//!
//! It asks the kubelet which resources its containers hold (podresources), reads the machine from sysfs, and combines both. It writes the
//! object when its content changed. It scans at its start, when a pod of the node changes, periodically, and when a file is touched. It
//! makes no decisions about pods and never communicates with another node.
//!
//! # The parts, in reading order
//!
//! - `entry` is the program (command line, logs, exit codes); [`entry()`] is all of it. The operator's binary calls it when it is started
//!   under the exporter's name.
//! - `run` assembles all parts, in the order in which they start; `run::cycle` is what they do then, over and over.
//! - [`config`]: the settings, and the sources that they come from.
//! - [`triggers`]: what starts a scan.
//! - [`hardware`] and [`kubelet`]: what is read, the machine from sysfs, and what the kubelet is set to and answers.
//! - [`scan`]: from both to zones, attributes and a fingerprint.
//! - [`publish`]: what happens with them: the object, the conditions of the own pod, records of fingerprints.
//! - [`metrics`]: what all of them count, and the server for it.
//!
//! # From an answer of the kubelet to a published object
//!
//! 1. `triggers::events::Events::next` says that a cycle is due: after the period, after a write to the notification file, or after a
//!    failure. After a change that `triggers::watch::follow` sees on the API server it says to probe; the probe is a scan, too, and a cycle
//!    follows when it differs from what is published.
//! 2. `run::cycle::Exporter::cycle` calls `scan::Scanner::scan`, which reads the machine (`hardware::read`) if it may have changed.
//! 3. `Scanner::ask` calls `kubelet::answers::Kubelet::list` and `allocatable` at the same time.
//! 4. `kubelet::arrivals::Arrivals::record` compares the answer with what the pods request (`kubelet::demand::Demand::is_met`). While a pod
//!    of the fingerprint lacks something, `Scanner::scan` asks again.
//! 5. [`scan::observation::observe`] combines all of it. It leaves out what [`scan::filter::Filter`] names, and lets
//!    `scan::accounting::zones` add up what each NUMA node has, gives and has left.
//! 6. `scan::fingerprint::compute` names the pods that are accounted for; `scan::locality::placed` and [`nrt::placement::encode`] say where
//!    their containers are.
//! 7. [`nrt::encode`] writes all of that as zones and attributes of the object.
//! 8. `run::cycle` makes a [`publish::content::Content`] of it and calls [`publish::publisher::Publisher::publish`].
//! 9. `publish::content::desired` puts it into the object as last written. `Publisher::patch` sends only the difference
//!    (`publish::merge_patch::diff`), `Publisher::get_and_update` the whole object; neither writes when nothing differs.
//! 10. `publish::readiness::Reporter::report` writes the outcome to the conditions of the own pod.
//!     Before the object was written, `publish::status_dump::StatusDump::add` recorded the fingerprint and its pods.

mod entry;

pub mod config;
pub mod hardware;
pub mod kubelet;
pub mod metrics;
pub mod publish;
mod run;
pub mod scan;
#[cfg(test)]
mod testing;
pub mod triggers;

pub use entry::entry;
