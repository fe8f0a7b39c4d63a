//! Keys that come twice in a mapping of a YAML text. Parsing into a map keeps the last value and tells nothing.

/// How the parser begins its message.
const MESSAGE: &str = "duplicate entry with key ";

/// Returns what Go's decoder says of the first key that comes twice. It would also name further ones.
pub(super) fn repeated_key(text: &[u8]) -> Option<String> {
    let error = serde_yaml::from_slice::<serde_yaml::Value>(text).err()?;
    let message = error.to_string();
    let (_, rest) = message.split_once(MESSAGE)?;
    let key = rest.strip_prefix('"')?.split('"').next()?;
    // the place is that of the mapping
    let (first, column) = error
        .location()
        .map_or((1, 1), |place| (place.line(), place.column()));
    let line = second(&String::from_utf8_lossy(text), key, first, column).unwrap_or(first);
    Some(format!("line {line}: key {key:?} already set in map"))
}

/// Returns the line with the second occurrence of a key in a mapping that begins at a place and has each key in a line of its own.
fn second(text: &str, key: &str, first: usize, column: usize) -> Option<usize> {
    let indentation = column.saturating_sub(1);
    let is_key = |rest: &str| {
        let names = [key.to_owned(), format!("\"{key}\""), format!("'{key}'")];
        names
            .iter()
            .filter_map(|name| rest.strip_prefix(name.as_str()))
            .any(|rest| rest.trim_start().starts_with(':'))
    };
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let mapping = lines
        .skip(first.saturating_sub(1))
        .take_while(|(number, line)| {
            let begins = line.len() - line.trim_start().len();
            *number == first || line.trim().is_empty() || begins >= indentation
        });
    mapping
        .filter(|(_, line)| line.get(indentation..).is_some_and(is_key))
        .map(|(number, _)| number)
        .nth(1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::field("\na: x\nspec:\n  b: 1\n  foo: 1\n  c:\n    foo: 3\n  foo: 2\n", Some((8, "foo")))]
    #[case::root("a: 1\nb: 2\na: 3\n", Some((3, "a")))]
    #[case::in_a_list("l:\n- n: 1\n  v: 2\n  n: 3\n", Some((4, "n")))]
    #[case::quoted("s:\n  \"a\": 1\n  a: 2\n", Some((3, "a")))]
    #[case::json(r#"{"a": {"b": 1, "b": 2}}"#, Some((1, "b")))]
    #[case::none("a: 1\nb:\n  a: 2\n", None)]
    #[case::no_yaml("a: [", None)]
    fn repeated_keys_are_told_with_their_line(
        #[case] text: &str,
        #[case] expected: Option<(usize, &str)>,
    ) {
        let expected =
            expected.map(|(line, key)| format!("line {line}: key {key:?} already set in map"));
        assert_eq!(repeated_key(text.as_bytes()), expected);
    }
}
