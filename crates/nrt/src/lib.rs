//! NodeResourceTopology to topology and back: attributes, pod fingerprint, placement
