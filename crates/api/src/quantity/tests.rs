use super::*;

#[track_caller]
fn check(text: &str, nanos: i128, canonical: &str) {
    let amount: Amount = text.parse().unwrap();
    assert_eq!(amount.nanos(), nanos, "{text}");
    assert_eq!(amount.to_string(), canonical, "{text}");
}

#[test]
fn texts_are_read_exactly_and_written_canonically() {
    check("0", 0, "0");
    check("1", NANO, "1");
    check("1.5", NANO + NANO / 2, "1500m");
    check("100m", NANO / 10, "100m");
    check("1500m", NANO * 3 / 2, "1500m");
    check("2000m", NANO * 2, "2");
    check("1000", NANO * 1000, "1k");
    check("1.5Gi", NANO * 1536 * 1024 * 1024, "1536Mi");
    check("64Gi", NANO * (64 << 30), "64Gi");
    check("1024", NANO * 1024, "1024");
    check("1024Ki", NANO * 1024 * 1024, "1Mi");
    check("512", NANO * 512, "512");
    check("0.5Ki", NANO * 512, "512");
    check("1e3", NANO * 1000, "1e3");
    check("1E3", NANO * 1000, "1e3");
    check("1E", NANO * 1_000_000_000_000_000_000, "1E");
    check("5e-3", NANO / 200, "5e-3");
    check("-1", -NANO, "-1");
    check("+.5", NANO / 2, "500m");
    check("3.", NANO * 3, "3");
    check("1n", 1, "1n");
    check("0.1n", 1, "1n");
    check("100Ei", MAX_BINARY, "9223372036854775807");
    check("-100Ei", -MAX_BINARY, "-9223372036854775807");
    check("100E", NANO * 10_i128.pow(20), "100E");
    check(
        "12345678901234567890123456789.012345678",
        12_345_678_901_234_567_890_123_456_789_012_345_678,
        "12345678901234567890123456789012345678n",
    );
    check("1e400", MAX_DECIMAL, "100000000000e18");
}

#[test]
fn other_texts_are_refused() {
    for text in [
        "", "m", ".", "1 Gi", "1gi", "1K", "e3", "1e", "1e+", "1.2.3", "--1", "0x10", "1ki",
    ] {
        assert!(text.parse::<Amount>().is_err(), "{text:?}");
    }
}

#[test]
fn whole_and_milli_values_round_away_from_zero() {
    let amount: Amount = "1500u".parse().unwrap();
    assert_eq!((amount.milli(), amount.units()), (2, 1));
    let amount: Amount = "-1500m".parse().unwrap();
    assert_eq!((amount.milli(), amount.units()), (-1500, -2));
}

#[test]
fn only_cpu_is_calculated_in_thousandths() {
    for (resource, text, amount) in [
        ("cpu", "1500m", 1500),
        ("cpu", "2", 2000),
        ("memory", "2k", 2000),
        ("a.b/cpu", "3", 3),
    ] {
        let read: Amount = text.parse().unwrap();
        assert_eq!(read.in_unit_of(resource), amount, "{resource}");
        let written = Amount::of(resource, amount, Format::DecimalSi);
        assert_eq!(written.to_string(), text, "{resource}");
    }
}

#[test]
fn a_sum_has_the_format_of_the_first_amount_that_is_not_zero() {
    for (first, second, sum) in [
        ("1Gi", "1000", "1073742824"),
        ("1Gi", "1048576", "1025Mi"),
        ("1000", "1Ki", "2024"),
        ("0", "1Gi", "1Gi"),
        ("500m", "1500m", "2"),
        ("1", "-1", "0"),
    ] {
        let amount = |text: &str| text.parse::<Amount>().unwrap();
        let added = amount(first) + amount(second);
        assert_eq!(added.to_string(), sum, "{first} + {second}");
    }
}

#[test]
fn amounts_know_their_sign_and_whether_they_are_whole() {
    for (text, zero, negative, whole) in [
        ("0Ki", true, false, true),
        ("-0", true, false, true),
        ("1500m", false, false, false),
        ("-2000m", false, true, true),
        ("1Ki", false, false, true),
    ] {
        let amount: Amount = text.parse().unwrap();
        assert_eq!(amount.is_zero(), zero, "{text}");
        assert_eq!(amount.is_negative(), negative, "{text}");
        assert_eq!(amount.is_whole(), whole, "{text}");
    }
}

#[test]
fn amounts_compare_by_value() {
    assert_eq!(
        "1Ki".parse::<Amount>().unwrap(),
        "1024".parse::<Amount>().unwrap()
    );
    assert!("1Ki".parse::<Amount>().unwrap() > "1k".parse::<Amount>().unwrap());
}

#[test]
fn long_fractions_neither_overflow_nor_lose_the_rounding() {
    let text = format!("0.{}1Ei", "0".repeat(60));
    assert_eq!(text.parse::<Amount>().unwrap().nanos(), 1);
    let text = format!("{}.5", "1".repeat(50));
    assert_eq!(text.parse::<Amount>().unwrap().nanos(), MAX_DECIMAL);
}
