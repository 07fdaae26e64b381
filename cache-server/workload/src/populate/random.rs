//! Random uids, name suffixes, digests, addresses and times, as found in clusters. A seed determines the sequence.

use std::fmt::Write as _;

use crate::ids::{self, NAME_ALPHABET};

/// The newest time of generated objects: 2026-01-01T00:00:00Z. Fixed, so that equal seeds give equal bytes.
const NOW: i64 = 1_767_225_600;

/// Age of the oldest objects at [`NOW`] in seconds: 90 days.
const HISTORY: i64 = 90 * 24 * 3600;

pub(super) struct Random(fastrand::Rng);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number in `low..=high`.
    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        self.0.u32(low..=high)
    }

    /// Returns true in `percent` of the calls.
    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.0.u32(0..100) < percent
    }

    pub(super) fn pick<'a, T: ?Sized>(&mut self, words: &[&'a T]) -> &'a T {
        words[self.0.usize(0..words.len())]
    }

    /// A random (version 4) UUID.
    pub(super) fn uid(&mut self) -> String {
        ids::uuid_of(self.0.u128(..)).to_string()
    }

    /// `digits` random hexadecimal digits; 64 look like a SHA-256 digest.
    pub(super) fn hex(&mut self, digits: usize) -> String {
        let mut text = String::with_capacity(digits + 16);
        while text.len() < digits {
            let _ = write!(text, "{:016x}", self.0.u64(..));
        }
        text.truncate(digits);
        text
    }

    /// A name suffix, as in `kube-api-access-x7k2p`.
    pub(super) fn suffix(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from(NAME_ALPHABET[self.0.usize(0..NAME_ALPHABET.len())])).collect()
    }

    /// A random time in the last 90 days before [`NOW`], in Unix seconds.
    pub(super) fn moment(&mut self) -> i64 {
        NOW - self.0.i64(3600..HISTORY)
    }
}

/// Formats Unix seconds like Kubernetes: `2026-01-01T00:00:00Z`.
pub(super) fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_four() {
        let mut random = Random::new(7);
        for _ in 0..100 {
            let uid = random.uid();
            assert_eq!(uid.len(), 36);
            assert_eq!(uid.as_bytes()[14], b'4', "{uid}");
            assert!(b"89ab".contains(&uid.as_bytes()[19]), "{uid}");
        }
    }

    #[test]
    fn times_are_kubernetes_times() {
        assert_eq!(time(NOW), "2026-01-01T00:00:00Z");
        let mut random = Random::new(7);
        assert!((0..100).map(|_| random.moment()).all(|moment| (NOW - HISTORY..NOW).contains(&moment)));
    }
}
