use rstest::rstest;

use super::*;

/// Encodes a field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, bytes.len() as u8];
    out.extend(bytes);
    out
}

/// Encodes a field of bytes with a number of two bytes.
fn long_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let key = u16::from(number) << 3 | 2;
    let mut out = vec![
        (key & 0x7f) as u8 | 0x80,
        (key >> 7) as u8,
        bytes.len() as u8,
    ];
    out.extend(bytes);
    out
}

fn long_property(name: &[u8], schema: &[u8]) -> Vec<u8> {
    long_field(29, &[field(1, name), field(2, schema)].concat())
}

fn double_field(number: u8, value: f64) -> Vec<u8> {
    let mut out = vec![number << 3 | 1];
    out.extend(value.to_le_bytes());
    out
}

fn body(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
}

#[test]
fn a_config_map_is_read() {
    let entry = [field(1, b"a"), field(2, b"b")].concat();
    let created = field(8, &[]);
    let meta = [field(1, b"c"), field(2, b""), created].concat();
    let raw = [field(1, &meta), field(2, &entry)].concat();
    assert_eq!(
        decode(&body("v1", "ConfigMap", &raw)),
        Ok(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}})
        )
    );
}

#[test]
fn zeros_that_somebody_gave_stay() {
    // replicas, an optional number, and an inlined volume source
    let spec = [0x08, 0x00];
    let raw = field(2, &spec);
    assert_eq!(
        decode(&body("apps/v1", "Deployment", &raw)).unwrap()["spec"],
        json!({"replicas": 0})
    );
    let volume = [field(1, b"v"), field(2, &field(2, &[]))].concat();
    let raw = field(2, &field(1, &volume));
    assert_eq!(
        decode(&body("v1", "Pod", &raw)).unwrap()["spec"]["volumes"],
        json!([{"name": "v", "emptyDir": {}}])
    );
}

#[test]
fn schemas_of_definitions_are_read_in_all_their_forms() {
    let schema = |kind: &[u8]| field(5, kind);
    let items = [
        schema(b"array"),
        long_field(24, &field(1, &schema(b"string"))),
    ]
    .concat();
    let open = [schema(b"object"), long_field(30, &[0x08, 0x01])].concat();
    let closed = [
        schema(b"object"),
        long_field(30, &field(2, &schema(b"integer"))),
    ]
    .concat();
    let limits = [
        schema(b"number"),
        double_field(9, 1.0),
        field(8, &field(1, b"{\"a\":1}")),
    ]
    .concat();
    let whole = [
        schema(b"object"),
        long_property(b"items", &items),
        long_property(b"open", &open),
        long_property(b"closed", &closed),
        long_property(b"limits", &limits),
    ]
    .concat();
    assert_eq!(
        value(SCHEMA, &Wire::Bytes(&whole), 0),
        Ok(json!({"type": "object", "properties": {
            "items": {"type": "array", "items": {"type": "string"}},
            "open": {"type": "object", "additionalProperties": true},
            "closed": {"type": "object", "additionalProperties": {"type": "integer"}},
            "limits": {"type": "number", "maximum": 1, "default": {"a": 1}},
        }}))
    );
}

#[rstest]
#[case(b"json", Error::NoMagic)]
#[case(b"k8s\0\x0a\xff", Error::Malformed)]
#[case(b"k8s\0", Error::UnknownKind { version: String::new(), kind: String::new() })]
fn what_cannot_be_read_is_refused(#[case] bytes: &[u8], #[case] error: Error) {
    assert_eq!(decode(bytes), Err(error));
}

#[rstest]
#[case(0, "0s")]
#[case(90_000_000_000, "1m30s")]
#[case(3_600_000_000_000, "1h0m0s")]
#[case(1_500_000, "1.5ms")]
#[case(-2_500_000_000, "-2.5s")]
fn durations_are_written_as_in_go(#[case] nanoseconds: i64, #[case] text: &str) {
    assert_eq!(duration(nanoseconds), text);
}

mod fuzz {
    use super::*;

    #[test]
    fn no_message_stops_the_reader() {
        let label = field(11, &[field(1, b"app"), field(2, b"a")].concat());
        let meta = [field(1, b"name"), field(3, b"ns"), label].concat();
        let amount = [field(1, b"cpu"), field(2, &field(1, b"1500m"))].concat();
        let resources = field(8, &field(1, &amount));
        let container = [field(1, b"app"), field(2, b"image"), resources].concat();
        let raw = [field(1, &meta), field(2, &field(2, &container))].concat();
        let seed = body("v1", "Pod", &raw);
        assert!(decode(&seed).is_ok(), "{:?}", decode(&seed));
        ::fuzz::run(file!(), |input| {
            let mut message = seed.clone();
            for _ in 0..input.int_in_range(0..=8)? {
                let at = input.choose_index(message.len())?;
                match input.int_in_range(0..=3)? {
                    0 => message.truncate(at.max(MAGIC.len())),
                    1 => message.insert(at, input.arbitrary()?),
                    _ => message[at] = input.arbitrary()?,
                }
            }
            drop(decode(&message));
            Ok(())
        });
    }
}
