//! Automation of the workspace: code generation with drift check, layer check, images, benchmarks
