//! `datasetrt-mount`: the mount daemon.
fn main() {}
