//! Revisions of pod templates: the history that DaemonSets and StatefulSets keep.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::Resource;
use serde_json::{Value, json};

use super::mirror::{Mirror, ObjectKey};
use super::objects;

/// The template of an owner, of which a revision is made.
pub(crate) struct Snapshot<'a, K> {
    pub(crate) owner: &'a K,
    pub(crate) template: &'a PodTemplateSpec,
    /// Number of names that other revisions had already.
    pub(crate) collisions: Option<i32>,
    /// Key of the label with the hash of the template.
    pub(crate) hash_label: &'static str,
}

/// What became of a new revision.
pub(crate) enum Made {
    /// The revision is there.
    Revision(Arc<ControllerRevision>),
    /// Another revision has its name; holds the answer of the server.
    Collision(kube::Error),
}

/// Returns the data of a revision: a patch that restores the template.
pub(crate) fn data(template: &PodTemplateSpec) -> Value {
    let mut template = json!(template);
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// Returns the template that a revision restores.
///
/// # Errors
/// Returns an error if the data of the revision is no template.
pub(crate) fn template(revision: &ControllerRevision) -> Result<PodTemplateSpec, kube::Error> {
    let data = revision.data.as_ref().map(|data| &data.0);
    let mut template = data.map_or(Value::Null, |data| data["spec"]["template"].clone());
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    serde_json::from_value(template).map_err(kube::Error::SerdeError)
}

impl<K: Resource<DynamicType = ()>> Snapshot<'_, K> {
    /// Creates the revision with a number, unless it is there already.
    ///
    /// # Errors
    /// Returns an error if the server refuses the revision for another reason than its name.
    pub(crate) async fn create(
        &self,
        mirror: &Mirror<ControllerRevision>,
        number: i64,
    ) -> Result<Made, kube::Error> {
        let hash = objects::template_hash(self.template, self.collisions);
        let meta = self.owner.meta();
        let labels = self.template.metadata.as_ref();
        let mut labels = labels
            .and_then(|meta| meta.labels.clone())
            .unwrap_or_default();
        labels.insert(self.hash_label.to_owned(), hash.clone());
        let wanted = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", objects::name(self.owner))),
                namespace: meta.namespace.clone(),
                labels: Some(labels),
                annotations: meta.annotations.clone(),
                owner_references: Some(vec![objects::control(self.owner)]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data(self.template))),
            revision: number,
        };
        let namespace = objects::namespace(self.owner);
        let error = match mirror.create(namespace, &wanted).await {
            Ok(made) => return Ok(Made::Revision(made)),
            Err(error) if objects::code(&error) == 409 => error,
            Err(error) => return Err(error),
        };
        let found = mirror.fetch(&ObjectKey::of(&wanted.metadata)).await?;
        Ok(match found.filter(|found| found.data == wanted.data) {
            Some(found) => Made::Revision(mirror.observe(found)),
            None => Made::Collision(error),
        })
    }
}
