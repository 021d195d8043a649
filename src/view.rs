//! Views: folders of files named by metadata, so that loaders find samples the way they expect.
//!
//! This module knows what a view is called, which samples it shows and what it calls them. It holds
//! no sample and reads no payload: `crate::vfs` builds the folders. docs/views.md is the manual.

mod escape;
mod template;

pub use escape::{NAME_MAX, escape_component, push_escaped, unescape_component};
pub use template::{SyntaxError, Template};
