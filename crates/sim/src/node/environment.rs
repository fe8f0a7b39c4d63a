//! The environment of a container: its variables with their sources, and the references in its command line.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use api::quantity::{Amount, Format};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVarSource, Pod, ResourceFieldSelector, Secret,
};
use kube::api::Api;

/// Addresses for variables that refer to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) pod: Ipv4Addr,
    pub(crate) node: Ipv4Addr,
}

/// Why a container cannot be configured; the texts are those of the kubelet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{kind} {name:?} not found")]
    Missing { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    Key {
        kind: &'static str,
        namespace: String,
        name: String,
        key: String,
    },
    #[error("unsupported field {0:?}")]
    Field(String),
    #[error("cannot read {kind} {name:?}")]
    Read {
        kind: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
}

/// Resolves the variables of a container in order; `given` comes first.
pub(crate) async fn variables(
    client: &kube::Client,
    pod: &Pod,
    container: &Container,
    addresses: Addresses,
    given: Vec<(String, String)>,
) -> Result<Vec<(String, String)>, Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let objects = Objects { client, namespace };
    let mut list = given;
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let data = if let Some(reference) = &source.config_map_ref {
            let optional = reference.optional.unwrap_or_default();
            objects.config_map(&reference.name, optional).await?
        } else if let Some(reference) = &source.secret_ref {
            let optional = reference.optional.unwrap_or_default();
            objects.secret(&reference.name, optional).await?
        } else {
            None
        };
        for (key, value) in data.unwrap_or_default() {
            set(&mut list, &format!("{prefix}{key}"), value);
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(expand(value, &list)),
            (None, Some(source)) => value_of(&objects, pod, container, addresses, source).await?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            set(&mut list, &variable.name, value);
        }
    }
    Ok(list)
}

fn set(list: &mut Vec<(String, String)>, name: &str, value: String) {
    list.retain(|(known, _)| known != name);
    list.push((name.to_owned(), value));
}

async fn value_of(
    objects: &Objects<'_>,
    pod: &Pod,
    container: &Container,
    addresses: Addresses,
    source: &EnvVarSource,
) -> Result<Option<String>, Error> {
    if let Some(reference) = &source.field_ref {
        return field(pod, &reference.field_path, Some(addresses))
            .map(Some)
            .ok_or_else(|| Error::Field(reference.field_path.clone()));
    }
    if let Some(reference) = &source.resource_field_ref {
        return Ok(resource(container, reference));
    }
    let (kind, name, key, optional, data) = if let Some(reference) = &source.config_map_key_ref {
        let optional = reference.optional.unwrap_or_default();
        let data = objects.config_map(&reference.name, optional).await?;
        ("ConfigMap", &reference.name, &reference.key, optional, data)
    } else if let Some(reference) = &source.secret_key_ref {
        let optional = reference.optional.unwrap_or_default();
        let data = objects.secret(&reference.name, optional).await?;
        ("Secret", &reference.name, &reference.key, optional, data)
    } else {
        return Ok(None);
    };
    match data.and_then(|mut data| data.remove(key)) {
        Some(value) => Ok(Some(value)),
        None if optional => Ok(None),
        None => Err(Error::Key {
            kind,
            namespace: objects.namespace.to_owned(),
            name: name.clone(),
            key: key.clone(),
        }),
    }
}

struct Objects<'a> {
    client: &'a kube::Client,
    namespace: &'a str,
}

impl Objects<'_> {
    async fn config_map(
        &self,
        name: &str,
        optional: bool,
    ) -> Result<Option<BTreeMap<String, String>>, Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace);
        let found = api.get_opt(name).await;
        let found = checked("configmap", name, optional, found)?;
        Ok(found.map(|object| object.data.unwrap_or_default()))
    }

    async fn secret(
        &self,
        name: &str,
        optional: bool,
    ) -> Result<Option<BTreeMap<String, String>>, Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        let found = api.get_opt(name).await;
        let found = checked("secret", name, optional, found)?;
        Ok(found.map(|object| {
            let data = object.data.unwrap_or_default().into_iter();
            data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned()))
                .collect()
        }))
    }
}

fn checked<K>(
    kind: &'static str,
    name: &str,
    optional: bool,
    found: kube::Result<Option<K>>,
) -> Result<Option<K>, Error> {
    match found {
        Ok(None) if !optional => Err(Error::Missing {
            kind,
            name: name.to_owned(),
        }),
        Ok(found) => Ok(found),
        Err(source) => Err(Error::Read {
            kind,
            name: name.to_owned(),
            source: Box::new(source),
        }),
    }
}

