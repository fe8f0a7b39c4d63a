//! Label selectors in the form of a query: `a=b,c!=d,e in (f,g),!h,i`.

use std::collections::BTreeSet;

use super::names;

/// The condition of a requirement on a label's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Word,
    In,
    NotIn,
    Equal,
    DoubleEqual,
    Unequal,
    Above,
    Below,
    Not,
    Open,
    Close,
    Comma,
    End,
}

type Token<'a> = (Kind, &'a str);

fn special(text: &str) -> Option<Kind> {
    Some(match text {
        ")" => Kind::Close,
        "," => Kind::Comma,
        "!" => Kind::Not,
        "==" => Kind::DoubleEqual,
        "=" => Kind::Equal,
        ">" => Kind::Above,
        "<" => Kind::Below,
        "!=" => Kind::Unequal,
        "(" => Kind::Open,
        _ => return None,
    })
}

fn is_special(c: char) -> bool {
    "=!(),><".contains(c)
}

fn is_space(c: char) -> bool {
    " \t\r\n".contains(c)
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut list = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        let (token, length) = if is_special(first) {
            // the longest operator wins; operators have at most two characters
            let two = rest.get(..2).and_then(special).map(|kind| (kind, 2));
            let (kind, length) = two
                .or_else(|| rest.get(..1).and_then(special).map(|kind| (kind, 1)))
                .unwrap_or((Kind::End, 1));
            ((kind, &rest[..length]), length)
        } else {
            let length = rest
                .find(|c| is_special(c) || is_space(c))
                .unwrap_or(rest.len());
            let word = &rest[..length];
            let kind = match word {
                "in" => Kind::In,
                "notin" => Kind::NotIn,
                _ => Kind::Word,
            };
            ((kind, word), length)
        };
        list.push(token);
        rest = rest[length..].trim_start_matches(is_space);
    }
    list
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
}

/// Parses the requirements of a selector; the error says why it is not valid.
pub(super) fn parse(text: &str) -> Result<Vec<(String, Operator)>, String> {
    let mut parser = Parser {
        tokens: tokens(text),
        next: 0,
    };
    let mut list = Vec::new();
    loop {
        match parser.peek() {
            (Kind::Word | Kind::Not, _) => {
                let requirement = parser
                    .requirement()
                    .map_err(|why| format!("unable to parse requirement: {why}"))?;
                list.push(requirement);
                match parser.take() {
                    (Kind::End, _) => return Ok(list),
                    (Kind::Comma, _) => {
                        let (kind, found) = parser.peek();
                        if !matches!(kind, Kind::Word | Kind::Not) {
                            return Err(format!("found '{found}', expected: identifier after ','"));
                        }
                    }
                    (_, found) => {
                        return Err(format!("found '{found}', expected: ',' or 'end of string'"));
                    }
                }
            }
            (Kind::End, _) => return Ok(list),
            (_, found) => {
                return Err(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                ));
            }
        }
    }
}

impl<'a> Parser<'a> {
    /// Returns the next token; `in` and `notin` count as words.
    fn peek(&self) -> Token<'a> {
        match self.tokens.get(self.next).copied() {
            Some((Kind::In | Kind::NotIn, text)) => (Kind::Word, text),
            Some(token) => token,
            None => (Kind::End, ""),
        }
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next += 1;
        token
    }

    /// Takes the next token as an operator.
    fn take_operator(&mut self) -> Token<'a> {
        let token = self.tokens.get(self.next).copied();
        self.next += 1;
        token.unwrap_or((Kind::End, ""))
    }

    fn requirement(&mut self) -> Result<(String, Operator), String> {
        let (mut kind, mut key) = self.take();
        let absent = kind == Kind::Not;
        if absent {
            (kind, key) = self.take();
        }
        if kind != Kind::Word {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let faults = names::label_key(key);
        if !faults.is_empty() {
            return Err(format!(
                "<nil>: Invalid value: {key:?}: {}",
                faults.join("; ")
            ));
        }
        if absent {
            return Ok((key.to_owned(), Operator::Absent));
        }
        if matches!(self.peek().0, Kind::End | Kind::Comma) {
            return Ok((key.to_owned(), Operator::Exists));
        }
        let (kind, found) = self.take_operator();
        let values = match kind {
            Kind::In | Kind::NotIn => self.values()?,
            Kind::Equal | Kind::DoubleEqual | Kind::Unequal | Kind::Above | Kind::Below => {
                BTreeSet::from([self.value()?])
            }
            _ => {
                return Err(format!(
                    "found '{found}', expected: in, notin, =, ==, !=, gt, lt"
                ));
            }
        };
        Self::operator(key, kind, values).map(|operator| (key.to_owned(), operator))
    }

    fn operator(key: &str, kind: Kind, values: BTreeSet<String>) -> Result<Operator, String> {
        let mut faults = Vec::new();
        let number = values.first().and_then(|value| value.parse().ok());
        if matches!(kind, Kind::Above | Kind::Below) && number.is_none() {
            let value = values.first().map_or("", String::as_str);
            faults.push(format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            ));
        }
        for (index, value) in values.iter().enumerate() {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                faults.push(format!(
                    "values[{index}][{key}]: Invalid value: {value:?}: {}",
                    wrong.join("; ")
                ));
            }
        }
        match faults.as_slice() {
            [] => {}
            [one] => return Err(one.clone()),
            many => return Err(format!("[{}]", many.join(", "))),
        }
        let number = number.unwrap_or_default();
        Ok(match kind {
            Kind::Above => Operator::Above(number),
            Kind::Below => Operator::Below(number),
            Kind::NotIn | Kind::Unequal => Operator::NotIn(values),
            _ => Operator::In(values),
        })
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek().0, Kind::End | Kind::Comma) {
            return Ok(String::new());
        }
        match self.take() {
            (Kind::Word, value) => Ok(value.to_owned()),
            (_, found) => Err(format!("found '{found}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (kind, found) = self.take();
        if kind != Kind::Open {
            return Err(format!("found '{found}' expected: '('"));
        }
        let (kind, found) = self.peek();
        match kind {
            Kind::Close => {
                self.next += 1;
                return Ok(BTreeSet::from([String::new()]));
            }
            Kind::Word | Kind::Comma => {}
            _ => {
                return Err(format!("found '{found}', expected: ',', ')' or identifier"));
            }
        }
        let mut values = BTreeSet::new();
        loop {
            match self.take() {
                (Kind::Word, value) => {
                    values.insert(value.to_owned());
                    match self.peek() {
                        (Kind::Comma, _) => {}
                        (Kind::Close, _) => break,
                        (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
                    }
                }
                (Kind::Comma, _) => {
                    // a comma without a value before or after it stands for the empty value
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek().0 {
                        Kind::Close => {
                            values.insert(String::new());
                            break;
                        }
                        Kind::Comma => drop(values.insert(String::new())),
                        _ => {}
                    }
                }
                (_, found) => return Err(format!("found '{found}', expected: ',', or identifier")),
            }
        }
        self.next += 1;
        Ok(values)
    }
}
