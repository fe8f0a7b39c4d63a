//! Secondary scheduler with NodeResourceTopologyMatch
