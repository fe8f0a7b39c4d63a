use std::collections::BTreeSet;

use regex::RegexBuilder;

use super::{Expression, ParseError, SetOperation};

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Regex(String),
    Label(String),
    Set {
        key: String,
        operation: String,
        values: Vec<String>,
    },
}

impl Token {
    fn text(&self) -> String {
        match self {
            Self::Open => "(".to_owned(),
            Self::Close => ")".to_owned(),
            Self::And => "&&".to_owned(),
            Self::Or => "||".to_owned(),
            Self::Not => "!".to_owned(),
            Self::Regex(pattern) => format!("/{pattern}/"),
            Self::Label(label) => label.clone(),
            Self::Set { key, operation, .. } => format!("{key}: {operation}"),
        }
    }
}

pub(super) fn expression(text: &str) -> Result<Expression, ParseError> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens,
        at: 0,
        end: text.chars().count() + 1,
        cost: 0,
    };
    let expression = parser.any()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expression),
        Some((column, token)) => Err(ParseError::Unexpected {
            found: token.text(),
            column: *column,
        }),
    }
}

/// What an expression may cost: each level takes a part of the stack, here and when labels are compared.
const BUDGET: usize = 2_000;
/// Cost of an operator between two parts.
const LINK: usize = 1;
/// Cost of a bracket or a negation.
const NESTED: usize = 20;

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    end: usize,
    cost: usize,
}

impl Parser {
    fn next_is(&mut self, token: &Token) -> bool {
        let is = self
            .tokens
            .get(self.at)
            .is_some_and(|(_, next)| next == token);
        self.at += usize::from(is);
        is
    }

    fn column(&self) -> usize {
        self.tokens
            .get(self.at)
            .map_or(self.end, |(column, _)| *column)
    }

    /// Refuses an expression that has become too large.
    fn deeper(&mut self, cost: usize) -> Result<(), ParseError> {
        self.cost += cost;
        if self.cost > BUDGET {
            return Err(ParseError::TooLarge {
                column: self.column(),
            });
        }
        Ok(())
    }

    fn any(&mut self) -> Result<Expression, ParseError> {
        let mut left = self.all()?;
        while self.next_is(&Token::Or) {
            self.deeper(LINK)?;
            left = Expression::Or(Box::new(left), Box::new(self.all()?));
        }
        Ok(left)
    }

