//! `datasetrt`: the tool.
fn main() {}
