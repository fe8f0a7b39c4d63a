//! The topology updater of node-feature-discovery (deployer.md 6).

use manifests::nfd;

use super::{Component, Set, by_kind, namespace};
use crate::images::UpdaterType;
use crate::options::Options;

/// Order of deletion.
const DELETION: [&str; 5] = [
    "DaemonSet",
    "ClusterRoleBinding",
    "ClusterRole",
    "ServiceAccount",
    "Namespace",
];

/// Returns its objects. The namespace is among them once; the original prints it twice.
pub(super) fn set(options: &Options) -> Set {
    let updater = &options.updater;
    let mut create = vec![namespace(nfd::NAMESPACE, true)];
    create.extend(nfd::objects(&nfd::Options {
        namespace: nfd::NAMESPACE.to_owned(),
        image: options.images.nfd.clone(),
        pull_policy: options.pull_policy.to_owned(),
        verbosity: updater.verbosity,
        interval: updater.interval.clone(),
        fingerprint: updater.fingerprint,
    }));
    Set {
        component: Component::Updater(UpdaterType::Nfd),
        render: create.clone(),
        delete: by_kind(create.clone(), &DELETION),
        create,
    }
}
