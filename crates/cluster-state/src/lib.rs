//! Which clusters exist: one directory each below the state root, with a record that names its processes.
//!
//! All changes happen under an exclusive lock on `ROOT/lock`. Processes are identified by ID and start time, never by name, so foreign
//! processes are never touched. A directory without one of our records is never removed.

mod claim;
pub mod control_groups;
mod error;
mod find;
mod layout;
pub mod process;
mod record;
mod removal;
mod root;
#[cfg(test)]
mod tests;

pub use self::claim::{Claim, claim};
pub use self::error::Error;
pub use self::find::{find, list, recorded};
pub use self::layout::dir;
pub use self::record::{Local, Record, update};
pub use self::removal::{abandon, remove};
pub use self::root::{default_root, temporary_root, write_private};