/// Returns a field of a pod as text (`metadata.name`, `metadata.labels['a']`, `status.podIP` and so on).
pub(crate) fn field(pod: &Pod, path: &str, addresses: Option<Addresses>) -> Option<String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some((list, key)) = path
        .strip_suffix("']")
        .and_then(|path| path.split_once("['"))
    {
        let list = match list {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return None,
        };
        let value = list.as_ref().and_then(|list| list.get(key)).cloned();
        return Some(value.unwrap_or_default());
    }
    let all = |list: &Option<BTreeMap<String, String>>| {
        let lines: Vec<String> = list
            .iter()
            .flatten()
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect();
        Some(lines.join("\n"))
    };
    match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "metadata.labels" => all(&metadata.labels),
        "metadata.annotations" => all(&metadata.annotations),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec
            .and_then(|spec| spec.service_account_name.clone())
            .or_else(|| Some("default".to_owned())),
        "status.podIP" | "status.podIPs" => addresses.map(|known| known.pod.to_string()),
        "status.hostIP" | "status.hostIPs" => addresses.map(|known| known.node.to_string()),
        _ => None,
    }
}

/// Returns a resource of a container as text, in units of the divisor, rounded up.
pub(crate) fn resource(container: &Container, reference: &ResourceFieldSelector) -> Option<String> {
    let (list, name) = reference.resource.split_once('.')?;
    let resources = container.resources.as_ref()?;
    let list = match list {
        "limits" => &resources.limits,
        "requests" => &resources.requests,
        _ => return None,
    };
    let amount = list.as_ref()?.get(name)?;
    let divisor = reference.divisor.as_ref().filter(|text| text.0 != "0");
    let read = |quantity| {
        let amount = Amount::try_from(quantity).ok()?;
        Some(amount.in_unit_of(name))
    };
    let unit = Amount::from_units(1, Format::DecimalSi).in_unit_of(name);
    let divisor = divisor.map_or(Some(unit), read)?;
    Some(
        read(amount)?
            .checked_add(divisor - 1)?
            .checked_div(divisor)?
            .to_string(),
    )
}

/// Replaces the `$(NAME)` references in a text. `$$` becomes one dollar sign, and unknown references stay.
pub(crate) fn expand(text: &str, variables: &[(String, String)]) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let from = &rest[at + 1..];
        if let Some(after) = from.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let reference = from.strip_prefix('(').and_then(|from| from.split_once(')'));
        let Some((name, after)) = reference else {
            expanded.push('$');
            rest = from;
            continue;
        };
        let known = variables.iter().rfind(|(known, _)| known == name);
        let unknown = || format!("$({name})");
        let value = known.map_or_else(unknown, |(_, value)| value.clone());
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::known("a-$(X)-b", "a-1-b")]
    #[case::unknown("$(Y)", "$(Y)")]
    #[case::escaped("$$(X)", "$(X)")]
    #[case::shell("$X ${X} $", "$X ${X} $")]
    #[case::open("$(X", "$(X")]
    fn references_are_replaced(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(expand(text, &[("X".to_owned(), "1".to_owned())]), expected);
    }

    #[rstest]
    #[case::name("metadata.name", Some("p"))]
    #[case::label("metadata.labels['a/b']", Some("c"))]
    #[case::no_such_label("metadata.labels['x']", Some(""))]
    #[case::labels("metadata.labels", Some("a/b=\"c\""))]
    #[case::address("status.podIP", Some("127.1.1.2"))]
    #[case::other("spec.hostname", None)]
    fn fields_of_a_pod(#[case] path: &str, #[case] expected: Option<&str>) {
        let pod = json!({"metadata": {"name": "p", "labels": {"a/b": "c"}}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let addresses = Addresses {
            pod: Ipv4Addr::new(127, 1, 1, 2),
            node: Ipv4Addr::new(127, 1, 1, 1),
        };
        assert_eq!(field(&pod, path, Some(addresses)).as_deref(), expected);
    }

    #[rstest]
    #[case::cpu_rounds_up("limits.cpu", None, "2")]
    #[case::milli("limits.cpu", Some("1m"), "1500")]
    #[case::memory("requests.memory", Some("1Mi"), "64")]
    fn resources_in_units(
        #[case] name: &str,
        #[case] divisor: Option<&str>,
        #[case] expected: &str,
    ) {
        let container = json!({"name": "c", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}}});
        let container: Container = serde_json::from_value(container).unwrap();
        let mut reference = json!({"resource": name});
        if let Some(divisor) = divisor {
            reference["divisor"] = json!(divisor);
        }
        let reference = serde_json::from_value(reference).unwrap();
        assert_eq!(resource(&container, &reference).as_deref(), Some(expected));
    }
}
