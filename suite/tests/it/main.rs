//! Tests of the suite itself: its command line, what it does to clusters, and whether it finds out what is wrong.

mod accounting;
mod attached;
mod churn;
mod cli;
mod disturbed;
mod faults;
mod harness;
mod lanes;
mod openshift;
mod permissions;
mod warm;
