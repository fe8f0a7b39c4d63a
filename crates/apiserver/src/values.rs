//! Plain values, JSON and texts, without schemas and kinds: how they are read, compared and written.
//!
//! May import no other room, and every room may import it.
//!
//! Each module is about one sort of value and stands alone: `annotations` (of pods), `app_armor` (profiles in
//! annotations), `draws` (ids and the time), `fields` (of JSON objects), `quantity` (reads `api`'s
//! amounts), `times` and `names` (generated ones), which use `draws`, `go` (values as Go prints them), `words` (values as tables show them), `pods` (what the amounts in a pod add up to), which
//! uses `quantity`, and `quota` (what objects count for), which uses both.

pub(crate) mod annotations;
pub(crate) mod app_armor;
pub(crate) mod draws;
pub(crate) mod fields;
pub(crate) mod go;
pub(crate) mod names;
pub(crate) mod pods;
pub(crate) mod quantity;
pub mod quota;
pub(crate) mod times;
pub(crate) mod words;
