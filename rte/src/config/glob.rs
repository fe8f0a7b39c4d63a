//! Shell patterns by the rules of Go's `filepath.Match`: `*` and `?` do not match `/`, `[a-z]` and `[^a-z]` are classes, `\` escapes the
//! next character. A pattern must match the whole name.

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Token>);

/// A pattern with an unfinished class or escape.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in pattern \"{0}\"")]
pub struct Error(String);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Any,
    One,
    Char(char),
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Pattern {
    /// Parses a pattern.
    pub fn new(text: &str) -> Result<Self, Error> {
        let error = || Error(text.to_owned());
        let mut tokens = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            tokens.push(match c {
                '*' => Token::Any,
                '?' => Token::One,
                '\\' => Token::Char(chars.next().ok_or_else(error)?),
                '[' => {
                    let negated = chars.next_if_eq(&'^').is_some();
                    let mut ranges = Vec::new();
                    loop {
                        if !ranges.is_empty() && chars.next_if_eq(&']').is_some() {
                            break;
                        }
                        let low = bound(&mut chars).ok_or_else(error)?;
                        let high = match chars.next_if_eq(&'-') {
                            Some(_) => bound(&mut chars).ok_or_else(error)?,
                            None => low,
                        };
                        ranges.push((low, high));
                    }
                    Token::Class { negated, ranges }
                }
                c => Token::Char(c),
            });
        }
        Ok(Self(tokens))
    }

    /// Returns whether the pattern matches the whole of `name`.
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        matches(&self.0, &name)
    }
}

/// Parses one bound of a range in a class.
fn bound(chars: &mut impl Iterator<Item = char>) -> Option<char> {
    match chars.next()? {
        '-' | ']' => None,
        '\\' => chars.next(),
        c => Some(c),
    }
}

fn matches(tokens: &[Token], name: &[char]) -> bool {
    // Where to continue after a mismatch: the last `*`, and the position in the name up to which it has matched.
    let mut retry: Option<(usize, usize)> = None;
    let (mut token, mut position) = (0, 0);
    loop {
        if token == tokens.len() && position == name.len() {
            return true;
        }
        if tokens.get(token) == Some(&Token::Any) {
            retry = Some((token, position));
            token += 1;
            continue;
        }
        let fits = match (tokens.get(token), name.get(position)) {
            (Some(Token::Char(wanted)), Some(c)) => wanted == c,
            (Some(Token::One), Some(c)) => *c != '/',
            (Some(Token::Class { negated, ranges }), Some(c)) => {
                *c != '/' && ranges.iter().any(|(low, high)| (low..=high).contains(&c)) != *negated
            }
            _ => false,
        };
        if fits {
            token += 1;
            position += 1;
            continue;
        }
        match retry {
            Some((star, taken)) if name.get(taken).is_some_and(|c| *c != '/') => {
                retry = Some((star, taken + 1));
                token = star + 1;
                position = taken + 1;
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::same("abc", "abc", true)]
    #[case::longer("abc", "abcd", false)]
    #[case::star("openshift-*", "openshift-dns", true)]
    #[case::empty_star("openshift-*", "openshift-", true)]
    #[case::two_stars("*-exporter-*", "node-exporter-x7-exporter-y", true)]
    #[case::star_at_the_end_only("*", "", true)]
    #[case::star_and_slash("*", "a/b", false)]
    #[case::backtracking("a*b*c", "aXbXbXc", true)]
    #[case::no_way("a*b*c", "aXbX", false)]
    #[case::question("pod-?", "pod-1", true)]
    #[case::question_needs_one("pod-?", "pod-", false)]
    #[case::class("pod-[0-9]", "pod-7", true)]
    #[case::class_miss("pod-[0-9]", "pod-x", false)]
    #[case::negated("pod-[^0-9]", "pod-x", true)]
    #[case::escape("a\\*", "a*", true)]
    #[case::escape_is_no_star("a\\*", "ab", false)]
    #[case::empty("", "x", false)]
    fn pattern_matches_as_in_go(#[case] pattern: &str, #[case] name: &str, #[case] expected: bool) {
        assert_eq!(Pattern::new(pattern).unwrap().matches(name), expected);
    }

    #[rstest]
    #[case::open_class("[a")]
    #[case::empty_class("[]a]")]
    #[case::open_range("[a-]")]
    #[case::lone_escape("a\\")]
    fn unfinished_patterns_are_refused(#[case] pattern: &str) {
        assert_eq!(Pattern::new(pattern), Err(Error(pattern.to_owned())));
    }
}
