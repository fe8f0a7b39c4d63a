//! What a request asks permission for.

use crate::access::identity::User;

/// What a request asks permission for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The path, for a request that is not for a resource; empty otherwise.
    pub(crate) path: &'a str,
    /// The field selector of a list or a watch.
    pub(crate) fields: &'a str,
}

impl Attributes<'_> {
    /// Returns the end of the refusal's message: what the user may not do.
    pub(crate) fn refusal(&self, user: &User) -> String {
        let name = &user.name;
        if !self.path.is_empty() {
            return format!("User {name:?} cannot {} path {:?}", self.verb, self.path);
        }
        let resource = if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        };
        let place = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", self.namespace)
        };
        format!(
            "User {name:?} cannot {} resource {resource:?} in API group {:?} {place}",
            self.verb, self.group
        )
    }
}
