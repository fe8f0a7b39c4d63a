//! Kubernetes types of the stack (custom resources) and every name that others match
