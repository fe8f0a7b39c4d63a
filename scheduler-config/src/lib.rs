//! KubeSchedulerConfiguration and NodeResourceTopologyMatchArgs: parse, default, validate, render
