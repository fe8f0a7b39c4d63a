//! Positions in the text of an expression. They are found here, because the parser reports positions only for texts that it cannot parse.

use std::fmt::Write as _;

/// A token and its position: line from 1, character from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
    column: usize,
}

/// How large an expression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Deepest nesting: brackets within brackets, and choices, the last part of which may be another choice.
    pub(crate) depth: usize,
    /// Number of tokens.
    pub(crate) tokens: usize,
}

impl Size {
    /// Returns the size of an expression.
    pub(crate) fn of(text: &str) -> Self {
        let tokens = tokens(text);
        let (mut depth, mut open, mut choices) = (0, 0_usize, 0);
        for token in &tokens {
            match token.text.as_str() {
                "?" => choices += 1,
                "(" | "[" | "{" => open += 1,
                ")" | "]" | "}" => open = open.saturating_sub(1),
                _ => {}
            }
            depth = depth.max(open + choices);
        }
        Self {
            depth,
            tokens: tokens.len(),
        }
    }
}

/// The tokens of an expression, read from left to right in the order in which its tree is walked.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    next: usize,
}

/// A position in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// Line, from 1.
    pub(crate) line: usize,
    /// Character, from 0.
    pub(crate) column: usize,
}

impl<'a> Source<'a> {
    /// Makes the source of an expression.
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            tokens: tokens(text),
            next: 0,
        }
    }

    /// Returns the position of the next occurrence of consecutive tokens, and moves past it.
    pub(crate) fn find(&mut self, parts: &[&str]) -> Position {
        let found = (self.next..self.tokens.len()).find(|start| {
            let here = &self.tokens[*start..];
            here.len() >= parts.len()
                && here
                    .iter()
                    .zip(parts)
                    .all(|(token, part)| token.text == *part)
        });
        let Some(start) = found else {
            return Position { line: 1, column: 0 };
        };
        self.next = start + parts.len();
        let token = &self.tokens[start];
        Position {
            line: token.line,
            column: token.column,
        }
    }

    /// Returns the position of the next constant, and moves past it.
    pub(crate) fn pass_constant(&mut self) -> Position {
        let rest = self.tokens.iter().skip(self.next);
        self.next += rest.take_while(|token| !is_constant(&token.text)).count();
        let found = self.tokens.get(self.next);
        self.next = (self.next + 1).min(self.tokens.len());
        found.map_or(Position { line: 1, column: 0 }, |token| Position {
            line: token.line,
            column: token.column,
        })
    }

    /// Returns an error message with the line where it occurred.
    pub(crate) fn show(&self, at: Position, what: &str) -> String {
        show(self.text, at, what)
    }
}

/// Rewrites a rule whose old value may be missing: Kubernetes' rules see it as an optional value, the interpreter as null.
pub(crate) fn with_optional_old_self(rule: &str) -> String {
    const OPTIONAL: &str = "(oldSelf == null ? optional.none() : optional.of(oldSelf))";
    let mut lines: Vec<Vec<char>> = rule
        .split('\n')
        .map(|line| line.chars().collect())
        .collect();
    let tokens = tokens(rule);
    for (index, token) in tokens.iter().enumerate().rev() {
        let is_field = index > 0 && tokens[index - 1].text == ".";
        if token.text == "oldSelf" && !is_field {
            let line = &mut lines[token.line - 1];
            line.splice(
                token.column..token.column + token.text.len(),
                OPTIONAL.chars(),
            );
        }
    }
    let lines: Vec<String> = lines
        .into_iter()
        .map(|line| line.into_iter().collect())
        .collect();
    lines.join("\n")
}

/// Returns an error in a text as Go's compiler shows it.
pub(crate) fn show(text: &str, at: Position, what: &str) -> String {
    let mut shown = format!("ERROR: <input>:{}:{}: {what}", at.line, at.column + 1);
    if let Some(line) = text.split('\n').nth(at.line.saturating_sub(1)) {
        // writing to a `String` cannot fail
        let _ = write!(shown, "\n | {line}\n | {}^", ".".repeat(at.column));
    }
    shown
}

fn is_constant(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_digit() || c == '"' || c == '\'')
        || ["true", "false", "null"].contains(&token)
}

fn tokens(text: &str) -> Vec<Token> {
    const DOUBLE: [&str; 7] = ["&&", "||", "==", "!=", "<=", ">=", "?."];
    let letters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut index, mut line, mut start) = (0, 1, 0);
    while let Some(&letter) = letters.get(index) {
        let from = index;
        let at = |offset: usize| letters.get(from + offset).copied();
        if letter == '\n' {
            line += 1;
            start = index + 1;
            index += 1;
            continue;
        }
        if letter.is_whitespace() {
            index += 1;
            continue;
        }
        if letter == '/' && at(1) == Some('/') {
            index += letters[index..].iter().take_while(|c| **c != '\n').count();
            continue;
        }
        let pair: String = letters[from..letters.len().min(from + 2)].iter().collect();
        index += if letter == '"' || letter == '\'' {
            quoted(&letters[from..])
        } else if letter.is_alphabetic() || letter == '_' {
            let name = letters[from..].iter();
            name.take_while(|c| c.is_alphanumeric() || **c == '_')
                .count()
        } else if letter.is_ascii_digit() {
            let number = letters[from..].iter();
            number
                .take_while(|c| c.is_alphanumeric() || **c == '.')
                .count()
        } else if DOUBLE.contains(&pair.as_str()) {
            2
        } else {
            1
        };
        tokens.push(Token {
            text: letters[from..index].iter().collect(),
            line,
            column: from - start,
        });
    }
    tokens
}

/// Returns the length of a quoted text, from its first quote.
fn quoted(letters: &[char]) -> usize {
    let quote = letters[0];
    let triple = letters.len() > 2 && letters[1] == quote && letters[2] == quote;
    let width = if triple { 3 } else { 1 };
    let mut index = width;
    while index < letters.len() {
        if letters[index] == '\\' {
            index += 2;
        } else if letters[index..]
            .iter()
            .take(width)
            .filter(|c| **c == quote)
            .count()
            == width
        {
            return index + width;
        } else {
            index += 1;
        }
    }
    letters.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_from_left_to_right() {
        let mut source = Source::new("a.b == 'a.b' &&\n  c.b");
        assert_eq!(source.find(&[".", "b"]), Position { line: 1, column: 1 });
        source.pass_constant();
        assert_eq!(source.find(&[".", "b"]), Position { line: 2, column: 3 });
    }

    #[test]
    fn a_past_that_may_be_missing_is_optional() {
        assert_eq!(
            with_optional_old_self("'oldSelf' == self.oldSelf || oldSelf.hasValue()"),
            "'oldSelf' == self.oldSelf || (oldSelf == null ? optional.none() : optional.of(oldSelf)).hasValue()"
        );
    }

    #[test]
    fn errors_are_shown_below_their_line() {
        let at = Position { line: 2, column: 1 };
        assert_eq!(
            show("a\nb.c", at, "undefined field 'c'"),
            "ERROR: <input>:2:2: undefined field 'c'\n | b.c\n | .^"
        );
    }
}
