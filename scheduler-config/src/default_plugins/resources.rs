//! Lists of resources with weights, which several plugins take.

use serde::{Deserialize, Serialize};

/// A resource and its weight.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceSpec {
    /// Name of the resource.
    pub name: String,
    /// 1 to 100; if absent, 1.
    #[serde(default = "one", deserialize_with = "weight_or_one")]
    pub weight: i64,
}

fn one() -> i64 {
    1
}

/// Reads a weight; 0 means the default, as an absent weight does.
fn weight_or_one<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let weight = i64::deserialize(deserializer)?;
    Ok(if weight == 0 { 1 } else { weight })
}

/// The default list.
pub(super) fn cpu_and_memory() -> Vec<ResourceSpec> {
    let mk = |name: &str| ResourceSpec {
        name: name.to_owned(),
        weight: 1,
    };
    vec![mk("cpu"), mk("memory")]
}

/// Reads a list of resources; an absent or empty list means CPU and memory.
pub(super) fn resources_or_default<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<ResourceSpec>, D::Error> {
    let given = Option::<Vec<ResourceSpec>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(if given.is_empty() {
        cpu_and_memory()
    } else {
        given
    })
}
