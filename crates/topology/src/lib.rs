//! NUMA domain: zones, resources, masks, hints, policies, merge and fit; no Kubernetes, no I/O, no clock