    fn all(&mut self) -> Result<Expression, ParseError> {
        let mut left = self.one()?;
        while self.next_is(&Token::And) {
            self.deeper(LINK)?;
            left = Expression::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Expression, ParseError> {
        if self.next_is(&Token::Not) {
            self.deeper(NESTED)?;
            return Ok(Expression::Not(Box::new(self.one()?)));
        }
        if self.next_is(&Token::Open) {
            self.deeper(NESTED)?;
            let inner = self.any()?;
            if !self.next_is(&Token::Close) {
                return Err(ParseError::Expected {
                    expected: "\")\"",
                    column: self.column(),
                });
            }
            return Ok(inner);
        }
        let column = self.column();
        let Some((_, token)) = self.tokens.get(self.at).cloned() else {
            return Err(ParseError::Expected {
                expected: "a label",
                column,
            });
        };
        self.at += 1;
        match token {
            Token::Label(label) => Ok(Expression::Label(label.to_lowercase())),
            Token::Regex(pattern) => match RegexBuilder::new(&pattern).build() {
                Ok(regex) => Ok(Expression::Matches(regex)),
                Err(error) => {
                    let reason = error
                        .to_string()
                        .lines()
                        .last()
                        .unwrap_or_default()
                        .to_owned();
                    Err(ParseError::Regex { pattern, reason })
                }
            },
            Token::Set {
                key,
                operation,
                values,
            } => {
                let values: BTreeSet<String> =
                    values.iter().map(|value| value.to_lowercase()).collect();
                Ok(Expression::Set {
                    key: key.to_lowercase(),
                    operation: set_operation(&operation)?,
                    values,
                })
            }
            other => Err(ParseError::Unexpected {
                found: other.text(),
                column,
            }),
        }
    }
}

fn set_operation(name: &str) -> Result<SetOperation, ParseError> {
    match name.to_lowercase().as_str() {
        "containsany" => Ok(SetOperation::ContainsAny),
        "containsall" => Ok(SetOperation::ContainsAll),
        "consistsof" => Ok(SetOperation::ConsistsOf),
        "issubsetof" => Ok(SetOperation::IsSubsetOf),
        "isempty" => Ok(SetOperation::IsEmpty),
        _ => Err(ParseError::SetOperation(name.to_owned())),
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ParseError> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let column = at + 1;
        let two = chars.get(at + 1).copied();
        match chars[at] {
            c if c.is_whitespace() => at += 1,
            '(' => push(&mut tokens, &mut at, column, Token::Open, 1),
            ')' => push(&mut tokens, &mut at, column, Token::Close, 1),
            '!' => push(&mut tokens, &mut at, column, Token::Not, 1),
            ',' => push(&mut tokens, &mut at, column, Token::Or, 1),
            '&' if two == Some('&') => push(&mut tokens, &mut at, column, Token::And, 2),
            '|' if two == Some('|') => push(&mut tokens, &mut at, column, Token::Or, 2),
            c @ ('&' | '|' | '{' | '}') => {
                return Err(ParseError::Unexpected {
                    found: c.to_string(),
                    column,
                });
            }
            '/' => {
                let Some(length) = chars[at + 1..].iter().position(|c| *c == '/') else {
                    return Err(ParseError::Expected {
                        expected: "\"/\"",
                        column: chars.len() + 1,
                    });
                };
                let pattern = chars[at + 1..at + 1 + length].iter().collect();
                push(
                    &mut tokens,
                    &mut at,
                    column,
                    Token::Regex(pattern),
                    length + 2,
                );
            }
            _ => {
                let length = chars[at..]
                    .iter()
                    .position(|c| "()!,&|/{}".contains(*c))
                    .unwrap_or(chars.len() - at);
                let word: String = chars[at..at + length].iter().collect();
                let word = word.trim_end();
                at += length;
                match set_head(word) {
                    None => tokens.push((column, Token::Label(word.to_owned()))),
                    Some((key, operation)) => {
                        let values = set_values(&chars, &mut at, &operation)?;
                        tokens.push((
                            column,
                            Token::Set {
                                key,
                                operation,
                                values,
                            },
                        ));
                    }
                }
            }
        }
    }
    Ok(tokens)
}

fn push(
    tokens: &mut Vec<(usize, Token)>,
    at: &mut usize,
    column: usize,
    token: Token,
    length: usize,
) {
    tokens.push((column, token));
    *at += length;
}

/// Splits `key: operation`. A colon followed by a blank makes a set; `key:value` is a label like any other.
fn set_head(word: &str) -> Option<(String, String)> {
    let (key, operation) = word.split_once(':')?;
    let trimmed = operation.trim();
    (operation.starts_with(char::is_whitespace) && !trimmed.is_empty())
        .then(|| (key.trim().to_owned(), trimmed.to_owned()))
}

/// Parses `{a, b}`, or one bare value after the operation (then still part of it), or nothing for `isEmpty`.
fn set_values(chars: &[char], at: &mut usize, operation: &str) -> Result<Vec<String>, ParseError> {
    if chars.get(*at) != Some(&'{') {
        return if operation.eq_ignore_ascii_case("isEmpty") || set_operation(operation).is_err() {
            Ok(Vec::new())
        } else {
            Err(ParseError::Expected {
                expected: "\"{\"",
                column: *at + 1,
            })
        };
    }
    let Some(length) = chars[*at..].iter().position(|c| *c == '}') else {
        return Err(ParseError::Expected {
            expected: "\"}\"",
            column: chars.len() + 1,
        });
    };
    let inner: String = chars[*at + 1..*at + length].iter().collect();
    *at += length + 1;
    Ok(inner
        .split(',')
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
        .collect())
}
