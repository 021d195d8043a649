//! Views through the kernel.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common::mount::{MountGuard, can_mount, program};
use crate::{assert_ready, place, text};

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_view_shows_the_samples_own_files() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args([
        "--view-metadata=on",
        "--view",
        "all={source_name}/{sample_id:03}{ext}",
        "-o",
    ]);
    command.arg("view=odd={sample_id} where sample_id == 1");
    assert_ready(&guard.background(command, &place.tiny.cache));
    let views = guard.point.join("views");
    assert!(names(&views).contains(&"all".to_owned()));
    assert_eq!(names(&views.join("odd")), ["1", "metadata.jsonl"]);
    let folder = fs::read_dir(views.join("all"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .find(|entry| entry.file_type().unwrap().is_dir())
        .unwrap()
        .path();
    assert_eq!(names(&folder), ["000.bin", "001.bin"]);
    assert_eq!(
        fs::read(folder.join("000.bin")).unwrap(),
        place.tiny.payload
    );
    for (sample, links) in [("0", 1), ("1", 2)] {
        let under = fs::metadata(guard.point.join("samples/0").join(sample)).unwrap();
        let shown = fs::metadata(folder.join(format!("00{sample}.bin"))).unwrap();
        assert_eq!((shown.ino(), shown.dev()), (under.ino(), under.dev()));
        assert_eq!(shown.nlink(), under.nlink());
        // And one for each view that needs no template.
        assert!(shown.nlink() > links, "{}", shown.nlink());
    }
    for path in ["views/all/metadata.jsonl", "metadata.arrow"] {
        let path = guard.point.join(path);
        let size = fs::metadata(&path).unwrap().len();
        assert!(size > 0);
        assert_eq!(fs::read(&path).unwrap().len() as u64, size, "true length");
    }
    assert_eq!(
        fs::read_to_string(views.join("all/metadata.jsonl"))
            .unwrap()
            .lines()
            .count(),
        2
    );
    let absent = fs::metadata(folder.join("002.bin")).unwrap_err();
    assert_eq!(absent.raw_os_error(), Some(2));
}

#[test]
fn a_view_with_equal_names_is_refused_before_anything_is_mounted() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["--view", "v={source_name}"]);
    let output = guard.background(command, &place.tiny.cache);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(
        said.contains("sample 0") && said.contains("sample 1"),
        "{said}"
    );
    let mut command = program();
    command.args(["--view", "v={source_name}", "--on-collision=suffix"]);
    assert_ready(&guard.background(command, &place.tiny.cache));
    assert_eq!(names(&guard.point.join("views/v")).len(), 2);
}
