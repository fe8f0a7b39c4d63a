//! Watches one kind of objects and delivers its changes.

use std::collections::BTreeSet;

use futures::{StreamExt as _, pin_mut};
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::mpsc;

use super::kinds::{Kind, Need, Object, Watched};
use crate::metrics::Metrics;
use crate::state::pod::PodKey;

/// Number of objects per page of a list. A whole page is in memory at once, as text and as objects, which accounts for most of the peak memory.
const PAGE: u32 = 100;

/// A change of one kind of objects, read as `T` and identified by `I`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T, I> {
    /// An object was added or changed.
    Apply(T),
    /// An object was deleted.
    Delete(I),
    /// The list is complete: objects that are not among these no longer exist.
    Synced(BTreeSet<I>),
}

/// What a watch delivers.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Objects of a kind changed.
    Changed(Kind, Box<Change<(PodKey, Object), PodKey>>),
    /// Objects of a kind that only volumes need may not be listed.
    Refused(Kind),
}

/// Watches all objects of `api` until the receiver is gone. Objects that cannot be read are left out. A failed watch is restarted
/// with growing pauses, and what was missed meanwhile is delivered as changes.
pub async fn follow<K: Watched, M: From<Notice>>(
    api: Api<K>,
    channel: mpsc::Sender<M>,
    metrics: Metrics,
) {
    let kind = K::KIND.plural();
    let config = watcher::Config::default().page_size(PAGE);
    let stream = watcher(api, config).default_backoff();
    pin_mut!(stream);
    let mut listed = BTreeSet::new();
    while let Some(event) = stream.next().await {
        let notice = match event {
            Err(error) => {
                metrics.watch_error(kind);
                tracing::warn!(kind, error = %daemon::log::chain(&error), "Watch failed");
                let is_told = K::KIND.need() == Need::Volumes && is_refusal(&error);
                is_told.then_some(Notice::Refused(K::KIND))
            }
            Ok(event) => changes(event, read::<K>, &mut listed)
                .map(|change| Notice::Changed(K::KIND, Box::new(change))),
        };
        let Some(notice) = notice else { continue };
        if channel.send(notice.into()).await.is_err() {
            return;
        }
    }
}

fn read<K: Watched>(wire: K) -> Option<(PodKey, (PodKey, Object))> {
    let read = wire.read(|node, problem| {
        tracing::warn!(%node, %problem, "Part of the NodeResourceTopology is not used");
    });
    read.map(|(key, object)| (key.clone(), (key, object)))
}

/// Returns whether the API server answered that the kind does not exist or may not be listed.
fn is_refusal(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if matches!(status.code, 403 | 404)
    )
}

fn changes<K, T, I>(
    event: Event<K>,
    read: fn(K) -> Option<(I, T)>,
    listed: &mut BTreeSet<I>,
) -> Option<Change<T, I>>
where
    I: Ord,
{
    match event {
        Event::Init => {
            listed.clear();
            None
        }
        Event::InitApply(object) => {
            let (id, value) = read(object)?;
            listed.insert(id);
            Some(Change::Apply(value))
        }
        Event::InitDone => Some(Change::Synced(std::mem::take(listed))),
        Event::Apply(object) => read(object).map(|(_, value)| Change::Apply(value)),
        Event::Delete(object) => read(object).map(|(id, _)| Change::Delete(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relist_names_everything_that_is_there() {
        let read: fn(u8) -> Option<(u8, u16)> =
            |number| (number > 0).then_some((number, u16::from(number) * 10));
        let mut listed = BTreeSet::new();
        let mut next = |event| changes(event, read, &mut listed);
        assert_eq!(next(Event::Apply(1)), Some(Change::Apply(10)));
        assert_eq!(next(Event::Init), None);
        assert_eq!(next(Event::InitApply(2)), Some(Change::Apply(20)));
        assert_eq!(next(Event::InitApply(0)), None);
        assert_eq!(next(Event::InitApply(3)), Some(Change::Apply(30)));
        assert_eq!(next(Event::InitDone), Some(Change::Synced([2, 3].into())));
        assert_eq!(next(Event::Delete(3)), Some(Change::Delete(3)));
    }
}
