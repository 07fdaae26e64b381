//! Interrupted writes at every offset, damage of every byte, and full disks.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::fixture::{SLACK_BYTES, State, User, beside_of, files, log_of, several_saves};
use crate::UnusableLog;

/// The last state whose commit lies within the first `bytes` of the log.
fn committed(saves: &[(State, usize)], bytes: usize) -> Option<&State> {
    saves.iter().rev().find(|(_, end)| *end <= bytes).map(|(state, _)| state)
}

/// Goal: after kill -9 at any byte of an append, the log yields the state before it. Method: cut the log at every
/// length, load it, and continue it with the next save.
#[test]
fn a_log_cut_at_any_byte_is_the_last_state_committed_in_it_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let saves = several_saves(folder.path());
    let log = fs::read(log_of(folder.path())).unwrap();
    assert_eq!(saves.last().map(|(_, end)| *end), Some(log.len()));
    for cut in 0..=log.len() {
        fs::write(log_of(folder.path()), &log[..cut]).unwrap();
        let (mut user, reason) = User::restart(folder.path());
        assert_eq!(user.saved.as_ref(), committed(&saves, cut), "cut at {cut}");
        assert_eq!(reason.is_some(), user.saved.is_none(), "cut at {cut}: {reason:?}");
        let is_new = user.saved.is_none();
        user.state.put(9, 5);
        assert_eq!(user.save().unwrap(), is_new, "cut at {cut}: a usable log goes on");
        let (again, _) = User::restart(folder.path());
        assert_eq!(again.saved, Some(user.state), "cut at {cut}, then saved");
        let found = again.log.find(super::fixture::IDENTITY).unwrap().unwrap();
        assert_eq!(found.cut_bytes(), 0, "the tail of the interrupted write is removed");
    }
}

/// Loads a damaged copy of `log`: the last state committed before the damage, or none and a reason.
fn load_damaged(folder: &Path, saves: &[(State, usize)], log: &[u8], damaged: &[u8], damage: &str) {
    let same = log.iter().zip(damaged).take_while(|(one, other)| one == other).count();
    fs::write(log_of(folder), damaged).unwrap();
    let (user, reason) = User::restart(folder);
    assert_eq!(user.saved.as_ref(), committed(saves, same), "{damage}");
    match reason {
        None => assert!(user.saved.is_some(), "{damage}"),
        Some(UnusableLog::NotALog) => assert!(same < 8, "{damage}"),
        Some(UnusableLog::Format(_)) => assert!((8..12).contains(&same), "{damage}"),
        Some(UnusableLog::Damaged) => assert!(12 <= same, "{damage}"),
        Some(reason @ (UnusableLog::Io(_) | UnusableLog::Foreign { .. })) => panic!("{damage}: {reason}"),
    }
}

/// Goal: damage never yields a state that was not saved. Method: change each byte of the log in turn, in three ways.
#[test]
fn a_byte_changed_anywhere_leaves_the_last_state_committed_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let saves = several_saves(folder.path());
    let log = fs::read(log_of(folder.path())).unwrap();
    for (at, flip) in (0..log.len()).flat_map(|at| [1, 0x80, 0xff].map(|flip| (at, flip))) {
        let mut damaged = log.clone();
        damaged[at] ^= flip;
        load_damaged(folder.path(), &saves, &log, &damaged, &format!("byte {at}"));
    }
}

/// Goal: blocks that a crash of the machine lost yield a state that was saved, and an intact record is valid only
/// directly after the one that it was written behind. Method: zero, remove and repeat ranges of four sizes and each
/// record, and replace each record by its neighbour.
#[test]
fn blocks_and_records_that_are_missing_or_come_twice_leave_the_last_state_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let saves = several_saves(folder.path());
    let log = fs::read(log_of(folder.path())).unwrap();
    let mut starts = vec![12];
    while let Some(&at) = starts.last().filter(|at| **at < log.len()) {
        starts.push(at + 8 + u32::from_le_bytes(log[at..at + 4].try_into().unwrap()) as usize);
    }
    assert!(starts.len() > 20 && starts.last() == Some(&log.len()));
    let blocks = (0..log.len()).step_by(7).flat_map(|at| [1, 16, 64, 512].map(|size| (at, at + size)));
    for (at, end) in blocks.chain(starts.windows(2).map(|record| (record[0], record[1]))) {
        let end = end.min(log.len());
        let (before, block, after) = (&log[..at], &log[at..end], &log[end..]);
        let next = starts.iter().find(|start| end < **start).map_or(&[][..], |next| &log[end..*next]);
        for damaged in [
            [before, &vec![0; block.len()], after].concat(),
            [before, after].concat(),
            [before, block, block, after].concat(),
            [before, next, after].concat(),
        ] {
            load_damaged(folder.path(), &saves, &log, &damaged, &format!("bytes {at} to {end}"));
        }
    }
}

