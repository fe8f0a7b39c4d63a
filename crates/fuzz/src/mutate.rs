//! Changes valid documents and texts in a few places.

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

/// Largest number of changes in one document.
const CHANGES: u32 = 6;
/// Largest number of copies that a change makes of an element.
const COPIES: usize = 70;

/// Texts at the edge of what fields take: amounts, names, numbers, paths, versions.
const TEXTS: &[&str] = &[
    "",
    " ",
    "0",
    "-0",
    "1",
    "-1",
    "1.5",
    "100m",
    "1n",
    "8Ei",
    "9Ei",
    "16Ei",
    "1e30",
    "1E-30",
    "0.000000001",
    "+5",
    "NaN",
    "1Ki1",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999999999999999",
    "cpu",
    "memory",
    "pods",
    "hugepages-1Gi",
    "hugepages-2Mi",
    "ephemeral-storage",
    "vendor.example/device",
    "a/b/c",
    "/",
    "..",
    "../../etc/passwd",
    "node-0",
    "node-1",
    "node-63",
    "node-64",
    "node-18446744073709551615",
    "node--1",
    "node-00",
    "Node",
    "node-a",
    "pfp0v001",
    "pfp0v0010123456789abcdef",
    "pfp0v002",
    "none",
    "single-numa-node",
    "restricted",
    "best-effort",
    "container",
    "pod",
    "a",
    "b",
    "c",
    "topo",
    "ns",
    "default",
    "kube-system",
    "Pending",
    "Running",
    "Failed",
    "Succeeded",
    "Guaranteed",
    "BestEffort",
    "true",
    "false",
    "null",
    "0s",
    "-1s",
    "1h1m1s1ms1us1ns",
    "9223372036854775807ns",
    "9999999999h",
    "2026-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "\u{0}",
    "\u{feff}",
    "ä€😀",
    "*",
    "[a-",
    "{{",
    "%s%n",
    "<script>",
    "0-3",
    "3-0",
    "0-4294967295",
    "0,1,2,",
    "NoSchedule",
    "NoExecute",
    "Exists",
    "DoesNotExist",
    "In",
    "NotIn",
    "Gt",
    "Lt",
];

/// Numbers at the edge of what fields take.
const NUMBERS: &[i64] = &[
    0,
    1,
    -1,
    2,
    63,
    64,
    65,
    100,
    255,
    256,
    65_535,
    65_536,
    2_147_483_647,
    -2_147_483_648,
    4_294_967_296,
    i64::MAX,
    i64::MIN,
];

/// Changes a document in a few places.
///
/// # Errors
/// When the input has too few bytes.
pub fn document(value: &mut Value, input: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..input.int_in_range(0..=CHANGES)? {
        change_somewhere(value, input)?;
    }
    Ok(())
}

/// Goes down into the document, and changes the place where it stops.
fn change_somewhere(value: &mut Value, input: &mut Unstructured<'_>) -> Result<()> {
    // one in eight stops above the leaves
    let stops = input.ratio(1, 8)?;
    match value {
        Value::Object(fields) if !stops && !fields.is_empty() => {
            let chosen = input.choose_index(fields.len())?;
            match fields.values_mut().nth(chosen) {
                Some(field) => change_somewhere(field, input),
                None => Ok(()),
            }
        }
        Value::Array(elements) if !stops && !elements.is_empty() => {
            let chosen = input.choose_index(elements.len())?;
            change_somewhere(&mut elements[chosen], input)
        }
        _ => change(value, input),
    }
}

