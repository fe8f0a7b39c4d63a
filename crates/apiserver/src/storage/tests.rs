use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::state::MAX_VALUES;
use super::*;
use crate::storage::{Key, Store};

fn object(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[test]
fn versions_rise_over_all_resources_and_deletions_have_their_own() {
    let store = Store::new(10);
    let mut state = store.lock();
    state.put(Key::new("pods", "a", "one"), object("one"));
    state.put(Key::new("nodes", "", "n"), object("n"));
    let last = state.remove(&Key::new("pods", "a", "one")).unwrap();
    assert_eq!(last["metadata"]["resourceVersion"], "4");
    let versions = |resource| -> Vec<u64> {
        let changes = state.changes_after(resource, 1).unwrap();
        changes.map(|change| change.version).collect()
    };
    assert_eq!(versions("pods"), [2, 4]);
    assert_eq!(versions("nodes"), [3]);
}

#[test]
fn old_changes_say_the_same_as_new_ones() {
    let store = Store::new(3 * MAX_VALUES);
    let mut state = store.lock();
    for number in 0..2 * MAX_VALUES {
        let mut written = object("one");
        written["number"] = json!(number);
        state.put(Key::new("pods", "a", "one"), written);
    }
    let mut numbers = Vec::new();
    for change in state.changes_after("pods", 0).unwrap() {
        assert_eq!(
            change.object.value()["metadata"]["resourceVersion"],
            change.version.to_string()
        );
        numbers.push(change.object.value()["number"].clone());
        let before = change
            .before
            .as_ref()
            .map(|before| before.value()["number"].clone());
        assert_eq!(before, numbers.iter().rev().nth(1).cloned());
    }
    assert_eq!(
        numbers,
        (0..2 * MAX_VALUES)
            .map(|number| json!(number))
            .collect::<Vec<_>>()
    );
    let mut last: Option<Bytes> = None;
    let mut count = 0;
    for change in state.changes_after("pods", 0).unwrap() {
        let HistoricObject::Text(text) = &change.object else {
            break;
        };
        if let Some(HistoricObject::Text(before)) = &change.before {
            // the memory is shared, not copied
            assert_eq!(Some(before.as_ptr()), last.map(|last| last.as_ptr()));
        }
        last = Some(text.clone());
        count += 1;
    }
    assert_eq!(count, MAX_VALUES);
}

#[test]
fn a_resource_can_be_read_as_it_was() {
    let store = Store::new(10);
    let mut state = store.lock();
    state.put(Key::new("pods", "a", "kept"), object("kept"));
    state.put(Key::new("pods", "a", "gone"), object("gone"));
    let then = state.version();
    state.remove(&Key::new("pods", "a", "gone"));
    state.put(Key::new("pods", "a", "new"), object("new"));
    state.put(
        Key::new("pods", "a", "kept"),
        json!({"metadata": {"name": "kept"}, "changed": true}),
    );
    let past = state.at_version("pods", then);
    assert_eq!(past.version(), then);
    let names: Vec<&str> = past.list("pods", "").map(|(key, _)| &*key.name).collect();
    assert_eq!(names, ["gone", "kept"]);
    assert_eq!(
        past.get("pods", "a", "kept").unwrap()["changed"],
        Value::Null
    );
}

#[test]
fn history_beyond_the_limit_is_gone() {
    let store = Store::new(2);
    let mut state = store.lock();
    for name in ["a", "b", "c"] {
        state.put(Key::new("pods", "x", name), object(name));
    }
    assert!(state.changes_after("pods", 1).is_none());
    assert_eq!(state.changes_after("pods", 2).unwrap().count(), 2);
    state.compact();
    assert!(state.changes_after("pods", 2).is_none());
    assert_eq!(state.changes_after("pods", 4).unwrap().count(), 0);
}

#[test]
fn a_compaction_keeps_what_came_after_it() {
    let store = Store::new(10);
    let mut state = store.lock();
    for name in ["a", "b", "c"] {
        state.put(Key::new("pods", "x", name), object(name));
    }
    let newest = state.version();
    state.compact_to(newest - 1);
    assert_eq!(state.compacted(), newest - 1);
    assert!(state.changes_after("pods", newest - 2).is_none());
    assert_eq!(state.changes_after("pods", newest - 1).unwrap().count(), 1);
    // an earlier mark takes nothing back
    state.compact_to(1);
    assert_eq!(state.compacted(), newest - 1);
}

#[test]
fn what_is_forgotten_of_one_resource_is_no_loss_to_another() {
    let store = Store::new(2);
    let mut state = store.lock();
    state.put(Key::new("nodes", "", "n"), object("n"));
    let then = state.version();
    for name in ["a", "b", "c"] {
        state.put(Key::new("pods", "x", name), object(name));
    }
    assert_eq!(state.changes_after("nodes", then).unwrap().count(), 0);
    assert!(state.changes_after("nodes", then - 1).is_none());
    assert!(state.changes_after("pods", then).is_none());
    state.put(Key::new("nodes", "", "n"), object("n"));
    assert_eq!(state.changes_after("nodes", then).unwrap().count(), 1);
    state.compact();
    assert!(state.changes_after("nodes", then).is_none());
    assert_eq!(state.changes_after("nodes", then + 4).unwrap().count(), 0);
}

#[test]
fn only_who_watches_a_resource_hears_of_its_writes() {
    let store = Store::new(10);
    let [mut pods, mut nodes] = ["pods", "nodes"].map(|name| store.subscribe_to(name));
    let all = store.subscribe();
    store.lock().put(Key::new("pods", "x", "a"), object("a"));
    let heard = |receiver: &watch::Receiver<u64>| receiver.has_changed().unwrap();
    assert_eq!([&pods, &nodes, &all].map(heard), [true, false, true]);
    pods.mark_unchanged();
    // locking without writing does not notify
    drop(store.lock());
    assert_eq!([&pods, &nodes].map(heard), [false, false]);
    let mut state = store.lock();
    state.put(Key::new("pods", "x", "b"), object("b"));
    state.put(Key::new("nodes", "", "n"), object("n"));
    drop(state);
    assert_eq!([&pods, &nodes].map(heard), [true, true]);
    assert_eq!(*nodes.borrow_and_update(), 4);
}

#[test]
fn large_objects_shorten_the_history() {
    let store = Store::new(usize::MAX);
    let mut state = store.lock();
    state.max_bytes = 10_000;
    let mut large = object("a");
    large["data"] = json!("x".repeat(1000));
    for _ in 0..MAX_VALUES + 20 {
        state.put(Key::new("pods", "x", "a"), large.clone());
    }
    let newest = state.version();
    let texts = newest - MAX_VALUES as u64 - state.compacted();
    assert_eq!(texts, 9, "of 1,100 bytes each");
    assert_eq!(state.changes_after("pods", newest - 1).unwrap().count(), 1);
    assert!(state.changes_after("pods", 10).is_none());
}

#[test]
fn lists_are_in_the_order_of_paths() {
    let store = Store::new(10);
    let mut state = store.lock();
    for (namespace, name) in [("a", "x"), ("a-b", "x"), ("a", "x.y"), ("a", "x-y")] {
        state.put(Key::new("pods", namespace, name), object(name));
    }
    let paths: Vec<String> = state
        .list("pods", "")
        .map(|(key, _)| format!("{}/{}", key.namespace, key.name))
        .collect();
    assert_eq!(paths, ["a-b/x", "a/x", "a/x-y", "a/x.y"]);
}

#[test]
fn a_list_of_a_namespace_does_not_reach_its_neighbours() {
    let store = Store::new(10);
    let mut state = store.lock();
    for (namespace, name) in [("a", "x"), ("ab", "x"), ("b", "x")] {
        state.put(Key::new("pods", namespace, name), object(name));
    }
    state.put(Key::new("podtemplates", "a", "x"), object("x"));
    assert_eq!(state.list("pods", "a").count(), 1);
    assert_eq!(state.list("pods", "").count(), 3);
}
