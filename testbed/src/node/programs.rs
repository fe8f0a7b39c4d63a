//! The small programs of the stack image that the testbed brings itself.
//!
//! Each is chosen by the file name of `argv[0]`, as the image's paths have it (`/pause`, `/bin/sleep`, `/bin/cat`,
//! `/bin/touch`, `/bin/connect`, `/bin/numacell`, `/bin/deviceplugin`).

pub mod connect;
pub mod device_plugin;
pub mod files;
pub mod go_flags;
pub mod numacell;
pub mod pause;
pub mod podresources_proxy;
pub mod sleep;
