//! Output for files that grow, are renamed, truncated and deleted.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::symlink,
};

use super::*;
use crate::scratch::Scratch;

mod lives;

const POD: &str = "prod_web-0_u-1";

/// A log tree, the tail under test, and its output.
struct Lab {
    scratch: Scratch,
    limits: Limits,
    tail: Tail,
    out: Recorder,
}

#[derive(Default)]
struct Recorder {
    lines: Vec<String>,
    troubles: usize,
    is_closed: bool,
}

impl Lines for Recorder {
    fn takes(&mut self, _: &PodRef) -> bool {
        !self.is_closed
    }

    fn line(&mut self, _: &PodRef, container: &str, line: Line<'_>) -> io::Result<()> {
        let text = String::from_utf8_lossy(&line.text);
        let marks = [(line.is_unfinished, "~"), (line.cut > 0, "#")];
        let marks: String = marks.into_iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| mark).collect();
        self.lines.push(format!("{container}:{text}{marks}"));
        Ok(())
    }

    fn trouble(&mut self, _: &Path, _: &io::Error) {
        self.troubles += 1;
    }
}

const LIMITS: Limits = Limits { line_bytes_max: 1_000, files_open_max: 8 };

impl Lab {
    fn new(name: &str) -> Self {
        Self::with(name, LIMITS)
    }

    fn with(name: &str, limits: Limits) -> Self {
        let scratch = Scratch::new(name);
        let tail = Tail::new(scratch.path().to_owned(), limits, HashMap::new());
        Self { scratch, limits, tail, out: Recorder::default() }
    }

