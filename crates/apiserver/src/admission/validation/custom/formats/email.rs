//! Addresses of e-mail as Go reads them (RFC 5322): `n@example.com`, with a name `Name <n@example.com>`, with a comment after it.

use std::net::IpAddr;

/// Returns whether a text is one address.
pub(super) fn is_address(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let text = match text.strip_suffix(')') {
        Some(commented) => match commented.rsplit_once('(') {
            Some((text, _)) => text.trim_end_matches([' ', '\t']),
            None => return false,
        },
        None => text,
    };
    match text.strip_suffix('>') {
        Some(named) => named
            .rsplit_once('<')
            .is_some_and(|(name, address)| is_name(name) && is_bare(address)),
        None => is_bare(text),
    }
}

fn is_bare(text: &str) -> bool {
    let rest = after_quotes(text).or_else(|| {
        let (local, rest) = text.split_at(text.find('@')?);
        are_atoms(local).then_some(rest)
    });
    let domain = rest.and_then(|rest| rest.strip_prefix('@'));
    domain.is_some_and(is_domain)
}

fn is_domain(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(literal) => literal
            .strip_suffix(']')
            .is_some_and(|address| address.parse::<IpAddr>().is_ok()),
        None => are_atoms(text),
    }
}

/// Returns whether a text is a row of words and quoted texts, or nothing.
fn is_name(text: &str) -> bool {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if rest.is_empty() {
            return true;
        }
        rest = match after_quotes(rest) {
            Some(rest) => rest,
            None => match rest.find(|character| !is_of_atoms(character) && character != '.') {
                Some(0) => return false,
                Some(end) => &rest[end..],
                None => "",
            },
        };
    }
}

/// Returns what follows a quoted text, if there is one at the start.
fn after_quotes(text: &str) -> Option<&str> {
    let quoted = text.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = quoted.find(|character| {
        let ends = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends
    })?;
    Some(&quoted[end + 1..])
}

/// Returns whether a text is a row of atoms with one point between two.
fn are_atoms(text: &str) -> bool {
    text.split('.')
        .all(|atom| !atom.is_empty() && atom.chars().all(is_of_atoms))
}

fn is_of_atoms(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || !character.is_ascii()
        || "!#$%&'*+-/=?^_`{|}~".contains(character)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("n@localhost", true)]
    #[case(" n+tag@-exa_mple.com ", true)]
    #[case("ä@ä.example", true)]
    #[case("Name \"A B\" <n@example.com>", true)]
    #[case("<n@example.com>", true)]
    #[case("\"a @\\\" b\"@example.com", true)]
    #[case("n@[127.0.0.1]", true)]
    #[case("n@example.com (comment)", true)]
    #[case("n@", false)]
    #[case("@example.com", false)]
    #[case("a@b@c", false)]
    #[case("a b@example.com", false)]
    #[case("a..b@example.com", false)]
    #[case("n@example.com.", false)]
    #[case("n@[example]", false)]
    #[case("n@example.com, m@example.com", false)]
    #[case("Name n@example.com", false)]
    #[case("Na,me <n@example.com>", false)]
    #[case("\"a@example.com", false)]
    #[case("", false)]
    fn a_text_is_an_address(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(is_address(text), expected);
    }
}
