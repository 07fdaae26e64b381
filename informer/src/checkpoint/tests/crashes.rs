//! Interrupted writes at every offset, and damage of every byte on disk.

use std::fs;

use super::fixture::{OnDisk, Source, beside_of, found, identity, log_of, restart, several_saves, writer};
use crate::checkpoint::{IgnoreReason, open, writer::SLACK_BYTES};

/// The last state whose commit lies within the first `bytes` of the log.
fn committed(saves: &[(OnDisk, usize)], bytes: usize) -> Option<&OnDisk> {
    saves.iter().rev().find(|(_, end)| *end <= bytes).map(|(state, _)| state)
}

/// Goal: after kill -9 at any byte of an append, the log yields the state before it. Method: cut the log at every
/// length, open it, and continue it with the next save.
#[test]
fn a_log_cut_at_any_byte_is_the_last_state_committed_in_it_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let saves = several_saves(dir.path());
    let log = fs::read(log_of(dir.path())).unwrap();
    assert_eq!(saves.last().map(|(_, end)| *end), Some(log.len()));
    for cut in 0..=log.len() {
        fs::write(log_of(dir.path()), &log[..cut]).unwrap();
        let (result, writer) = restart(dir.path());
        match (result, committed(&saves, cut)) {
            (Ok(Some((state, mut source))), Some(expected)) => {
                assert_eq!(state, *expected, "cut at {cut}");
                source.put("next", 5);
                let mut writer = writer.unwrap();
                assert!(!source.save(&mut writer).rewritten, "cut at {cut}: the log goes on");
                drop(writer);
                assert_eq!(open(dir.path(), &identity()).saved.unwrap().cut_bytes, 0, "what did not count is gone");
                assert_eq!(found(dir.path()).unwrap(), Some(source.on_disk()), "cut at {cut}, then saved");
            }
            (Err(IgnoreReason::Damaged | IgnoreReason::NotACheckpoint), None) => assert!(writer.is_some()),
            (result, expected) => panic!("cut at {cut}: {:?}, not {expected:?}", result.map(|it| it.map(|it| it.0))),
        }
    }
}

/// Goal: damage never yields a state that was not saved. Method: change each byte of the log in turn, in three ways.
#[test]
fn a_byte_changed_anywhere_leaves_the_last_state_committed_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let saves = several_saves(dir.path());
    let log = fs::read(log_of(dir.path())).unwrap();
    for (at, flip) in (0..log.len()).flat_map(|at| [1, 0x80, 0xff].map(|flip| (at, flip))) {
        let mut damaged = log.clone();
        damaged[at] ^= flip;
        fs::write(log_of(dir.path()), damaged).unwrap();
        match (found(dir.path()), committed(&saves, at)) {
            (Ok(Some(state)), Some(expected)) => assert_eq!(state, *expected, "byte {at}"),
            (Err(IgnoreReason::NotACheckpoint), None) => assert!(at < 8, "byte {at}"),
            (Err(IgnoreReason::Version { .. }), None) => assert!((8..12).contains(&at), "byte {at}"),
            (Err(IgnoreReason::Damaged), None) => assert!(12 <= at, "byte {at}"),
            (result, expected) => panic!("byte {at}: {result:?}, not {expected:?}"),
        }
    }
}

/// Goal: after a machine crash with missing blocks in the middle, the log yields a state that was saved. Method: zero,
/// remove or repeat each range of four sizes.
#[test]
fn blocks_that_are_missing_or_come_twice_leave_the_last_state_before_them() {
    let dir = tempfile::tempdir().unwrap();
    let saves = several_saves(dir.path());
    let log = fs::read(log_of(dir.path())).unwrap();
    for (at, size) in (0..log.len()).step_by(7).flat_map(|at| [1, 16, 64, 512].map(|size| (at, size))) {
        let end = (at + size).min(log.len());
        let (before, block, after) = (&log[..at], &log[at..end], &log[end..]);
        let zeros = vec![0; block.len()];
        for damaged in
            [[before, &zeros, after].concat(), [before, after].concat(), [before, block, block, after].concat()]
        {
            // The damage starts at the first byte that differs.
            let same = log.iter().zip(&damaged).take_while(|(one, other)| one == other).count();
            fs::write(log_of(dir.path()), &damaged).unwrap();
            match (found(dir.path()), committed(&saves, same)) {
                (Ok(Some(state)), Some(expected)) => assert_eq!(state, *expected, "{size} bytes at {at}"),
                (Err(IgnoreReason::NotACheckpoint | IgnoreReason::Version { .. } | IgnoreReason::Damaged), None) => {}
                (result, expected) => panic!("{size} bytes at {at}: {result:?}, not {expected:?}"),
            }
        }
    }
}

