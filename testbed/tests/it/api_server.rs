//! The embedded API server and its clients: kube's and kubectl.
//!
//! They stand here and not beside the server, because its package is compiled with optimisation, and that would take half a minute for these.

mod clients;
mod faults;
mod fuzz;
mod kubectl;
mod proxy;
mod scale;
mod webhooks;
mod writes;
