use super::*;
use crate::plugins::plugin::Plugin;

const SECOND: Duration = Duration::from_secs(1);

fn mk_queue() -> (Queue, Instant) {
    (
        Queue::new(Backoff {
            initial: SECOND,
            maximum: 10 * SECOND,
        }),
        Instant::now(),
    )
}

fn mk_key(name: &str) -> PodKey {
    PodKey {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
    }
}

fn add(queue: &mut Queue, name: &str, priority: i32, now: Instant) {
    queue.upsert(&mk_key(name), name, priority, false, now);
}

fn pop(queue: &mut Queue, now: Instant) -> Option<String> {
    queue.pop(now).map(|popped| popped.key.name)
}

fn rejected_by(plugin: Plugin) -> Plugins {
    [plugin].into_iter().collect()
}

#[test]
fn priority_goes_before_age() {
    let (mut queue, now) = mk_queue();
    for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
        add(&mut queue, name, priority, now);
    }
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, now)).collect();
    assert_eq!(order, ["b", "d", "a", "c"]);
}

/// Thousands of pods that fit nowhere come back all the time, so some of them are always ready.
#[test]
fn a_new_pod_has_its_turn_before_old_ones_have_their_next() {
    let (mut queue, now) = mk_queue();
    let old = ["a", "b", "c"];
    for name in old {
        add(&mut queue, name, 0, now);
    }
    for name in old {
        assert_eq!(pop(&mut queue, now).as_deref(), Some(name));
        queue.failed(&mk_key(name), rejected_by(Plugin::NodeResourcesFit), now);
    }
    let awake = now + 2 * SECOND;
    assert_eq!(pop(&mut queue, awake).as_deref(), Some("a"));
    add(&mut queue, "new", 0, awake);
    queue.failed(
        &mk_key("a"),
        rejected_by(Plugin::NodeResourcesFit),
        awake - 2 * SECOND,
    );
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, awake)).collect();
    assert_eq!(order, ["b", "c", "new", "a"]);
}

#[test]
fn a_rejected_pod_is_tried_again_after_doubling_sleeps() {
    let (mut queue, start) = mk_queue();
    add(&mut queue, "a", 0, start);
    let mut now = start;
    let mut sleeps = Vec::new();
    for _ in 0..6 {
        assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
        queue.failed(&mk_key("a"), rejected_by(Plugin::NodeResourcesFit), now);
        assert_eq!(pop(&mut queue, now), None);
        let wake = queue.next_wake().expect("asleep");
        sleeps.push((wake - now).as_secs());
        now = wake;
    }
    assert_eq!(sleeps, [1, 2, 4, 8, 10, 10]);
}

#[test]
fn a_change_wakes_only_those_it_may_help_and_starts_the_backoff_over() {
    let (mut queue, now) = mk_queue();
    for (name, plugin) in [
        ("fit", Plugin::NodeResourcesFit),
        ("numa", Plugin::NodeResourceTopologyMatch),
    ] {
        add(&mut queue, name, 0, now);
        assert_eq!(pop(&mut queue, now).as_deref(), Some(name));
        queue.failed(&mk_key(name), rejected_by(plugin), now);
    }
    assert_eq!(pop(&mut queue, now), None);
    queue.wake_rejected_by(
        rejected_by(Plugin::NodeResourceTopologyMatch),
        Cause::TopologyUpdated,
        now,
    );
    assert_eq!(
        queue.lengths(),
        Lengths {
            active: 0,
            backoff: 1,
            unschedulable: 1,
            gated: 0
        }
    );
    assert_eq!(pop(&mut queue, now).as_deref(), Some("numa"));
    assert_eq!(pop(&mut queue, now), None);
    queue.remove(&mk_key("fit"));
    queue.failed(
        &mk_key("numa"),
        rejected_by(Plugin::NodeResourceTopologyMatch),
        now,
    );
    assert_eq!(queue.next_wake(), Some(now + SECOND));
}

