//! What docs/views.md shows is understood.

use datasetrt::view::{Filter, Template, ViewSpec};

const MANUAL: &str = include_str!("../../docs/views.md");

#[test]
fn specs_templates_and_filters_of_the_manual_are_read() {
    let mut specs = 0;
    for part in MANUAL.split("--view '").skip(1) {
        let spec = part.split('\'').next().unwrap();
        ViewSpec::parse(spec).unwrap();
        specs += 1;
    }
    assert!(specs >= 1);
    let filters = MANUAL.split("### Filters").nth(1).unwrap();
    for filter in filters.split("```").nth(1).unwrap().trim().lines() {
        Filter::parse(filter).unwrap();
    }
    let table = MANUAL.split("| in a template | becomes |").nth(1).unwrap();
    let mut templates = 0;
    for line in table
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with('|'))
    {
        let cell = line.trim_start_matches('|').replace("\\|", "\u{1}");
        let cell = cell
            .split('|')
            .next()
            .unwrap_or_default()
            .replace('\u{1}', "|");
        for code in cell
            .split("`` ")
            .nth(1)
            .into_iter()
            .flat_map(|code| code.split(" ``").next())
        {
            Template::parse(code).unwrap();
            templates += 1;
        }
        if !cell.contains("``") {
            for code in cell.split('`').skip(1).step_by(2) {
                Template::parse(code).unwrap();
                templates += 1;
            }
        }
    }
    assert!(templates >= 10, "{templates}");
}
