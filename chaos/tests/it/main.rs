//! Integration tests of chaos: one module a topic.

mod seed;
