//! What an image says of itself: the labels and annotations of the OCI image specification.

use serde_json::{Map, Value};

use super::origin::{Origin, VERSION};
use super::variant::Variant;

/// Returns the labels of an image; the annotations of its manifest are the same.
pub(super) fn of(variant: Variant, origin: &Origin) -> Map<String, Value> {
    let always = [
        ("title", variant.title()),
        ("description", variant.description()),
        ("version", VERSION),
        ("revision", &origin.commit),
        ("licenses", variant.licenses()),
    ];
    let known = [
        ("created", origin.date.as_deref()),
        ("source", origin.source.as_deref()),
    ];
    let known = known
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    always
        .into_iter()
        .chain(known)
        .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::origin::tests::mk_origin;

    #[test]
    fn an_image_names_its_commit_and_leaves_out_what_is_not_known() {
        let mut origin = mk_origin("main");
        let labels = of(Variant::Stack, &origin);
        assert_eq!(labels["org.opencontainers.image.revision"], "abc");
        assert_eq!(
            labels["org.opencontainers.image.created"],
            "2026-01-02T03:04:05Z"
        );
        assert_eq!(labels.len(), 7);
        (origin.date, origin.source) = (None, None);
        assert_eq!(of(Variant::Stack, &origin).len(), 5);
    }
}
