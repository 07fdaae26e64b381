//! Random lives of log files: whatever a runtime and a kubelet do between two scans, every line comes out once, in
//! order.

use std::collections::VecDeque;

use super::*;

/// Number of steps of a life.
const STEPS: usize = 120;

/// Number of lives. Each takes a few milliseconds.
const SEEDS: u64 = 150;

/// Number of scans at the end of a life.
const LOOKS: usize = 20;

/// splitmix64, so that equal seeds give equal lives.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

/// The files of a container, as a runtime and a kubelet treat them.
struct Life {
    lab: Lab,
    /// True for every other life: few files may be open. Files deleted then may lose lines, so none is deleted.
    is_short_of_files: bool,
    random: Random,
    written: u64,
    restarts: u32,
    /// The file written to. Between a rename and the reopening it is the renamed one.
    writes_to: String,
    rotated: VecDeque<String>,
    /// The parts of an incomplete line per stream.
    begun: [String; 2],
    expected: Vec<String>,
    came: Vec<String>,
    /// True if all files were open at the last scan, and none was created since: deleted files are still read then.
    all_open: bool,
    /// True if a file was deleted since the last scan.
    has_deleted: bool,
}

impl Life {
    fn new(seed: u64) -> Self {
        let is_short_of_files = seed % 2 == 1;
        let files_open_max = if is_short_of_files { 2 } else { 256 };
        Self {
            lab: Lab::with(&format!("life-{seed}"), Limits { files_open_max, ..LIMITS }),
            is_short_of_files,
            random: Random(seed),
            written: 0,
            restarts: 0,
            writes_to: "app/0.log".to_owned(),
            rotated: VecDeque::new(),
            begun: Default::default(),
            expected: Vec::new(),
            came: Vec::new(),
            all_open: false,
            has_deleted: false,
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..10 => self.write(),
            10..14 => self.look(),
            14 => self.rename(),
            15 => self.reopen(),
            16 => self.compress(),
            17 => self.crash_and_restart(),
            18 => self.restart(),
            _ => self.half_a_line(),
        }
    }

    /// Writes a full line, or a part of one, to either stream.
    fn write(&mut self) {
        self.written += 1;
        let stream = self.random.below(2);
        let is_last = self.random.below(3) > 0;
        let text = format!("{}.", self.written);
        let line = format!("{} {} {text}", ["stdout", "stderr"][stream], if is_last { "F" } else { "P" });
        self.append(&line);
        self.begun[stream].push_str(&text);
        if is_last {
            let whole = std::mem::take(&mut self.begun[stream]);
            self.expected.push(format!("app:{whole}"));
        }
    }

    fn append(&mut self, line: &str) {
        self.all_open &= self.lab.path(&self.writes_to).exists();
        let line = format!("2026-11-20T16:00:00.{:09}Z {line}\n", self.written);
        self.lab.append(&self.writes_to, &line);
    }

    /// Writes a line in two halves, with a scan in between.
    fn half_a_line(&mut self) {
        self.written += 1;
        self.all_open &= self.lab.path(&self.writes_to).exists();
        self.lab.append(&self.writes_to, &format!("2026-11-20T16:00:00.{:09}Z stderr F {}", self.written, "h"));
        self.look();
        self.lab.append(&self.writes_to, "alf\n");
        let whole = std::mem::take(&mut self.begun[1]);
        self.expected.push(format!("app:{whole}half"));
    }

    fn look(&mut self) {
        self.came.extend(self.lab.read());
        self.all_open = true;
        self.has_deleted = false;
    }

    fn current(&self) -> String {
        format!("app/{}.log", self.restarts)
    }

    fn rename(&mut self) {
        // The kubelet waits for the runtime to reopen before it rotates again.
        if self.writes_to == self.current() && self.lab.path(&self.writes_to).exists() {
            let rotated = format!("{}.20261120-{:06}", self.current(), self.written);
            if self.rotated.back() != Some(&rotated) {
                fs::rename(self.lab.path(&self.writes_to), self.lab.path(&rotated)).unwrap();
                self.rotated.push_back(rotated.clone());
                self.writes_to = rotated;
            }
        }
    }

    fn reopen(&mut self) {
        self.writes_to = self.current();
    }

    /// Replaces the oldest rotated file by a compressed copy. Its unread lines are still read, because it is open. Not
    /// done while a line in parts may begin in it, because its parts could not be read again after a restart.
    fn compress(&mut self) {
        let is_whole = self.begun.iter().all(String::is_empty);
        if is_whole
            && self.all_open
            && !self.is_short_of_files
            && self.rotated.front().is_some_and(|file| *file != self.writes_to)
        {
            let file = self.rotated.pop_front().unwrap();
            fs::write(self.lab.path(&format!("{file}.gz")), "compressed\n").unwrap();
            fs::remove_file(self.lab.path(&file)).unwrap();
            self.has_deleted = true;
        }
    }

    /// Restarts the collector. Scans first if a file was deleted, because a restart would lose its unread lines in any
    /// case.
    fn restart(&mut self) {
        if self.has_deleted {
            self.look();
        }
        self.lab.restart();
        self.all_open = false;
    }

    /// The container ends in the middle of its lines and is restarted, with a new file.
    fn crash_and_restart(&mut self) {
        self.restarts += 1;
        self.reopen();
        self.written += 1;
        // The first line of the new file makes the collector end the pending lines, stdout first.
        for begun in &mut self.begun {
            let begun = std::mem::take(begun);
            self.expected.extend((!begun.is_empty()).then(|| format!("app:{begun}~")));
        }
        self.append("stdout F started");
        self.expected.push("app:started".to_owned());
    }
}

#[test]
fn every_line_comes_once_whatever_happens_to_its_file() {
    for seed in 0..SEEDS {
        let mut life = Life::new(seed);
        (0..STEPS).for_each(|_| life.step());
        // Each scan opens at least two files, and a life has fewer than forty.
        (0..LOOKS).for_each(|_| life.look());
        assert_eq!(life.came, life.expected, "seed {seed}");
    }
}
