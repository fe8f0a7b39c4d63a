//! The `local` lane: real etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubelets without containers.
