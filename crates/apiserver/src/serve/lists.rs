//! Bodies of long lists. They are encoded while they are sent, so that many clients who list everything at once need little memory.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::Value;

use super::answers::{Body, BodyError, text_body};
use crate::objects::views::{self, View};
use crate::registry::Resource;
use crate::storage::Object;
use crate::verbs::Page;

/// Approximate size of a chunk, in bytes.
const CHUNK_SIZE: usize = 128 * 1024;

/// A list that is being encoded.
struct ListEncoder {
    resource: Arc<Resource>,
    view: View,
    objects: std::vec::IntoIter<Arc<Object>>,
    /// Encoded text that is not sent yet.
    text: Vec<u8>,
    is_first: bool,
    is_finished: bool,
}

/// Returns the body of a list in a view.
pub(super) fn body(resource: Arc<Resource>, view: View, page: Page) -> Body {
    let frame = view.list(&resource, &page.metadata);
    let mut head = frame.fields.to_string();
    // the items come before the brace
    head.pop();
    let _ = write!(head, ",\"{}\":", frame.items);
    if page.objects.is_empty() {
        return text_body(format!("{head}{}}}\n", frame.empty));
    }
    head.push('[');
    let mut encoder = ListEncoder {
        resource,
        view,
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
            self.write_item(&object);
        }
        Bytes::from(std::mem::take(&mut self.text))
    }

    /// Encodes an object. Built-in lists have the kind only once; lists of custom objects have it in each object, with the requested version.
    fn write_item(&mut self, object: &Object) {
        let resource = &*self.resource;
        let shown = views::whole(resource, object);
        if self.view != View::Whole {
            let item = self.view.item(resource, &shown);
            // writing to memory cannot fail, and the keys of a `Value` are texts
            let _ = serde_json::to_writer(&mut self.text, &item);
            return;
        }
        self.text.push(b'{');
        if resource.custom.is_some() {
            let version = Value::from(resource.api_version());
            let kind = Value::from(resource.kind.as_str());
            let _ = write!(self.text, "\"apiVersion\":{version},\"kind\":{kind},");
        }
        match shown {
            Cow::Borrowed(_) => self.text.extend_from_slice(object.rest()),
            Cow::Owned(shown) => self.text.extend_from_slice(Object::new(shown).rest()),
        }
    }
}
