//! `config/operator.yaml`: the plain installation of the operator; the definitions are beside it.

use api::names;
use manifests::operator::{Options, Set};

use super::File;

/// The file.
pub(super) fn file() -> anyhow::Result<File> {
    // the image that the samples name is trusted; nothing else is
    let env = [(
        "SCHEDULER_IMAGE_DIGESTS".to_owned(),
        names::STACK_DIGEST.to_owned(),
    )];
    let set = Set::new(&Options {
        env: env.into(),
        ..Options::default()
    });
    File::yaml("operator.yaml", &set.objects())
}
