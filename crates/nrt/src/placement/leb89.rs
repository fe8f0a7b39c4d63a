//! LEB89: integers as printable ASCII that needs no escaping in JSON, YAML or HTML (rte.md 7.2).
//!
//! The alphabet has 89 symbols in code order: the first 64 end a number, the last 25 continue it. A number below 64 is one
//! symbol. A larger one is `64 + q * 64 + t`, written as `q` in base 25 (most significant digit first, at least one digit, with
//! continuation symbols), followed by the terminal symbol for `t`.

/// Symbols that end a number; a symbol's index is the digit.
const TERMINALS: &[u8; 64] = b"!#$%'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcde";
/// Symbols that continue a number; a symbol's index is the digit.
const CONTINUATIONS: &[u8; 25] = b"fghijklmnopqrstuvwxyz{|}~";
/// How many numbers one terminal symbol can represent.
const BASE: u64 = 64;
/// Base of the continuation digits.
const HIGH_BASE: u64 = 25;

/// Why a text is not a sequence of LEB89 numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// A byte outside the alphabet.
    #[error("byte {0:#04x} is not a LEB89 symbol")]
    UnknownSymbol(u8),
    /// The text ends within a number.
    #[error("the last number is incomplete")]
    Incomplete,
    /// A number that exceeds 64 bits.
    #[error("a number is too large")]
    Overflow,
}

/// Appends `value` to `text`.
pub fn push(text: &mut String, value: u64) {
    let Some(above) = value.checked_sub(BASE) else {
        text.push(char::from(TERMINALS[value as usize]));
        return;
    };
    let mut high = above / BASE;
    let mut digits = vec![high % HIGH_BASE];
    high /= HIGH_BASE;
    while high > 0 {
        digits.push(high % HIGH_BASE);
        high /= HIGH_BASE;
    }
    for digit in digits.iter().rev() {
        text.push(char::from(CONTINUATIONS[*digit as usize]));
    }
    text.push(char::from(TERMINALS[(above % BASE) as usize]));
}

/// Parses all numbers of `text`.
///
/// # Errors
/// When a byte is not in the alphabet, the text ends within a number, or a number exceeds 64 bits.
pub fn decode(text: &str) -> Result<Vec<u64>, DecodeError> {
    let mut values = Vec::new();
    let mut high: Option<u64> = None;
    for byte in text.bytes() {
        if let Some(digit) = position(TERMINALS, byte) {
            values.push(match high.take() {
                None => digit,
                Some(high) => high
                    .checked_mul(BASE)
                    .and_then(|value| value.checked_add(BASE + digit))
                    .ok_or(DecodeError::Overflow)?,
            });
        } else if let Some(digit) = position(CONTINUATIONS, byte) {
            high = Some(
                high.unwrap_or(0)
                    .checked_mul(HIGH_BASE)
                    .and_then(|value| value.checked_add(digit))
                    .ok_or(DecodeError::Overflow)?,
            );
        } else {
            return Err(DecodeError::UnknownSymbol(byte));
        }
    }
    if high.is_some() {
        return Err(DecodeError::Incomplete);
    }
    Ok(values)
}

fn position(symbols: &[u8], byte: u8) -> Option<u64> {
    symbols
        .iter()
        .position(|symbol| *symbol == byte)
        .map(|index| index as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "!")]
    #[case(1, "#")]
    #[case(63, "e")]
    #[case(64, "f!")]
    #[case(65, "f#")]
    #[case(127, "fe")]
    #[case(128, "g!")]
    #[case(1663, "~e")]
    #[case(1664, "gf!")]
    #[case(1665, "gf#")]
    #[case(40063, "~~e")]
    #[case(40064, "gff!")]
    #[case(2_147_483_647, "ip|rhke")]
    fn vectors_of_the_original(#[case] value: u64, #[case] text: &str) {
        let mut encoded = String::new();
        push(&mut encoded, value);
        assert_eq!(encoded, text);
        assert_eq!(decode(text), Ok(vec![value]));
    }

    #[rstest]
    #[case::quote("\"", DecodeError::UnknownSymbol(b'"'))]
    #[case::beyond_ascii("é", DecodeError::UnknownSymbol(0xc3))]
    #[case::cut("#f", DecodeError::Incomplete)]
    #[case::too_large("~~~~~~~~~~~~~~~~!", DecodeError::Overflow)]
    fn bad_texts_are_refused(#[case] text: &str, #[case] expected: DecodeError) {
        assert_eq!(decode(text), Err(expected));
    }

    proptest! {
        #[test]
        fn sequences_read_back(values in proptest::collection::vec(any::<u64>().prop_map(|v| v / 4), 0..20)) {
            let mut text = String::new();
            for value in &values {
                push(&mut text, *value);
            }
            prop_assert_eq!(decode(&text), Ok(values));
        }
    }
}
