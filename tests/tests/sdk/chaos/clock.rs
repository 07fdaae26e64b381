//! Wall clocks of the servers, which jump: a library before libc shifts them by the seconds in a file.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use fastrand::Rng;
use tempfile::TempDir;

/// Longest jump to either side, in seconds: a correction, a time zone, a month.
const JUMPS: [i64; 3] = [5, 3_600, 30 * 86_400];

pub(crate) struct Clocks {
    folder: TempDir,
}

impl Clocks {
    /// Builds the library, which needs a C compiler, as the workspace does.
    pub(crate) fn build() -> Self {
        let clocks = Self { folder: TempDir::new().unwrap() };
        let source = clocks.folder.path().join("clock.c");
        fs::write(&source, include_str!("clock.c")).unwrap();
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&clocks.library(), &source]).status();
        assert!(built.unwrap().success(), "cc does not build the library");
        clocks
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("clock.so")
    }

    fn file(&self, server: usize) -> PathBuf {
        self.folder.path().join(server.to_string())
    }

    /// Variables of the environment of a server, whose clock is wrong from the start.
    pub(crate) fn environment(&self, server: usize, rng: &mut Rng) -> [(&'static str, String); 2] {
        fs::write(self.file(server), draw(rng).to_ne_bytes()).unwrap();
        let text = |path: PathBuf| path.display().to_string();
        [("LD_PRELOAD", text(self.library())), ("CLOCK_OFFSET_FILE", text(self.file(server)))]
    }

    /// Sets the clock of a server to another time.
    pub(crate) fn jump(&self, server: usize, rng: &mut Rng) {
        // In place: the server has mapped the file.
        let mut file = File::options().write(true).open(self.file(server)).unwrap();
        file.write_all(&draw(rng).to_ne_bytes()).unwrap();
    }
    /// The time of a server's clock, in seconds since 1970.
    pub(crate) fn now(&self, server: usize) -> i64 {
        let offset = i64::from_ne_bytes(fs::read(self.file(server)).unwrap().try_into().unwrap());
        offset + seconds(SystemTime::now())
    }
}

/// Draws an offset.
fn draw(rng: &mut Rng) -> i64 {
    let longest = rng.choice(JUMPS).unwrap();
    rng.i64(-longest..=longest)
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}
