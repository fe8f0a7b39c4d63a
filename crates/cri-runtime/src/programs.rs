//! The small programs of the stack image that are part of the testbed.
//!
//! The file name of `argv[0]` chooses the program, as in the image's paths (`/pause`, `/bin/sleep`, `/bin/cat`, `/bin/touch`,
//! `/bin/connect`, `/bin/numacell`, `/bin/deviceplugin`).

pub mod connect;
pub mod device_plugin;
pub mod files;
pub mod go_flags;
pub mod numacell;
pub mod pause;
pub mod podresources_proxy;
pub mod sleep;
