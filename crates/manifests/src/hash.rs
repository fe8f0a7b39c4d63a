//! Hash of a ConfigMap's content. It is put on pod templates, so that a changed ConfigMap triggers a rollout (operator.md 6.2).

use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::ConfigMap;
use sha2::{Digest, Sha256};

/// Returns `SHA256:` and the hash of the data. The data is hashed in the form in which Go prints maps, because running clusters already
/// have such hashes.
pub fn config_map(config_map: &ConfigMap) -> String {
    let mut hasher = Sha256::new();
    let empty = std::collections::BTreeMap::new();
    let data = config_map.data.as_ref().unwrap_or(&empty);
    let pairs: Vec<String> = data
        .iter()
        .map(|(key, value)| format!("{key}:{value}"))
        .collect();
    hasher.update(format!("map[{}]", pairs.join(" ")));
    if let Some(binary) = config_map
        .binary_data
        .as_ref()
        .filter(|binary| !binary.is_empty())
    {
        let pairs: Vec<String> = binary
            .iter()
            .map(|(key, bytes)| {
                let bytes: Vec<String> = bytes.0.iter().map(u8::to_string).collect();
                format!("{key}:[{}]", bytes.join(" "))
            })
            .collect();
        hasher.update(format!("map[{}]", pairs.join(" ")));
    }
    format!("SHA256:{}", HEXLOWER.encode(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn data_is_hashed_as_a_printed_go_map() {
        let data = BTreeMap::from([
            ("b".to_owned(), "2".to_owned()),
            ("a".to_owned(), "1".to_owned()),
        ]);
        let map = ConfigMap {
            data: Some(data),
            ..ConfigMap::default()
        };
        // printf 'map[a:1 b:2]' | sha256sum
        assert_eq!(
            config_map(&map),
            "SHA256:ba162fbbf77f456a298cc8a03bf7fa4d564b462a0dce30e7aec35f9dcc36499e"
        );
    }
}
