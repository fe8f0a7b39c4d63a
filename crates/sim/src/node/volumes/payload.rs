//! The files of volumes that are made from objects.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, ServiceAccount,
    ServiceAccountTokenProjection, Volume,
};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};

use super::super::environment::{field, resource};
use super::Context;

/// Default mode of files.
const MODE: i32 = 0o644;
/// Default lifetime of tokens, in seconds.
const LIFETIME: i64 = 3600;

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) content: Vec<u8>,
    pub(crate) mode: u32,
}

/// Why a volume cannot be made; the text is that of the kubelet.
#[derive(Debug, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {problem}")]
pub(crate) struct Error {
    volume: String,
    problem: String,
}

impl Error {
    pub(super) fn new(volume: &Volume, problem: &dyn std::fmt::Display) -> Self {
        Self {
            volume: volume.name.clone(),
            problem: problem.to_string(),
        }
    }

    pub(super) fn unsupported(volume: &Volume) -> Self {
        Self::new(volume, &io::Error::from(io::ErrorKind::Unsupported))
    }
}

/// Tokens of a pod by audience and path, so that each is requested once per lifetime.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    known: BTreeMap<(String, String), Token>,
}

#[derive(Clone, Debug)]
struct Token {
    text: String,
    renew: Timestamp,
}

/// The objects that the files of a pod depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    /// Names of ConfigMaps.
    pub(crate) config_maps: BTreeSet<String>,
    /// Names of Secrets.
    pub(crate) secrets: BTreeSet<String>,
}

impl References {
    /// Collects the objects of a pod's volumes. The certificate of the cluster's authority is left out, because it never changes.
    pub(crate) fn of(pod: &Pod) -> Self {
        let mut found = Self::default();
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
        for volume in volumes.into_iter().flatten() {
            let projected = volume
                .projected
                .iter()
                .flat_map(|list| list.sources.iter().flatten());
            for source in projected {
                if let Some(source) = &source.config_map {
                    found.config_maps.insert(source.name.clone());
                }
                if let Some(source) = &source.secret {
                    found.secrets.insert(source.name.clone());
                }
            }
            if let Some(source) = &volume.config_map {
                found.config_maps.insert(source.name.clone());
            }
            if let Some(name) = volume
                .secret
                .as_ref()
                .and_then(|source| source.secret_name.as_ref())
            {
                found.secrets.insert(name.clone());
            }
        }
        found.config_maps.remove("kube-root-ca.crt");
        found
    }
}

/// Returns the files of a volume by path.
pub(super) async fn payload(
    context: &Context<'_>,
    pod: &Pod,
    volume: &Volume,
    tokens: &mut Tokens,
) -> Result<BTreeMap<String, File>, Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let maker = Maker {
        context,
        pod,
        volume,
        namespace,
    };
    let mut files = BTreeMap::new();
    if let Some(source) = &volume.config_map {
        let optional = source.optional.unwrap_or_default();
        let content = maker.config_map(&source.name, optional).await?;
        let mode = source.default_mode.unwrap_or(MODE);
        maker.select(
            &mut files,
            content,
            source.items.as_ref(),
            mode,
            optional,
            "configmap",
        )?;
    } else if let Some(source) = &volume.secret {
        let optional = source.optional.unwrap_or_default();
        let name = source.secret_name.clone().unwrap_or_default();
        let content = maker.secret(&name, optional).await?;
        let mode = source.default_mode.unwrap_or(MODE);
        maker.select(
            &mut files,
            content,
            source.items.as_ref(),
            mode,
            optional,
            "secret",
        )?;
    } else if let Some(source) = &volume.downward_api {
        let mode = source.default_mode.unwrap_or(MODE);
        maker.downward(&mut files, source.items.as_ref(), mode)?;
    } else if let Some(source) = &volume.projected {
        let mode = source.default_mode.unwrap_or(MODE);
        for source in source.sources.iter().flatten() {
            if let Some(source) = &source.config_map {
                let optional = source.optional.unwrap_or_default();
                let content = maker.config_map(&source.name, optional).await?;
                maker.select(
                    &mut files,
                    content,
                    source.items.as_ref(),
                    mode,
                    optional,
                    "configmap",
                )?;
            }
            if let Some(source) = &source.secret {
                let optional = source.optional.unwrap_or_default();
                let content = maker.secret(&source.name, optional).await?;
                maker.select(
                    &mut files,
                    content,
                    source.items.as_ref(),
                    mode,
                    optional,
                    "secret",
                )?;
            }
            if let Some(source) = &source.downward_api {
                maker.downward(&mut files, source.items.as_ref(), mode)?;
            }
            if let Some(source) = &source.service_account_token {
                let content = maker.token(source, tokens).await?;
                put(&mut files, &source.path, content.into_bytes(), mode);
            }
        }
    }
    Ok(files)
}

fn put(files: &mut BTreeMap<String, File>, path: &str, content: Vec<u8>, mode: i32) {
    let mode = u32::try_from(mode).unwrap_or_default();
    files.insert(path.to_owned(), File { content, mode });
}

