//! `config/operator.yaml`: the plain installation of the operator, without the definitions.

use api::names;
use manifests::operator::{Options, Set};

use super::File;

/// Returns the options that all rendered installations share.
pub(super) fn options() -> Options {
    // only the image that the samples name is trusted
    let env = [(
        "SCHEDULER_IMAGE_DIGESTS".to_owned(),
        names::STACK_DIGEST.to_owned(),
    )];
    Options {
        env: env.into(),
        ..Options::default()
    }
}

/// Renders the file.
pub(super) fn file() -> anyhow::Result<File> {
    File::yaml("operator.yaml", &Set::new(&options()).objects())
}
