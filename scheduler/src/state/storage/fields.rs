//! Fields that objects of several kinds have.

use std::collections::BTreeMap;

use api::quantity::Amount;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Annotation with the class of a volume or a claim, used before the field existed.
pub(super) const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Returns the value of an annotation.
pub(super) fn annotation(
    annotations: Option<&BTreeMap<String, String>>,
    name: &str,
) -> Option<String> {
    annotations.and_then(|all| all.get(name)).cloned()
}

/// Returns the amount of storage in a list of quantities; 0 if there is none.
pub(super) fn storage(list: Option<&BTreeMap<String, Quantity>>) -> Amount {
    list.and_then(|list| list.get("storage"))
        .and_then(|quantity| Amount::try_from(quantity).ok())
        .unwrap_or_default()
}

/// Parses the resource version of an object as a number that grows with every change; 0 if it is absent or not a number.
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
