//! Installs and keeps the stack: three controllers in one binary that is also the exporter
