//! The order of merged lists.

use serde_json::Value;

use super::directives::DIRECTIVE;
use super::error::Error;

/// Checks that the given items have the order that the patch sets.
pub(super) fn check_order(given: &[Value], order: &[Value], key: &str) -> Result<(), Error> {
    if order.is_empty() || given.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    let in_order = given
        .iter()
        .filter(|item| item.get(DIRECTIVE).is_none())
        .all(|item| rest.any(|listed| is_same_item(item, listed, key)));
    if in_order {
        Ok(())
    } else {
        Err(Error::Order {
            patch: Value::from(given.to_vec()).to_string(),
            order: Value::from(order.to_vec()).to_string(),
        })
    }
}

/// Returns whether two values are the same item.
pub(super) fn is_same_item(left: &Value, right: &Value, key: &str) -> bool {
    if key.is_empty() {
        left == right
    } else {
        left.get(key).is_some() && left.get(key) == right.get(key)
    }
}

/// Returns the place of an item in a list.
pub(super) fn position(list: &[Value], item: &Value, key: &str) -> Option<usize> {
    list.iter().position(|other| is_same_item(item, other, key))
}

/// Arranges items: those of the patch in its order, the others in their position on the server relative to those.
pub(super) fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    key: &str,
) -> Vec<Value> {
    let (mut patched, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| position(order, item, key).is_some());
    patched.sort_by_key(|item| position(order, item, key));
    others.sort_by_key(|item| position(server_order, item, key).unwrap_or(usize::MAX));
    let mut arranged = Vec::with_capacity(patched.len() + others.len());
    let (mut patched, mut others) = (
        patched.into_iter().peekable(),
        others.into_iter().peekable(),
    );
    loop {
        let takes_other = match (others.peek(), patched.peek()) {
            (None, None) => return arranged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(patched)) => {
                let places = (
                    position(server_order, other, key),
                    position(server_order, patched, key),
                );
                matches!(places, (Some(other), Some(patched)) if other < patched)
            }
        };
        arranged.extend(if takes_other {
            others.next()
        } else {
            patched.next()
        });
    }
}