/// A pod comes and goes every three seconds in a cluster with thousands that fit nowhere, and each that goes wakes them all.
#[test]
fn changes_that_never_end_start_the_backoff_over_once_a_minute() {
    let (mut queue, start) = mk_queue();
    let fit = || rejected_by(Plugin::NodeResourcesFit);
    add(&mut queue, "a", 0, start);
    // somebody else is always ready, so that nothing shortens a backoff
    add(&mut queue, "ready", 1, start);
    let mut attempts = 0;
    for second in 0..120 {
        let now = start + second * SECOND;
        assert_eq!(pop(&mut queue, now).as_deref(), Some("ready"));
        if queue.lengths().active > 0 {
            assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
            queue.failed(&mk_key("a"), fit(), now);
            attempts += 1;
        }
        queue.remove(&mk_key("ready"));
        add(&mut queue, "ready", 1, now);
        if second % 3 == 0 {
            queue.wake_rejected_by(fit(), Cause::PodGone, now);
        }
    }
    assert_eq!(attempts, 18);
}

#[test]
fn ready_pods_go_before_woken_ones() {
    let (mut queue, now) = mk_queue();
    add(&mut queue, "old", 9, now);
    queue.pop(now);
    queue.failed(&mk_key("old"), Plugins::All, now);
    queue.wake(&mk_key("old"), Cause::PodUpdated, now);
    add(&mut queue, "new", 0, now);
    assert_eq!(pop(&mut queue, now).as_deref(), Some("new"));
    assert_eq!(pop(&mut queue, now).as_deref(), Some("old"));
}

#[test]
fn gates_hold_back_until_they_open() {
    let (mut queue, now) = mk_queue();
    queue.upsert(&mk_key("a"), "a", 0, true, now);
    assert_eq!((pop(&mut queue, now), queue.lengths().gated), (None, 1));
    queue.upsert(&mk_key("a"), "a", 0, false, now);
    assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
}

#[test]
fn a_pod_in_flight_is_not_popped_twice_and_a_removed_one_not_at_all() {
    let (mut queue, now) = mk_queue();
    add(&mut queue, "a", 0, now);
    queue.pop(now);
    add(&mut queue, "a", 3, now);
    assert_eq!(pop(&mut queue, now), None);
    assert!(queue.remove(&mk_key("a")));
    queue.failed(&mk_key("a"), Plugins::All, now);
    assert_eq!(
        (queue.next_wake(), queue.lengths()),
        (None, Lengths::default())
    );
}

#[test]
fn a_namesake_starts_anew() {
    let (mut queue, now) = mk_queue();
    add(&mut queue, "a", 0, now);
    queue.pop(now);
    queue.upsert(&mk_key("a"), "other", 0, false, now);
    assert_eq!(queue.pop(now).map(|popped| popped.attempts), Some(1));
}

#[test]
fn priority_may_change_in_any_state() {
    let (mut queue, now) = mk_queue();
    for name in ["a", "b"] {
        add(&mut queue, name, 0, now);
    }
    add(&mut queue, "b", 1, now);
    assert_eq!(pop(&mut queue, now).as_deref(), Some("b"));
    queue.failed(&mk_key("b"), Plugins::All, now);
    add(&mut queue, "b", 2, now);
    assert_eq!(
        queue.lengths(),
        Lengths {
            active: 1,
            backoff: 0,
            unschedulable: 1,
            gated: 0
        }
    );
    queue.wake(&mk_key("b"), Cause::PodUpdated, now);
    add(&mut queue, "b", 3, now);
    assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
    assert_eq!(pop(&mut queue, now).as_deref(), Some("b"));
}

#[test]
fn every_move_is_counted_with_its_cause() {
    let (mut queue, now) = mk_queue();
    queue.upsert(&mk_key("gated"), "gated", 0, true, now);
    add(&mut queue, "a", 0, now);
    queue.pop(now);
    queue.failed(&mk_key("a"), rejected_by(Plugin::NodeResourcesFit), now);
    let rejected: Vec<_> = queue.rejected().map(|(key, _)| key.name.clone()).collect();
    assert_eq!(rejected, ["a"]);
    queue.wake_rejected_by(rejected_by(Plugin::NodeResourcesFit), Cause::PodGone, now);
    assert_eq!(queue.rejected().count(), 0);
    queue.pop(now + SECOND);
    let moves: Vec<_> = queue.take_moves().into_keys().collect();
    assert_eq!(
        moves,
        [
            (Part::Active, Cause::PodAdded),
            (Part::Active, Cause::BackoffEnded),
            (Part::Backoff, Cause::PodGone),
            (Part::Unschedulable, Cause::AttemptFailed),
            (Part::Gated, Cause::PodAdded),
        ]
    );
    assert_eq!(queue.take_moves().len(), 0);
}
