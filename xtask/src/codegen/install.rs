//! `config/operator.yaml`: the plain installation of the operator, without the definitions; `config/openshift/`: the same for OpenShift, with
//! them.

use api::names;
use manifests::operator::{Options, Set};
use manifests::platform::Platform;

use super::{File, kustomize};

/// Returns the options that all rendered installations share.
pub(super) fn options() -> Options {
    // only the image that the samples name is trusted
    options_trusting(names::STACK_DIGEST)
}

fn options_trusting(digest: &str) -> Options {
    let env = [("SCHEDULER_IMAGE_DIGESTS".to_owned(), digest.to_owned())];
    Options {
        env: env.into(),
        ..Options::default()
    }
}

/// Renders the files of the repository. On OpenShift the pods have no user of their own, because the cluster gives each namespace its range.
pub(super) fn files() -> anyhow::Result<Vec<File>> {
    let mut files = trusting(names::STACK_DIGEST)?;
    files.push(kustomize::kustomization(
        "openshift/",
        "Kustomization",
        &["../crd", "operator.yaml"],
    )?);
    Ok(files)
}

/// Renders `operator.yaml` and `openshift/operator.yaml` with an operator that runs schedulers of one digest (operator.md 5.2).
pub(super) fn trusting(digest: &str) -> anyhow::Result<Vec<File>> {
    let kubernetes = options_trusting(digest);
    let openshift = Options {
        platform: Platform::OpenShift,
        ..kubernetes.clone()
    };
    Ok(vec![
        File::yaml("operator.yaml", &Set::new(&kubernetes).objects())?,
        File::yaml("openshift/operator.yaml", &Set::new(&openshift).objects())?,
    ])
}
