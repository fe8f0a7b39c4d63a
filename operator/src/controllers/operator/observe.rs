//! Reads what a `NUMAResourcesOperator` selects and what it owns.

use std::fmt::Debug;

use api::conditions as condition;
use api::operator::v1::NumaResourcesOperator;
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::controllers::pools;
use crate::node_groups::machine_pools::Selected;
use crate::report::conditions::Outcome;

/// Finds the pools of the node groups.
pub(super) async fn pools(
    cr: &NumaResourcesOperator,
    context: &Context,
) -> Result<Selected, Outcome> {
    pools::find(cr, context).await.map_err(|error| match error {
        pools::Error::Invalid(message) => Outcome::Invalid {
            reason: condition::REASON_NODE_GROUPS,
            message,
        },
        pools::Error::Read(error) => Outcome::failed(&error),
    })
}

/// Lists the names of the objects that the resource owns.
pub(super) async fn owned<K>(api: &Api<K>, cr: &NumaResourcesOperator) -> kube::Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = api.list_metadata(&ListParams::default()).await?;
    let uid = cr.meta().uid.as_deref();
    let owned = found.items.iter().filter(|object| {
        let mut owners = object.owner_references().iter();
        owners.any(|owner| Some(owner.uid.as_str()) == uid)
    });
    Ok(owned.map(ResourceExt::name_any).collect())
}
