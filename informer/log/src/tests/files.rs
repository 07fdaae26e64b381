//! Locks and permissions of files, and files that are not a log of this owner.

use std::{fs, path::PathBuf};

use super::fixture::{IDENTITY, User, files, log_of, several_saves};
use crate::{DiskLog, FileLock, create_folder, files::create_synced, identity_of};

#[test]
fn a_lock_has_one_holder_and_a_copy_of_its_descriptor_does_not_keep_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let lock = FileLock::take(&path).unwrap().unwrap();
    assert!(FileLock::take(&path).unwrap().is_none());
    let spawned = lock.file().try_clone().unwrap();
    drop(lock);
    FileLock::take(&path).unwrap().unwrap();
    drop(spawned);
}

/// Goal: an unusable file yields its reason, and is replaced by the next save. Method: a table of unusable files.
#[test]
fn a_file_that_is_not_a_log_of_this_owner_is_ignored_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    assert!(DiskLog::new(files(folder.path()), 0).find(IDENTITY).unwrap().is_none());
    several_saves(folder.path());
    let log = fs::read(log_of(folder.path())).unwrap();
    let mut other = DiskLog::new(files(folder.path()), 0);
    other.replace("pods of another cluster", |batch| batch.commit(&[])).unwrap();
    let foreign = fs::read(log_of(folder.path())).unwrap();
    assert_eq!(identity_of(&log_of(folder.path())).as_deref(), Some("pods of another cluster"));
    let of_format = |format: u8| [&log[..8], &[format, 0, 0, 0], &log[12..]].concat();
    for (bytes, reason) in [
        (&b""[..], "the file is no log"),
        (b"kind: Pod\napiVersion: v1\n", "the file is no log"),
        (b"k8scache\x01\0\0\0", "the file is no log"),
        (&of_format(2), "its format 2 is not known"),
        (&of_format(9), "its format 9 is not known"),
        (&foreign, "it belongs to another: \"pods of another cluster\""),
        (&log[..100], "it is damaged"),
    ] {
        fs::write(log_of(folder.path()), bytes).unwrap();
        let (mut user, found) = User::restart(folder.path());
        assert_eq!(found.unwrap().to_string(), reason);
        user.state.put(0, 3);
        assert!(user.save().unwrap(), "{reason}: replaced");
        assert_eq!(User::restart(folder.path()).0.saved, Some(user.state), "{reason}");
    }
    fs::remove_file(log_of(folder.path())).unwrap();
    fs::create_dir(log_of(folder.path())).unwrap();
    assert!(User::restart(folder.path()).1.unwrap().to_string().starts_with("it cannot be read: "));
}

#[test]
fn a_discarded_log_is_removed_and_cannot_be_continued() {
    let folder = tempfile::tempdir().unwrap();
    several_saves(folder.path());
    let (mut user, _) = User::restart(folder.path());
    user.log.discard().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    user.save().unwrap_err();
    user.log.discard().unwrap();
}

/// Goal: other users cannot read files that may contain Secrets. Method: the modes of created and of existing ones.
#[cfg(unix)]
#[test]
fn files_are_for_this_user_alone_and_folders_that_existed_stay_as_they_are() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (created, existing) = (folder.path().join("created/deep"), folder.path().join("existing"));
    fs::create_dir(&existing).unwrap();
    fs::set_permissions(&existing, fs::Permissions::from_mode(0o755)).unwrap();
    for (folder, expected) in [(&created, 0o700), (&existing, 0o755)] {
        create_folder(folder).unwrap();
        let _lock = FileLock::take(&folder.join("lock")).unwrap().unwrap();
        several_saves(folder);
        assert_eq!(mode(folder), expected);
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
        assert_eq!(files.len(), 2, "a log and a lock: {files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }
    assert_eq!(mode(created.parent().unwrap()), 0o700);
}

/// Goal: a power cut loses no folder that was created. Method: a path of three new folders; its parents are synced, existing
/// ones above are not.
#[test]
fn the_names_of_created_folders_are_synced() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    let synced = |path: &str| {
        let mut synced = Vec::new();
        create_synced(&at(path), |folder| {
            synced.push(folder.to_owned());
            Ok(())
        })
        .unwrap();
        synced
    };
    assert_eq!(synced("a/b/c"), [at("a/b"), at("a"), at("")].map(|path| path.components().collect::<PathBuf>()));
    assert_eq!(synced("a/b/d"), [at("a/b")]);
    assert!(synced("a/b/d").is_empty(), "its name was there");
}
