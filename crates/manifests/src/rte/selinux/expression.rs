//! Parenthesised expressions of words, with comments from `;` to the end of the line.

/// A policy has four levels. Deeper ones are refused, so that no text can exhaust the stack.
const MAX_DEPTH: usize = 8;

/// A word, or expressions in parentheses.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Atom(String),
    List(Vec<Self>),
}

impl Expression {
    /// Returns the word; `None` for a list.
    pub(super) fn atom(&self) -> Option<&str> {
        match self {
            Self::Atom(word) => Some(word),
            Self::List(_) => None,
        }
    }

    /// Returns the words of a list of words; `None` for anything else.
    pub(super) fn atoms(&self) -> Option<Vec<&str>> {
        match self {
            Self::Atom(_) => None,
            Self::List(items) => items.iter().map(Self::atom).collect(),
        }
    }
}

/// Reads all expressions of a text. `None` if parentheses are not balanced or too deep.
pub(super) fn parse(text: &str) -> Option<Vec<Expression>> {
    let mut open: Vec<Vec<Expression>> = vec![Vec::new()];
    for line in text.lines() {
        let code = line.split(';').next().unwrap_or_default();
        let spaced = code.replace('(', " ( ").replace(')', " ) ");
        for word in spaced.split_whitespace() {
            match word {
                "(" if open.len() > MAX_DEPTH => return None,
                "(" => open.push(Vec::new()),
                ")" => {
                    let done = open.pop()?;
                    open.last_mut()?.push(Expression::List(done));
                }
                word => open.last_mut()?.push(Expression::Atom(word.to_owned())),
            }
        }
    }
    let all = open.pop()?;
    open.is_empty().then_some(all)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn comments_and_spaces_do_not_matter() {
        let expected = parse("(a(b c))").unwrap();
        assert_eq!(parse("(a ; ) no\n\t( b\n c ) )"), Some(expected));
    }

    #[rstest]
    #[case::not_closed("(a (b)".to_owned())]
    #[case::closed_twice("(a))".to_owned())]
    #[case::too_deep("(".repeat(100_000))]
    fn what_is_not_balanced_is_refused(#[case] text: String) {
        assert_eq!(parse(&text), None);
    }
}
