//! Who asks, and what they may do: authentication, authorization, the certificates and tokens that the server signs, and the record of
//! decisions.

pub(crate) mod accounts;
pub(crate) mod any_certificate;
pub mod audit;
pub(crate) mod authn;
pub(crate) mod authority;
pub(crate) mod authz;
mod es256;
pub(crate) mod identity;
mod impersonation;
pub(crate) mod signer;
pub(crate) mod target;
