use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn container<'a>(path: &'a str) -> Container<'a> {
    let parts: Vec<&'a str> = path.split('/').collect();
    Container {
        namespace: parts[0],
        pod: parts[1],
        container: parts[2],
    }
}

#[rstest]
#[case("default/pod-1/c0", 0x11b6_8fe4_eb0c_d72f)]
#[case("default/pod-1/c1", 0xea6d_1e6e_20db_46a1)]
#[case("default/pod-2/c0", 0xb8e3_9691_e5f5_7abb)]
#[case("default/pod-3/c0", 0xdad2_e2c8_36db_dc5b)]
#[case("kube-system/dp-0/main", 0x4c7a_b3b7_c3d7_a154)]
#[case("ns/a0/c", 0xb612_d5a5_453d_35ad)]
#[case("ns/a1/c", 0xae26_50e8_1b17_e029)]
#[case("ns/b0/c", 0x693f_daff_7458_511a)]
#[case("ns/b1/c", 0x0c13_fd65_9652_5dde)]
fn container_hashes_of_the_original(#[case] path: &str, #[case] expected: u64) {
    assert_eq!(container(path).hash(), expected);
}

#[rstest]
#[case::nothing(2, &[], "::cc=0::nn=2::bn=0", &[])]
#[case::only_the_busiest(2, &[("default/pod-1/c0", 1)], "::cc=1::nn=2::bn=1", &[])]
#[case::a_tie_goes_to_the_lowest(
    2,
    &[("default/pod-1/c0", 0), ("default/pod-2/c0", 1)],
    "::cc=2::nn=2::bn=0",
    &[(1, "#")]
)]
#[case::two_and_three(
    2,
    &[
        ("default/pod-1/c0", 0),
        ("default/pod-1/c1", 0),
        ("default/pod-2/c0", 1),
        ("default/pod-3/c0", 1),
        ("kube-system/dp-0/main", 1),
    ],
    "::cc=5::nn=2::bn=1",
    &[(0, "!'")]
)]
#[case::an_empty_node(
    3,
    &[("ns/a0/c", 1), ("ns/a1/c", 1), ("ns/b0/c", 2), ("ns/b1/c", 2)],
    "::cc=4::nn=3::bn=1",
    &[(2, "!#")]
)]
fn vectors_of_the_original(
    #[case] nodes: usize,
    #[case] containers: &[(&str, usize)],
    #[case] metadata: &str,
    #[case] vectors: &[(usize, &str)],
) {
    let encoded = encode(
        containers
            .iter()
            .map(|(path, node)| (container(path), *node)),
        nodes,
    )
    .unwrap();
    assert_eq!(encoded.metadata, format!("npv0v001::ve=leb89{metadata}"));
    let expected: BTreeMap<usize, String> = vectors
        .iter()
        .map(|(node, text)| (*node, (*text).to_owned()))
        .collect();
    assert_eq!(encoded.vectors, expected);
}

#[test]
fn vector_of_three_hundred_containers_of_the_original() {
    let names: Vec<String> = (0..300).map(|i| format!("pod-{i}")).collect();
    let placed = names.iter().enumerate().map(|(i, pod)| {
        let node = match i {
            i if i % 100 == 0 => 2,
            i if i % 3 == 0 => 1,
            _ => 0,
        };
        (
            Container {
                namespace: "ns",
                pod,
                container: "c",
            },
            node,
        )
    });
    let encoded = encode(placed, 4).unwrap();
    assert_eq!(encoded.metadata, "npv0v001::ve=leb89::cc=300::nn=4::bn=0");
    assert_eq!(encoded.vectors[&2], "(f.gH");
}

#[test]
fn a_node_outside_of_the_machine_is_refused() {
    let error = encode([(container("ns/p/c"), 2)], 2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "container ns/p/c is on NUMA node 2, but the machine has only 2"
    );
}

