//! Resource topology exporter: publishes the NUMA zones of a node as a NodeResourceTopology
