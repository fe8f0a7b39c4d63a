//! Booleans as Go's `strconv.ParseBool` reads them.

/// Parses a boolean; `None` if the text is none.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::word("true", Some(true))]
    #[case::capital("False", Some(false))]
    #[case::letter("t", Some(true))]
    #[case::number("0", Some(false))]
    #[case::mixed_case("tRUE", None)]
    #[case::yes("yes", None)]
    #[case::empty("", None)]
    #[case::blank(" true", None)]
    fn booleans_are_read_as_go_does(#[case] text: &str, #[case] expected: Option<bool>) {
        assert_eq!(boolean(text), expected);
    }
}
