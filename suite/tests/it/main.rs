//! Tests of the suite itself: its command line, its effects on clusters, and whether it detects faults.

mod accounting;
mod attached;
mod broken_stack;
mod churn;
mod cleanup;
mod cli;
mod compatibility;
mod containerd;
mod disturbed;
mod faults;
mod given;
mod hanging;
mod harness;
mod killed;
mod lanes;
mod openshift;
mod permissions;
mod restored;
mod tls;
mod warm;
