//! Wall clocks of the servers, which jump: a library before libc shifts them by the seconds in a file.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::Command,
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

    fn offset(&self, server: usize) -> PathBuf {
        self.folder.path().join(server.to_string())
    }

    /// Variables of the environment of a server, whose clock is right at first.
    pub(crate) fn environment(&self, server: usize) -> [(&'static str, String); 2] {
        fs::write(self.offset(server), 0_i64.to_ne_bytes()).unwrap();
        let text = |path: PathBuf| path.display().to_string();
        [("LD_PRELOAD", text(self.library())), ("CLOCK_OFFSET_FILE", text(self.offset(server)))]
    }

    /// Sets the clock of a server to another time.
    pub(crate) fn jump(&self, server: usize, rng: &mut Rng) {
        let longest = rng.choice(JUMPS).unwrap();
        // In place: the server has mapped the file.
        let mut file = File::options().write(true).open(self.offset(server)).unwrap();
        file.write_all(&rng.i64(-longest..=longest).to_ne_bytes()).unwrap();
    }
}
