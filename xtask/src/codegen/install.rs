//! `config/operator.yaml`: the plain installation of the operator; the definitions are beside it.

use api::names;
use manifests::operator::{Options, Set};

use super::File;

/// What every installation that we render has in common.
pub(super) fn options() -> Options {
    // the image that the samples name is trusted; nothing else is
    let env = [(
        "SCHEDULER_IMAGE_DIGESTS".to_owned(),
        names::STACK_DIGEST.to_owned(),
    )];
    Options {
        env: env.into(),
        ..Options::default()
    }
}

/// The file.
pub(super) fn file() -> anyhow::Result<File> {
    File::yaml("operator.yaml", &Set::new(&options()).objects())
}
