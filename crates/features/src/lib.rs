//! A package of dependencies only: `Cargo.toml` lists their features and explains the purpose of this package.
