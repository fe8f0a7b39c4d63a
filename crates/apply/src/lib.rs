//! Apply a set of objects to a cluster, prune, wait for readiness, report drift
