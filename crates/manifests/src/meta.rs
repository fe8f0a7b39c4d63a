//! Constructors for the parts that many objects share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, EnvVar, EnvVarSource, HostPathVolumeSource,
    ObjectFieldSelector, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

pub(crate) fn labels<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

pub(crate) fn cluster_wide(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        ..ObjectMeta::default()
    }
}

pub(crate) fn namespaced(name: &str, namespace: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some(namespace.into()),
        ..ObjectMeta::default()
    }
}

pub(crate) fn selecting(labels: &BTreeMap<String, String>) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels.clone()),
        match_expressions: None,
    }
}

pub(crate) fn quantities<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Quantity(value.to_owned())))
        .collect()
}

pub(crate) fn env(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value: Some(value.into()),
        value_from: None,
    }
}

pub(crate) fn env_of_field(name: &str, path: &str) -> EnvVar {
    let field_ref = Some(ObjectFieldSelector {
        api_version: None,
        field_path: path.into(),
    });
    EnvVar {
        name: name.into(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref,
            ..EnvVarSource::default()
        }),
    }
}

pub(crate) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.into(),
        mount_path: path.into(),
        ..VolumeMount::default()
    }
}

pub(crate) fn mount_read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount(name, path)
    }
}

/// Like [`mount_read_only`], with everything that is mounted below, where node and runtime can do that. A plain read-only mount leaves the
/// control groups below `/sys` writable.
pub(crate) fn mount_all_read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        recursive_read_only: Some("IfPossible".into()),
        ..mount_read_only(name, path)
    }
}

pub(crate) fn host_path(name: &str, path: &str, kind: &str) -> Volume {
    let host_path = Some(HostPathVolumeSource {
        path: path.into(),
        type_: Some(kind.into()),
    });
    Volume {
        name: name.into(),
        host_path,
        ..Volume::default()
    }
}

pub(crate) fn memory_dir(name: &str, size: &str) -> Volume {
    let empty_dir = Some(EmptyDirVolumeSource {
        medium: Some("Memory".into()),
        size_limit: Some(Quantity(size.into())),
    });
    Volume {
        name: name.into(),
        empty_dir,
        ..Volume::default()
    }
}

pub(crate) fn secret(name: &str, secret: &str, optional: bool) -> Volume {
    let secret = Some(SecretVolumeSource {
        secret_name: Some(secret.into()),
        optional: optional.then_some(true),
        ..SecretVolumeSource::default()
    });
    Volume {
        name: name.into(),
        secret,
        ..Volume::default()
    }
}

pub(crate) fn config_map(name: &str, config_map: &str, optional: bool) -> Volume {
    let config_map = Some(ConfigMapVolumeSource {
        name: config_map.into(),
        optional: optional.then_some(true),
        ..ConfigMapVolumeSource::default()
    });
    Volume {
        name: name.into(),
        config_map,
        ..Volume::default()
    }
}
