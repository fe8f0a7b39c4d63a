use super::*;
use crate::testing::mk_key;

fn apply_volume(storage: &mut Storage, version: u64, owner: Option<&str>) -> bool {
    let volume = Volume {
        name: "v".to_owned(),
        version,
        owner: owner.map(|uid| Owner {
            claim: mk_key("ns", "c"),
            uid: Some(uid.to_owned()),
        }),
        ..Volume::default()
    };
    storage.apply(mk_key("", "v"), Object::Volume(Box::new(volume)))
}

fn apply_claim(storage: &mut Storage, version: u64, volume: &str, node: Option<&str>) {
    let claim = Claim {
        key: mk_key("ns", "c"),
        version,
        volume: (!volume.is_empty()).then(|| volume.to_owned()),
        is_completed: !volume.is_empty(),
        selected_node: node.map(str::to_owned),
        ..Claim::default()
    };
    storage.apply(mk_key("ns", "c"), Object::Claim(Box::new(claim)));
}

#[test]
fn a_given_volume_is_waited_for_until_its_claim_is_bound_or_it_is_taken_back() {
    let reservation = Reservation {
        node: "n".to_owned(),
        volumes: vec![("v".to_owned(), mk_key("ns", "c"))],
        provisions: Vec::new(),
    };
    let mut storage = Storage::default();
    let progress = |storage: &Storage| storage.progress(&reservation, &[5], |_| true);
    apply_volume(&mut storage, 4, None);
    apply_claim(&mut storage, 3, "", None);
    assert_eq!(progress(&storage), Progress::Waiting);
    apply_volume(&mut storage, 5, Some("uid"));
    assert_eq!(progress(&storage), Progress::Waiting);
    apply_claim(&mut storage, 6, "v", None);
    assert_eq!(progress(&storage), Progress::Bound);
    let misfit = storage.progress(&reservation, &[5], |_| false);
    assert!(matches!(misfit, Progress::Failed(_)), "{misfit:?}");
    apply_volume(&mut storage, 7, None);
    assert!(matches!(progress(&storage), Progress::Failed(_)));
}

#[test]
fn a_provisioner_that_gives_up_takes_the_node_off_the_claim() {
    let reservation = Reservation {
        node: "n".to_owned(),
        volumes: Vec::new(),
        provisions: vec![mk_key("ns", "c")],
    };
    let mut storage = Storage::default();
    let progress = |storage: &Storage| storage.progress(&reservation, &[5], |_| true);
    apply_claim(&mut storage, 4, "", None);
    assert_eq!(progress(&storage), Progress::Waiting);
    apply_claim(&mut storage, 5, "", Some("n"));
    assert_eq!(progress(&storage), Progress::Waiting);
    apply_claim(&mut storage, 6, "v", Some("n"));
    // no watch has shown its volume yet
    assert_eq!(progress(&storage), Progress::Waiting);
    apply_volume(&mut storage, 5, Some("uid"));
    assert_eq!(progress(&storage), Progress::Bound);
    apply_claim(&mut storage, 7, "", None);
    assert!(matches!(progress(&storage), Progress::Failed(_)));
}

#[test]
fn attachments_are_those_of_a_node_until_they_end() {
    let mut storage = Storage::default();
    for (name, node) in [("x", "a"), ("y", "a"), ("z", "b")] {
        let attachment = Attachment {
            node: node.to_owned(),
            driver: name.to_owned(),
            volume: None,
        };
        storage.apply(mk_key("", name), Object::Attachment(attachment));
    }
    let drivers = |storage: &Storage, node| -> Vec<String> {
        let attachments = storage.attachments(node);
        attachments.map(|it| it.driver.clone()).collect()
    };
    assert_eq!(drivers(&storage, "a"), ["x", "y"]);
    storage.delete(Kind::VolumeAttachment, &mk_key("", "x"));
    assert_eq!(drivers(&storage, "a"), ["y"]);
    storage.retain(Kind::VolumeAttachment, &[mk_key("", "z")].into());
    assert_eq!(drivers(&storage, "a"), [""; 0]);
    assert_eq!(drivers(&storage, "b"), ["z"]);
}

#[test]
fn a_new_version_alone_is_nothing_new() {
    let mut storage = Storage::default();
    assert!(apply_volume(&mut storage, 1, None));
    assert!(!apply_volume(&mut storage, 2, None));
    assert_eq!(storage.volume("v").expect("kept").version, 2);
    assert!(apply_volume(&mut storage, 3, Some("uid")));
}
