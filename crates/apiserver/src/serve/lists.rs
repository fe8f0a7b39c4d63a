//! Bodies of long lists. They are encoded while they are sent, so that many clients who list everything at once need little memory.

use std::sync::Arc;

use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::Value;

use super::answers::{Body, BodyError, text_body};
use crate::objects::custom::in_requested_version;
use crate::registry::Resource;
use crate::verbs::Page;

/// Approximate size of a chunk, in bytes.
const CHUNK_SIZE: usize = 128 * 1024;

/// A list that is being encoded.
struct ListEncoder {
    resource: Arc<Resource>,
    objects: std::vec::IntoIter<Arc<Value>>,
    /// Encoded text that is not sent yet.
    text: Vec<u8>,
    is_first: bool,
    is_finished: bool,
}

/// Returns the body of a list of whole objects.
pub(super) fn body(resource: Arc<Resource>, page: Page) -> Body {
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
        Value::from(resource.list_kind.as_str()),
        Value::from(resource.api_version()),
        page.metadata
    );
    let mut encoder = ListEncoder {
        resource,
        objects: page.objects.into_iter(),
        text: head.into_bytes(),
        is_first: true,
        is_finished: false,
    };
    let first = encoder.chunk();
    if encoder.is_finished {
        return text_body(first);
    }
    let chunks = stream::unfold((Some(first), encoder), |(ready, mut encoder)| async move {
        let chunk = match ready {
            Some(chunk) => chunk,
            None if encoder.is_finished => return None,
            None => encoder.chunk(),
        };
        // lets other tasks run between two chunks
        tokio::task::yield_now().await;
        Some((Ok::<_, BodyError>(Frame::data(chunk)), (None, encoder)))
    });
    StreamBody::new(chunks).boxed_unsync()
}

impl ListEncoder {
    fn chunk(&mut self) -> Bytes {
        while self.text.len() < CHUNK_SIZE {
            let Some(object) = self.objects.next() else {
                self.text.extend_from_slice(b"]}\n");
                self.is_finished = true;
                break;
            };
            if !std::mem::take(&mut self.is_first) {
                self.text.push(b',');
            }
            write_item(&self.resource, &object, &mut self.text);
        }
        Bytes::from(std::mem::take(&mut self.text))
    }
}

/// Encodes an object of a list. Built-in lists have the kind only once; lists of custom objects have it in each object, with the requested
/// version.
fn write_item(resource: &Resource, object: &Value, text: &mut Vec<u8>) {
    let object = in_requested_version(resource, object);
    let is_custom = resource.custom.is_some();
    text.push(b'{');
    let mut is_first = true;
    let mut field = |name: &str, value: &Value, text: &mut Vec<u8>| {
        if !std::mem::take(&mut is_first) {
            text.push(b',');
        }
        text.extend_from_slice(Value::from(name).to_string().as_bytes());
        text.push(b':');
        // writing to memory cannot fail, and the keys of a `Value` are strings
        let _ = serde_json::to_writer(&mut *text, value);
    };
    if is_custom {
        field("apiVersion", &Value::from(resource.api_version()), text);
        field("kind", &Value::from(resource.kind.as_str()), text);
    }
    for (name, value) in object.as_object().into_iter().flatten() {
        if name != "apiVersion" && name != "kind" {
            field(name, value, text);
        }
    }
    text.push(b'}');
}
