//! Addresses as they stand in a request: an absolute URI or an absolute path, as Go reads them.

/// Characters that a host may have beside letters, digits and escapes.
const IN_HOSTS: &[u8] = b"-_.~!$&'()*+,;=:[]<>\"";

/// Characters that the name and password of a user may have beside letters, digits and escapes.
const IN_USERS: &[u8] = b"-._:~!$&'()*+,;=%@";

/// Returns whether a text is an address that a request may have.
pub(super) fn is_of_request(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control()) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = scheme(text) else {
        return false;
    };
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    match rest.strip_prefix("//") {
        Some(rest) if !scheme.is_empty() => {
            let end = rest.find('/').unwrap_or(rest.len());
            is_authority(&rest[..end]) && are_escapes(&rest[end..])
        }
        _ => are_escapes(rest),
    }
}

/// Returns the scheme, empty where there is none, and what follows its colon; `None` if the colon has nothing before it.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let is_of_scheme = |(at, byte): (usize, u8)| {
        byte.is_ascii_alphabetic() || at > 0 && (byte.is_ascii_digit() || b"+-.".contains(&byte))
    };
    match text.bytes().enumerate().find(|each| !is_of_scheme(*each)) {
        Some((0, b':')) => None,
        Some((end, b':')) => Some((&text[..end], &text[end + 1..])),
        _ => Some(("", text)),
    }
}

fn is_authority(text: &str) -> bool {
    let (user, host) = text.rsplit_once('@').unwrap_or(("", text));
    let is_of_user = |byte: u8| byte.is_ascii_alphanumeric() || IN_USERS.contains(&byte);
    user.bytes().all(is_of_user) && are_escapes(user) && is_host(host)
}

fn is_host(text: &str) -> bool {
    let (host, port) = if text.starts_with('[') {
        match text.rfind(']') {
            Some(end) => text.split_at(end + 1),
            None => return false,
        }
    } else {
        text.rfind(':')
            .map_or((text, ""), |colon| text.split_at(colon))
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let is_of_host = |byte: u8| {
        byte.is_ascii_alphanumeric() || !byte.is_ascii() || byte == b'%' || IN_HOSTS.contains(&byte)
    };
    // hosts escape what is no ASCII, and the percent sign, which is before a zone
    let is_escaped = |escape: &str| {
        escape.starts_with("25")
            || escape
                .as_bytes()
                .first()
                .is_some_and(|digit| !(b'0'..b'8').contains(digit))
    };
    is_port
        && host.bytes().all(is_of_host)
        && are_escapes(host)
        && host.split('%').skip(1).all(is_escaped)
}

/// Returns whether two hexadecimal digits follow each percent sign.
fn are_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|escape| {
        escape
            .as_bytes()
            .get(..2)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/a/b?c#d", true)]
    #[case("a/b", false)]
    #[case("*", true)]
    #[case("mailto:n@example.com", true)]
    #[case(":a", false)]
    #[case("1a:b", false)]
    #[case("https://example.com:8443/a%20b", true)]
    #[case("https://example.com/a%2", false)]
    #[case("https://example.com:a/", false)]
    #[case("https://u:p@[::1%25eth0]:80", true)]
    #[case("https://[::1", false)]
    #[case("https://a b/", false)]
    #[case("https://a%41/", false)]
    #[case("https://a%C3%A4/", true)]
    #[case("//a b", true)]
    #[case("/a\u{7f}", false)]
    fn an_address_may_be_in_a_request(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(is_of_request(text), expected);
    }
}
