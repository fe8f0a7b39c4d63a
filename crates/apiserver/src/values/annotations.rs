//! Names and words in annotations of pods that mean something to more than one check.

/// The annotation of a pod that a kubelet made from a file.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation with the seccomp profile of a pod, as it was written before there were fields.
pub(crate) const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// The beginning of the annotation with the seccomp profile of a container.
pub(crate) const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// The beginning of the name of a seccomp or AppArmor profile that the node has.
pub(crate) const LOCAL: &str = "localhost/";
