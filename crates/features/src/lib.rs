//! Nothing but dependencies: `Cargo.toml` says which features they have and why this package exists.