#[rstest]
#[case::prefix("npv0v002::ve=leb89::cc=1::nn=2::bn=0", &[])]
#[case::encoding("npv0v001::ve=plain::cc=1::nn=2::bn=0", &[])]
#[case::no_encoding("npv0v001::cc=1::nn=2::bn=0", &[])]
#[case::unknown_key("npv0v001::ve=leb89::cc=1::nn=2::bn=0::x=1", &[])]
#[case::empty_value("npv0v001::ve=leb89::cc=::nn=2::bn=0", &[])]
#[case::no_count("npv0v001::ve=leb89::nn=2::bn=0", &[])]
#[case::no_nodes("npv0v001::ve=leb89::cc=1::nn=0::bn=0", &[])]
#[case::busiest_outside("npv0v001::ve=leb89::cc=1::nn=2::bn=2", &[])]
#[case::another_count("npv0v001::ve=leb89::cc=2::nn=2::bn=0", &[])]
#[case::vector_of_the_busiest("npv0v001::ve=leb89::cc=1::nn=2::bn=0", &[(0, "!")])]
#[case::vector_outside("npv0v001::ve=leb89::cc=1::nn=2::bn=0", &[(2, "!")])]
#[case::offset_outside("npv0v001::ve=leb89::cc=1::nn=2::bn=0", &[(1, "#")])]
#[case::offset_repeated("npv0v001::ve=leb89::cc=1::nn=2::bn=0", &[(1, "!!")])]
#[case::vector_beyond_ascii("npv0v001::ve=leb89::cc=1::nn=2::bn=0", &[(1, "é")])]
fn a_wrong_placement_is_refused(#[case] metadata: &str, #[case] vectors: &[(usize, &str)]) {
    let encoded = Encoded {
        metadata: metadata.to_owned(),
        vectors: vectors
            .iter()
            .map(|(node, text)| (*node, (*text).to_owned()))
            .collect(),
    };
    assert!(decode(&encoded, [container("ns/p/c")]).is_err());
}

proptest! {
    #[test]
    fn decode_of_encode_is_the_placement(
        placed in proptest::collection::btree_map("[a-z]{1,6}", 0_usize..4, 0..40),
    ) {
        let expected: BTreeMap<Container<'_>, usize> = placed
            .iter()
            .map(|(pod, node)| (Container { namespace: "ns", pod, container: "c" }, *node))
            .collect();
        let encoded = encode(expected.clone(), 4).unwrap();
        prop_assert_eq!(decode(&encoded, expected.keys().copied()), Ok(expected.clone()));
    }
}

mod fuzz {
    use super::*;

    #[test]
    fn no_published_placement_stops_its_reader_and_what_is_accepted_is_written_alike() {
        let names: Vec<String> = (0..8).map(|number| format!("pod-{number}")).collect();
        ::fuzz::run(file!(), |input| {
            let known = &names[..input.int_in_range(0..=names.len())?];
            let containers = known.iter().map(|pod| Container {
                namespace: "ns",
                pod,
                container: "c",
            });
            let mut placed = Vec::new();
            for container in containers.clone() {
                placed.push((container, input.int_in_range(0..=2)?));
            }
            let written = encode(placed, 3).unwrap();
            let mut changed = Encoded {
                metadata: ::fuzz::mutate::text(&written.metadata, input)?,
                vectors: BTreeMap::new(),
            };
            for (node, vector) in &written.vectors {
                let node = if input.ratio(1, 8)? {
                    *input.choose(&[0, 3, 64, usize::MAX])?
                } else {
                    *node
                };
                let vector = ::fuzz::mutate::text(vector, input)?;
                changed.vectors.insert(node, vector);
            }
            if let Ok(read) = decode(&changed, containers.clone()) {
                let nodes = read.values().max().map_or(1, |last| last + 1);
                let again = encode(read.clone(), nodes).unwrap();
                assert_eq!(
                    decode(&again, containers).as_ref(),
                    Ok(&read),
                    "{changed:?}"
                );
            }
            Ok(())
        });
    }
}
