//! Output of `cargo xtask protos`; never edited by hand.
#![allow(
    missing_docs,
    unreachable_pub,
    deprecated,
    clippy::all,
    clippy::pedantic,
    reason = "the generator's code follows its own style, and the definitions it is made from are documented in proto/"
)]

pub mod cri_v1;
pub mod deviceplugin_v1beta1;
pub mod podresources_v1;
