//! The kinds of objects that say what pods belong together.

/// Kind of object that groups pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum GroupKind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

impl GroupKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [
        Self::Service,
        Self::ReplicationController,
        Self::ReplicaSet,
        Self::StatefulSet,
    ];

    /// Returns the kind of a pod's controller; `None` if it is none of these kinds.
    pub fn of_controller(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("v1", "ReplicationController") => Some(Self::ReplicationController),
            ("apps/v1", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps/v1", "StatefulSet") => Some(Self::StatefulSet),
            _ => None,
        }
    }

    /// Returns the plural name of its objects in the API.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Service => "services",
            Self::ReplicationController => "replicationcontrollers",
            Self::ReplicaSet => "replicasets",
            Self::StatefulSet => "statefulsets",
        }
    }
}
