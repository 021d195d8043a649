//! What the tests of whole programs share.

pub mod mount;
