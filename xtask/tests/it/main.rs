//! The program as people call it.

mod images;
