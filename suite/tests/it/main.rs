//! Tests of the suite itself: its command line, its effects on clusters, and whether it detects faults.

mod accounting;
mod attached;
mod broken_stack;
mod churn;
mod cli;
mod compatibility;
mod containerd;
mod disturbed;
mod faults;
mod harness;
mod lanes;
mod openshift;
mod permissions;
mod warm;