fn change(value: &mut Value, input: &mut Unstructured<'_>) -> Result<()> {
    match (input.int_in_range(0..=7)?, &mut *value) {
        (0 | 1, Value::Object(fields)) => remove(fields, input)?,
        (2, Value::Object(fields)) => {
            let name = (*input.choose(TEXTS)?).to_owned();
            fields.insert(name, extreme(input)?);
        }
        (3, Value::Object(fields)) => rename(fields, input)?,
        (0 | 1, Value::Array(elements)) if !elements.is_empty() => {
            let element = elements[input.choose_index(elements.len())?].clone();
            let copies = input.int_in_range(1..=COPIES)?;
            elements.extend(std::iter::repeat_n(element, copies));
        }
        (2, Value::Array(elements)) if !elements.is_empty() => {
            elements.remove(input.choose_index(elements.len())?);
        }
        (3, Value::Array(elements)) => elements.reverse(),
        (0..=4, Value::String(text)) => (*input.choose(TEXTS)?).clone_into(text),
        (0..=4, Value::Number(_)) => *value = json!(input.choose(NUMBERS)?),
        _ => *value = extreme(input)?,
    }
    Ok(())
}

fn remove(fields: &mut Map<String, Value>, input: &mut Unstructured<'_>) -> Result<()> {
    if fields.is_empty() {
        return Ok(());
    }
    let chosen = input.choose_index(fields.len())?;
    if let Some(name) = fields.keys().nth(chosen).cloned() {
        fields.remove(&name);
    }
    Ok(())
}

/// Gives the value of one field to another name.
fn rename(fields: &mut Map<String, Value>, input: &mut Unstructured<'_>) -> Result<()> {
    if fields.is_empty() {
        return Ok(());
    }
    let chosen = input.choose_index(fields.len())?;
    let name = (*input.choose(TEXTS)?).to_owned();
    if let Some((_, value)) = fields.iter().nth(chosen) {
        let value = value.clone();
        fields.insert(name, value);
    }
    Ok(())
}

/// Draws a value at the edge of what fields take.
fn extreme(input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match input.int_in_range(0..=9)? {
        0 => Value::Null,
        1 => json!(input.arbitrary::<bool>()?),
        2 | 3 => json!(input.choose(NUMBERS)?),
        4 => json!(u64::MAX),
        5 => json!(*input.choose(&[0.5, -0.5, 1e300, f64::MIN_POSITIVE])?),
        6 => json!("x".repeat(input.int_in_range(1..=4096)?)),
        7 => json!([]),
        8 => json!({}),
        _ => json!(input.choose(TEXTS)?),
    })
}

/// Changes a text in a few places: pieces are cut, repeated, or replaced by extreme ones.
///
/// # Errors
/// When the input has too few bytes.
pub fn text(text: &str, input: &mut Unstructured<'_>) -> Result<String> {
    let mut text = text.to_owned();
    for _ in 0..input.int_in_range(0..=CHANGES)? {
        let (begin, end) = (place(&text, input)?, place(&text, input)?);
        let (begin, end) = (begin.min(end), begin.max(end));
        let piece = text[begin..end].to_owned();
        let new = match input.int_in_range(0..=3)? {
            0 => String::new(),
            1 => piece.repeat(
                input
                    .int_in_range(2..=COPIES)?
                    .min(4096 / piece.len().max(1) + 2),
            ),
            2 => (*input.choose(TEXTS)?).to_owned(),
            _ => input.arbitrary::<char>()?.to_string(),
        };
        text.replace_range(begin..end, &new);
    }
    Ok(text)
}

/// Draws a place between two characters.
fn place(text: &str, input: &mut Unstructured<'_>) -> Result<usize> {
    let mut place = input.int_in_range(0..=text.len())?;
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_inputs_make_equal_documents_and_other_inputs_others() {
        let made = |seed: u8| {
            let bytes: Vec<u8> = (0..200_u8).map(|at| at.wrapping_mul(31) ^ seed).collect();
            let mut value = json!({"a": [1, 2, {"b": "c"}], "d": {"e": "f"}});
            document(&mut value, &mut Unstructured::new(&bytes)).expect("enough bytes");
            value
        };
        assert_eq!(made(3), made(3));
        let all: std::collections::BTreeSet<String> =
            (0..100).map(|seed| made(seed).to_string()).collect();
        assert!(all.len() > 50, "{all:?}");
    }
}