/// Goal: a replacement may be interrupted at any step. Method: the file beside the log as it is after each of them.
#[test]
fn a_replacement_broken_off_anywhere_leaves_the_log_as_it_was() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let saves = several_saves(folder.path());
    let mut user = User::new(files(other.path()));
    user.state.put(4, 20);
    assert!(user.save().unwrap());
    let new = fs::read(log_of(other.path())).unwrap();
    for cut in 0..=new.len() {
        fs::write(beside_of(folder.path()), &new[..cut]).unwrap();
        let (found, _) = User::restart(folder.path());
        assert_eq!(found.saved.as_ref(), saves.last().map(|(state, _)| state), "broken off after {cut} bytes");
        assert!(!beside_of(folder.path()).exists(), "the remains are removed");
    }
    fs::write(beside_of(folder.path()), &new).unwrap();
    fs::rename(beside_of(folder.path()), log_of(folder.path())).unwrap();
    assert_eq!(User::restart(folder.path()).0.saved, Some(user.state), "after the renaming it is the new one");
}

/// Saves states on a disk that is full after `units`, until it gets room again. Returns the units used.
fn survive(units: usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let left = Arc::new(AtomicUsize::new(units));
    let mut user = User::new(files(folder.path()).with_room(Arc::clone(&left)));
    let mut on_disk = None;
    for round in 0..12_u8 {
        user.state.put(round % 5, 60 + usize::from(round) * 20);
        user.state.delete((round + 2) % 5);
        let is_saved = user.save().is_ok();
        assert!(is_saved || !beside_of(folder.path()).exists(), "round {round} of {units}: its room is free again");
        let (found, reason) = User::restart(folder.path());
        // A replacement counts even if its last sync failed.
        let is_known = found.saved.as_ref() == Some(&user.state) || !is_saved && found.saved == on_disk;
        assert!(is_known && reason.is_none(), "round {round} of {units}: {reason:?}");
        on_disk = found.saved;
    }
    let used = units - left.swap(usize::MAX, Ordering::SeqCst);
    user.save().unwrap();
    assert_eq!(User::restart(folder.path()).0.saved, Some(user.state));
    used
}

/// Goal: a full disk costs only the saves of that time, and no file stays beside the log. Method: a disk that is full
/// after n bytes and operations, anywhere within whole states, changes and replacements.
#[test]
fn a_full_disk_leaves_the_last_save_and_the_next_one_goes_on() {
    let used = survive(usize::MAX);
    assert!((3_000..10_000).contains(&used), "{used}");
    for units in (0..used).step_by(29) {
        survive(units);
    }
}

#[test]
fn the_disk_is_bounded_by_the_state_and_not_by_its_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut user = User::new(files(folder.path()));
    let (mut replaced, mut largest) = (0, 0);
    for _ in 0..400 {
        (0..4).for_each(|key| user.state.put(key, 100));
        replaced += u64::from(user.save().unwrap());
        largest = largest.max(fs::metadata(log_of(folder.path())).unwrap().len());
    }
    let whole = 4 * 110 + 100;
    assert!(largest <= whole + SLACK_BYTES + whole, "{largest} bytes on disk");
    assert!((100..=201).contains(&replaced), "each slack of changes costs one whole state: {replaced}");
}

/// Goal: a failed replacement is not retried by every save. Method: a directory in the way.
#[test]
fn a_replacement_that_fails_is_tried_again_only_after_the_log_has_grown() {
    let folder = tempfile::tempdir().unwrap();
    let mut user = User::new(files(folder.path()));
    user.state.put(0, 300);
    user.save().unwrap();
    fs::create_dir(beside_of(folder.path())).unwrap();
    let failures = (0..12).filter(|_| {
        user.state.put(0, 300);
        user.save().is_err()
    });
    assert_eq!(failures.collect::<Vec<_>>(), [3, 7, 11], "once when it is due, then after each {SLACK_BYTES} bytes");
    fs::remove_dir(beside_of(folder.path())).unwrap();
    let mut saves = (0..4).map(|_| {
        user.state.put(0, 300);
        user.save().unwrap()
    });
    assert!(saves.any(|is_replaced| is_replaced));
    assert_eq!(User::restart(folder.path()).0.saved, Some(user.state));
}