    /// The path of a file of the test's pod; creates its directory.
    fn path(&self, file: &str) -> PathBuf {
        let path = self.scratch.path().join(POD).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// Appends raw bytes.
    fn append(&self, file: &str, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.path(file)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Appends a line of stdout with the tag `F` or `P`.
    fn log(&self, file: &str, tag: &str, text: &str) {
        self.append(file, &format!("2026-11-20T16:00:00.123456789Z stdout {tag} {text}\n"));
    }

    /// Scans once, and returns everything that can be read.
    fn read(&mut self) -> Vec<String> {
        self.tail.scan(&mut self.out).unwrap();
        while self.tail.read(&mut self.out).unwrap() {}
        assert_eq!(self.out.troubles, 0);
        std::mem::take(&mut self.out.lines)
    }

    /// Replaces the tail by a new one that starts from the current positions.
    fn restart(&mut self) {
        let saved = self.tail.positions().into_iter().map(|position| (position.inode, position)).collect();
        self.tail = Tail::new(self.scratch.path().to_owned(), self.limits, saved);
    }
}

#[test]
fn lines_come_once_and_wait_for_their_newline() {
    let mut lab = Lab::new("once");
    lab.log("app/0.log", "F", "one");
    lab.append("app/0.log", "2026-11-20T16:00:00Z stdout F tw");
    assert_eq!(lab.read(), ["app:one"]);
    lab.append("app/0.log", "o\n");
    lab.log("app/0.log", "F", "three");
    assert_eq!(lab.read(), ["app:two", "app:three"]);
    assert!(lab.read().is_empty());
}

#[test]
fn a_renamed_file_is_read_on_before_the_new_one() {
    let mut lab = Lab::new("renamed");
    lab.log("app/0.log", "F", "one");
    assert_eq!(lab.read(), ["app:one"]);
    lab.log("app/0.log", "F", "two");
    fs::rename(lab.path("app/0.log"), lab.path("app/0.log.20261120-160000")).unwrap();
    lab.log("app/0.log.20261120-160000", "P", "thr");
    lab.log("app/0.log", "F", "ee");
    assert_eq!(lab.read(), ["app:two", "app:three"]);
}

#[test]
fn two_rotations_between_two_looks_lose_nothing() {
    let mut lab = Lab::new("twice");
    lab.log("app/0.log", "F", "one");
    assert_eq!(lab.read(), ["app:one"]);
    for (time, text) in [("160000", "two"), ("160001", "three")] {
        lab.log("app/0.log", "F", text);
        fs::rename(lab.path("app/0.log"), lab.path(&format!("app/0.log.20261120-{time}"))).unwrap();
    }
    lab.log("app/0.log", "F", "four");
    assert_eq!(lab.read(), ["app:two", "app:three", "app:four"]);
}

#[test]
fn a_compressed_copy_is_not_read() {
    let mut lab = Lab::new("compressed");
    lab.log("app/0.log", "F", "one");
    lab.log("app/0.log.20261120-150000.gz", "F", "old");
    lab.log("app/0.log.20261120-150000.tmp", "F", "old");
    assert_eq!(lab.read(), ["app:one"]);
    // Unread lines of a file that is compressed and deleted can still be read, because it is open.
    lab.log("app/0.log", "F", "two");
    fs::rename(lab.path("app/0.log"), lab.path("app/0.log.20261120-160000.gz")).unwrap();
    lab.log("app/0.log", "F", "three");
    assert_eq!(lab.read(), ["app:two", "app:three"]);
}

#[test]
fn a_deleted_pod_is_read_to_its_end_and_forgotten() {
    let mut lab = Lab::new("deleted");
    lab.out.is_closed = true;
    lab.log("app/0.log", "F", "one");
    lab.append("app/0.log", "2026-11-20T16:00:00Z stdout P half");
    assert!(lab.read().is_empty(), "nobody takes lines yet");
    fs::remove_dir_all(lab.scratch.path().join(POD)).unwrap();
    lab.out.is_closed = false;
    assert_eq!(lab.read(), ["app:one", "app:half~"]);
    lab.read();
    assert!(lab.tail.pods.is_empty(), "nothing of it is kept");
}

#[test]
fn a_line_waits_for_its_end_between_two_files() {
    let mut lab = Lab::new("between");
    lab.log("app/0.log", "P", "two ");
    assert!(lab.read().is_empty());
    fs::remove_file(lab.path("app/0.log")).unwrap();
    assert!(lab.read().is_empty(), "its directory is there, so the container may go on");
    lab.log("app/0.log", "F", "parts");
    assert_eq!(lab.read(), ["app:two parts"]);
    lab.log("app/0.log", "P", "never");
    fs::remove_file(lab.path("app/0.log")).unwrap();
    assert!(lab.read().is_empty());
    fs::remove_dir_all(lab.scratch.path().join(POD)).unwrap();
    assert_eq!(lab.read(), ["app:never~"]);
}

#[test]
fn a_file_that_was_cut_is_read_from_its_start() {
    let mut lab = Lab::new("cut");
    lab.log("app/0.log", "F", "one");
    lab.log("app/0.log", "P", "half");
    assert_eq!(lab.read(), ["app:one"]);
    OpenOptions::new().write(true).open(lab.path("app/0.log")).unwrap().set_len(0).unwrap();
    lab.append("app/0.log", "2026-11-20T17:00:00Z stdout F two\n");
    assert_eq!(lab.read(), ["app:half~", "app:two"]);
    // Longer than before, so that only the first bytes reveal the replacement.
    fs::write(lab.path("app/0.log"), "2026-11-20T18:00:00Z stdout F a longer line than before\n").unwrap();
    assert_eq!(lab.read(), ["app:a longer line than before"]);
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let mut lab = Lab::new("restart");
    lab.log("app/0.log", "F", "one");
    lab.log("app/0.log", "P", "in ");
    lab.append("app/0.log", "2026-11-20T16:00:00Z stderr F between\n");
    lab.log("app/0.log", "P", "three ");
    assert_eq!(lab.read(), ["app:one", "app:between"]);
    lab.restart();
    assert!(lab.read().is_empty());
    lab.restart();
    lab.log("app/0.log", "F", "parts");
    lab.log("app/0.log", "F", "four");
    assert_eq!(lab.read(), ["app:in three parts", "app:four"]);
    lab.restart();
    assert!(lab.read().is_empty());
}

#[test]
fn a_restart_joins_parts_in_two_files() {
    let mut lab = Lab::new("restart-rotated");
    lab.log("app/0.log", "P", "two ");
    fs::rename(lab.path("app/0.log"), lab.path("app/0.log.20261120-160000")).unwrap();
    lab.append("app/0.log", "2026-11-20T16:00:00Z stderr F between\n");
    assert_eq!(lab.read(), ["app:between"]);
    lab.restart();
    lab.log("app/0.log", "F", "files");
    assert_eq!(lab.read(), ["app:two files"]);
}

#[test]
fn a_new_file_with_the_inode_of_an_old_one_is_new() {
    let mut lab = Lab::new("inode");
    lab.log("app/0.log", "F", "one");
    assert_eq!(lab.read(), ["app:one"]);
    lab.restart();
    // Other content under the same inode, at least as long, like a file with a reused inode.
    fs::write(lab.path("app/0.log"), "2026-11-21T16:00:00.123456789Z stdout F two two two\n").unwrap();
    assert_eq!(lab.read(), ["app:two two two"]);
    lab.restart();
    fs::write(lab.path("app/0.log"), "2026-11-22T16:00:00.123456789Z stdout F ten ten ten\n").unwrap();
    assert_eq!(lab.read(), ["app:ten ten ten"], "of the same size by chance");
}

#[test]
fn a_line_longer_than_the_buffer_is_cut_and_the_next_is_whole() {
    let mut lab = Lab::new("long");
    let long = "x".repeat(3 * READ_BYTES_MIN);
    lab.append("app/0.log", &format!("2026-11-20T16:00:00Z stdout F {long}"));
    assert!(lab.read().is_empty());
    lab.restart();
    lab.append("app/0.log", "\n");
    lab.log("app/0.log", "F", "next");
    let expected = [format!("app:{}#", &long[..LIMITS.line_bytes_max]), "app:next".to_owned()];
    assert_eq!(lab.read(), expected);
}

#[test]
fn a_restarted_container_does_not_finish_the_lines_of_the_one_before() {
    let mut lab = Lab::new("restarted");
    lab.log("app/0.log", "P", "half");
    lab.log("app/1.log", "F", "whole");
    assert_eq!(lab.read(), ["app:half~", "app:whole"]);
}

/// Goal: a limit on open files costs time, but no lines. Method: more containers with new lines than files may be open.
#[test]
fn few_open_files_are_enough_for_many_containers() {
    let mut lab = Lab::new("many");
    let containers: Vec<String> = (0..3 * LIMITS.files_open_max).map(|number| format!("c{number:02}")).collect();
    for round in ["one", "two"] {
        containers.iter().for_each(|container| lab.log(&format!("{container}/0.log"), "F", round));
        let mut came: Vec<String> = (0..3).flat_map(|_| lab.read()).collect();
        came.sort();
        assert_eq!(came, containers.iter().map(|container| format!("{container}:{round}")).collect::<Vec<_>>());
        let open = lab.tail.files().filter(|file| file.is_open()).count();
        assert!(open <= LIMITS.files_open_max, "{open} are open");
    }
}

#[test]
fn symbolic_links_are_not_followed() {
    let mut lab = Lab::new("links");
    let secret = lab.scratch.path().join("secret");
    fs::write(&secret, "2026-11-20T16:00:00Z stdout F secret\n").unwrap();
    symlink(&secret, lab.path("app/0.log")).unwrap();
    assert!(lab.read().is_empty());
}

#[test]
fn the_collectors_own_lines_are_left_alone() {
    let mut lab = Lab::new("own");
    lab.tail.skip("u-1".to_owned());
    lab.log("app/0.log", "F", "one");
    assert!(lab.read().is_empty());
}

#[test]
fn other_files_and_directories_are_left_alone() {
    let mut lab = Lab::new("others");
    lab.log("app/notes.txt", "F", "no");
    fs::create_dir_all(lab.scratch.path().join("not-a-pod/app")).unwrap();
    fs::write(lab.scratch.path().join("not-a-pod/app/0.log"), "no\n").unwrap();
    fs::write(lab.scratch.path().join("prod_web-1_u-2"), "no\n").unwrap();
    assert!(lab.read().is_empty());
}
