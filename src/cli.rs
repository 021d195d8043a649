//! The commands: one file each.

pub mod demo;
pub mod tool;
