//! Files that change, break and hang while they are watched.

use std::{fs, time::Duration};

use tokio::time::{Instant, sleep};

use super::*;

fn number(content: &[u8]) -> Result<u32, String> {
    let text = std::str::from_utf8(content).map_err(|_| "it is no text".to_owned())?;
    text.trim().parse().map_err(|_| "it is no number".to_owned())
}

/// Replaces a file by a FIFO that has no writer.
fn make_fifo(path: &Path) {
    let _ = fs::remove_file(path);
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[tokio::test]
async fn a_broken_file_replaces_nothing() {
    let (watcher, folder) = (FileWatcher::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("number");
    assert!(WatchedFile::load(&watcher, &path, number).await.is_err(), "there is no file");
    fs::write(&path, "x").unwrap();
    let error = WatchedFile::load(&watcher, &path, number).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.ends_with("number: it is no number"), "{error}");
    fs::write(&path, "1").unwrap();
    let file = WatchedFile::load(&watcher, &path, number).await.unwrap();
    for (content, expected) in [(Some("2"), (2, 2)), (Some("x"), (2, 2)), (None, (2, 2)), (Some("2"), (2, 2))] {
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        watcher.check().await;
        let (value, generation) = file.current();
        assert_eq!((*value, generation), expected, "{content:?}");
    }
    fs::write(&path, "3".repeat(1 + usize::try_from(WATCHED_FILE_BYTES_MAX).unwrap())).unwrap();
    watcher.check().await;
    assert_eq!(*file.current().0, 2);
}

/// Goal: a change is noticed without any request. Method: a server's task, with nothing but time.
#[tokio::test(start_paused = true)]
async fn a_change_needs_no_reader() {
    let (watcher, folder) = (FileWatcher::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("number");
    fs::write(&path, "1").unwrap();
    let file = WatchedFile::load(&watcher, &path, number).await.unwrap();
    fs::write(&path, "2").unwrap();
    let changed = Instant::now();
    while *file.current().0 != 2 {
        assert!(changed.elapsed() <= FILE_CHECK_EVERY + Duration::from_millis(100), "not in time");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Goal: a file that became a FIFO or a device is an error, and holds nothing up. Method: such files beside a good one.
#[tokio::test]
async fn a_fifo_is_no_file() {
    let (watcher, folder) = (FileWatcher::default(), tempfile::tempdir().unwrap());
    let [path, other] = ["number", "other"].map(|name| folder.path().join(name));
    make_fifo(&path);
    let error = WatchedFile::load(&watcher, &path, number).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.ends_with("number: it is no regular file"), "{error}");
    fs::remove_file(&path).unwrap();
    for path in [&path, &other] {
        fs::write(path, "1").unwrap();
    }
    let file = WatchedFile::load(&watcher, &path, number).await.unwrap();
    let beside = WatchedFile::load(&watcher, &other, number).await.unwrap();
    make_fifo(&path);
    fs::write(&other, "2").unwrap();
    watcher.check().await;
    assert_eq!((*file.current().0, *beside.current().0), (1, 2));
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    fs::write(&other, "3").unwrap();
    watcher.check().await;
    assert_eq!((*file.current().0, *beside.current().0), (1, 3));
}

/// A source whose check hangs until it is released, as a file on a server that is away.
struct Hanging {
    begun: std::sync::atomic::AtomicUsize,
    released: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl WatchedSource for Hanging {
    fn check(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _ = self.released.lock().recv();
    }
}

/// Goal: a disk that hangs occupies one thread and delays no other file. Method: rounds of checks beside a hanging one.
#[tokio::test]
async fn a_file_that_hangs_delays_no_other() {
    let (watcher, folder) = (FileWatcher::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("number");
    fs::write(&path, "1").unwrap();
    let (release, released) = std::sync::mpsc::channel();
    let hanging = Arc::new(Hanging { begun: 0.into(), released: Mutex::new(released) });
    watcher.watch(&hanging);
    let file = WatchedFile::load(&watcher, &path, number).await.unwrap();
    let mut checks = Vec::new();
    for round in 2..6 {
        fs::write(&path, round.to_string()).unwrap();
        checks.extend(watcher.0.check_all());
        while *file.current().0 != round {
            sleep(Duration::from_millis(1)).await;
        }
        // The check of the file may not have ended yet.
        while watcher.0.all.lock()[1].is_busy.load(Ordering::Acquire) {
            sleep(Duration::from_millis(1)).await;
        }
    }
    assert_eq!(hanging.begun.load(Ordering::SeqCst), 1, "one thread waits");
    drop(release);
    for check in checks {
        check.await.unwrap();
    }
    watcher.check().await;
    assert_eq!(hanging.begun.load(Ordering::SeqCst), 2, "it is checked again once it ended");
}

/// Goal: a parser that panics ends neither the task nor the checks of its file.
#[tokio::test]
async fn a_panic_ends_no_checks() {
    fn fussy(content: &[u8]) -> Result<u32, String> {
        assert_ne!(content, b"panic", "as the test wants");
        number(content)
    }
    let (watcher, folder) = (FileWatcher::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("number");
    fs::write(&path, "1").unwrap();
    let file = WatchedFile::load(&watcher, &path, fussy).await.unwrap();
    fs::write(&path, "panic").unwrap();
    for check in watcher.0.check_all() {
        assert!(check.await.is_err());
    }
    fs::write(&path, "2").unwrap();
    watcher.check().await;
    assert_eq!(*file.current().0, 2);
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_watcher() {
    let watcher = FileWatcher::default();
    let source = Arc::new(Hanging { begun: 0.into(), released: Mutex::new(std::sync::mpsc::channel().1) });
    watcher.watch(&source);
    let sources = Arc::downgrade(&watcher.0);
    drop(watcher);
    sleep(FILE_CHECK_EVERY * 2).await;
    assert_eq!((sources.strong_count(), source.begun.load(Ordering::SeqCst)), (0, 0));
}