/// Goal: an intact record is valid only directly after the record it was written behind. Method: remove and repeat each
/// record of a log, and replace it by its neighbour.
#[test]
fn a_record_that_is_missing_or_comes_twice_leaves_the_last_state_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let saves = several_saves(dir.path());
    let log = fs::read(log_of(dir.path())).unwrap();
    let mut starts = vec![12];
    while let Some(&at) = starts.last().filter(|at| **at < log.len()) {
        let length = u32::from_le_bytes(log[at..at + 4].try_into().unwrap());
        starts.push(at + 8 + length as usize);
    }
    assert!(starts.len() > 20 && starts.last() == Some(&log.len()));
    for (index, record) in starts.windows(2).enumerate() {
        let (before, record, after) = (&log[..record[0]], &log[record[0]..record[1]], &log[record[1]..]);
        let next = starts.get(index + 1..index + 3).map_or(&[][..], |next| &log[next[0]..next[1]]);
        for damaged in
            [[before, after].concat(), [before, record, record, after].concat(), [before, next, after].concat()]
        {
            let same = log.iter().zip(&damaged).take_while(|(one, other)| one == other).count();
            fs::write(log_of(dir.path()), &damaged).unwrap();
            match (found(dir.path()), committed(&saves, same)) {
                (Ok(Some(state)), Some(expected)) => assert_eq!(state, *expected, "record {index}"),
                (Err(IgnoreReason::Damaged), None) => {}
                (result, expected) => panic!("record {index}: {result:?}, not {expected:?}"),
            }
        }
    }
}

/// Goal: a compaction may be interrupted at any step. Method: the file beside the log as it is after each of them.
#[test]
fn a_rewrite_broken_off_anywhere_leaves_the_log_as_it_was() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let saves = several_saves(dir.path());
    let (last, _) = saves.last().unwrap();
    let anew = {
        let (mut source, mut writer) = (Source::new(), writer(other.path()));
        source.put("e", 20);
        assert!(source.save(&mut writer).rewritten);
        fs::read(log_of(other.path())).unwrap()
    };
    for cut in 0..=anew.len() {
        fs::write(beside_of(dir.path()), &anew[..cut]).unwrap();
        assert_eq!(found(dir.path()).unwrap().as_ref(), Some(last), "broken off after {cut} bytes");
        assert!(!beside_of(dir.path()).exists(), "what is left is cleared away");
    }
    fs::write(beside_of(dir.path()), &anew).unwrap();
    fs::rename(beside_of(dir.path()), log_of(dir.path())).unwrap();
    assert_eq!(found(dir.path()).unwrap(), found(other.path()).unwrap(), "after the renaming it is the new one");
}

#[test]
fn the_disk_is_bounded_by_the_objects_and_not_by_their_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut source, mut writer) = (Source::new(), writer(dir.path()));
    let (mut rewrites, mut written, mut largest) = (0, 0, 0);
    for round in 0..400 {
        for name in ["a", "b", "c", "d"] {
            source.put(name, 10_000);
        }
        let wrote = source.save(&mut writer);
        rewrites += u64::from(wrote.rewritten);
        written += wrote.bytes;
        largest = largest.max(fs::metadata(log_of(dir.path())).unwrap().len());
        if round % 100 == 0 {
            source.delete("d");
        }
    }
    let (live, changed) = (4 * 10_300, 400 * 4 * 10_300);
    assert!(largest <= 2 * live + SLACK_BYTES + live, "{largest} bytes on disk");
    assert!((10..=20).contains(&rewrites), "{rewrites} rewrites");
    assert!(written <= changed + changed / 10, "{written} bytes written for {changed}");
    drop(writer);
    assert_eq!(found(dir.path()).unwrap(), Some(source.on_disk()));
}