struct Maker<'a> {
    context: &'a Context<'a>,
    pod: &'a Pod,
    volume: &'a Volume,
    namespace: &'a str,
}

type Content = BTreeMap<String, Vec<u8>>;

impl Maker<'_> {
    fn error(&self, problem: &dyn std::fmt::Display) -> Error {
        Error::new(self.volume, problem)
    }

    async fn config_map(&self, name: &str, optional: bool) -> Result<Content, Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.context.client.clone(), self.namespace);
        match api.get_opt(name).await {
            Ok(Some(object)) => {
                let text = object.data.into_iter().flatten();
                let text = text.map(|(key, value)| (key, value.into_bytes()));
                let bytes = object.binary_data.into_iter().flatten();
                Ok(text
                    .chain(bytes.map(|(key, value)| (key, value.0)))
                    .collect())
            }
            Ok(None) if optional => Ok(Content::new()),
            Ok(None) => Err(self.error(&format!("configmap {name:?} not found"))),
            Err(error) => Err(self.error(&error)),
        }
    }

    async fn secret(&self, name: &str, optional: bool) -> Result<Content, Error> {
        let api: Api<Secret> = Api::namespaced(self.context.client.clone(), self.namespace);
        match api.get_opt(name).await {
            Ok(Some(object)) => {
                let data = object.data.into_iter().flatten();
                Ok(data.map(|(key, value)| (key, value.0)).collect())
            }
            Ok(None) if optional => Ok(Content::new()),
            Ok(None) => Err(self.error(&format!("secret {name:?} not found"))),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// Adds all keys, or the named ones.
    fn select(
        &self,
        files: &mut BTreeMap<String, File>,
        content: Content,
        items: Option<&Vec<KeyToPath>>,
        mode: i32,
        optional: bool,
        kind: &str,
    ) -> Result<(), Error> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            for (key, value) in content {
                put(files, &key, value, mode);
            }
            return Ok(());
        };
        for item in items {
            match content.get(&item.key) {
                Some(value) => put(files, &item.path, value.clone(), item.mode.unwrap_or(mode)),
                None if optional => {}
                None => {
                    let problem =
                        format!("{kind} references non-existent {kind} key: {}", item.key);
                    return Err(self.error(&problem));
                }
            }
        }
        Ok(())
    }

    fn downward(
        &self,
        files: &mut BTreeMap<String, File>,
        items: Option<&Vec<DownwardAPIVolumeFile>>,
        mode: i32,
    ) -> Result<(), Error> {
        for item in items.into_iter().flatten() {
            let text = if let Some(reference) = &item.field_ref {
                field(self.pod, &reference.field_path, None)
            } else if let Some(reference) = &item.resource_field_ref {
                let name = reference.container_name.as_deref().unwrap_or_default();
                let spec = self.pod.spec.as_ref();
                let container = spec
                    .into_iter()
                    .flat_map(|spec| spec.containers.iter())
                    .find(|container| container.name == name);
                container.and_then(|container| resource(container, reference))
            } else {
                None
            };
            let text = text.ok_or_else(|| self.error(&format!("no value for {}", item.path)))?;
            put(
                files,
                &item.path,
                text.into_bytes(),
                item.mode.unwrap_or(mode),
            );
        }
        Ok(())
    }

    async fn token(
        &self,
        source: &ServiceAccountTokenProjection,
        tokens: &mut Tokens,
    ) -> Result<String, Error> {
        let spec = self.pod.spec.as_ref();
        let account = spec
            .and_then(|spec| spec.service_account_name.clone())
            .unwrap_or_else(|| "default".to_owned());
        let audience = source.audience.clone().unwrap_or_default();
        let key = (audience.clone(), source.path.clone());
        let now = Timestamp::now();
        if let Some(token) = tokens.known.get(&key)
            && now < token.renew
        {
            return Ok(token.text.clone());
        }
        let lifetime = source.expiration_seconds.unwrap_or(LIFETIME);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Some(audience)
                    .filter(|text| !text.is_empty())
                    .into_iter()
                    .collect(),
                expiration_seconds: Some(lifetime),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: self.pod.metadata.name.clone(),
                    uid: self.pod.metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.context.client.clone(), self.namespace);
        let answer = api
            .create_token_request(&account, &PostParams::default(), &request)
            .await
            .map_err(|error| self.error(&format!("failed to fetch token: {error}")))?;
        let text = answer.status.map(|status| status.token).unwrap_or_default();
        // A kubelet requests a new token when a fifth of the lifetime is left.
        let renew = std::time::Duration::from_secs(lifetime.unsigned_abs() * 4 / 5);
        let token = Token {
            text: text.clone(),
            renew: now + renew,
        };
        tokens.known.insert(key, token);
        Ok(text)
    }
}

impl Tokens {
    /// Returns when the first token has to be renewed.
    pub(crate) fn renewal(&self) -> Option<Timestamp> {
        self.known.values().map(|token| token.renew).min()
    }
}
