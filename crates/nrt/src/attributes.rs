//! Lists of named values on NRTs and zones, with the semantics that all readers share (rte.md 1).

use api::nrt::AttributeInfo;

/// Sets `name` to `value`: overwrites an existing entry in place, else appends one. An empty name changes nothing.
pub fn insert(attributes: &mut Vec<AttributeInfo>, name: &str, value: &str) {
    if name.is_empty() {
        return;
    }
    if let Some(found) = attributes
        .iter_mut()
        .find(|attribute| attribute.name == name)
    {
        value.clone_into(&mut found.value);
    } else {
        attributes.push(AttributeInfo {
            name: name.to_owned(),
            value: value.to_owned(),
        });
    }
}

/// Merges `updates` into `attributes`: known names get the new value in place, new names are appended in the order of `updates`.
pub fn merge(attributes: &mut Vec<AttributeInfo>, updates: &[AttributeInfo]) {
    for update in updates {
        insert(attributes, &update.name, &update.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, &str)]) -> Vec<AttributeInfo> {
        pairs
            .iter()
            .map(|(name, value)| AttributeInfo {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
            })
            .collect()
    }

    #[test]
    fn merge_overwrites_in_place_and_appends_in_order() {
        let mut attributes = list(&[("a", "1"), ("b", "2")]);
        merge(&mut attributes, &list(&[("c", "3"), ("a", "9")]));
        assert_eq!(attributes, list(&[("a", "9"), ("b", "2"), ("c", "3")]));
    }

    #[test]
    fn an_empty_name_is_refused() {
        let mut attributes = list(&[("a", "1")]);
        insert(&mut attributes, "", "2");
        assert_eq!(attributes, list(&[("a", "1")]));
    }
}
