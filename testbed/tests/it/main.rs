//! Integration tests of the testbed. They need Linux and root: without these they fail and say so.

mod cluster;
mod node;
