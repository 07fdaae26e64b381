//! Returns memory to the system after bursts.
//!
//! glibc keeps freed memory for the next burst: each thread's arena grows to the largest burst it has seen and stays
//! that large. A task checks the process's size once a second and trims once it is quiet after a rise.
//!
//! `malloc_trim` does not reach the free end of a thread's arena, which glibc returns when it exceeds a threshold. By
//! default that threshold follows the largest block freed, up to 64 MiB for each arena; here it is fixed, from the start
//! of the program on.
//!
//! Each arena stays as large as its largest share of the window has been, and shares move with the threads that read events.
//! So there is one arena for each [`ARENA_CORES`] cores, unless `MALLOC_ARENA_MAX` in the environment says otherwise: with
//! a full window and 63.6 MB in use all the time, two arenas grew from 70.7 to 75.1 MB within fifteen minutes.

use crate::{
    cacher::Caches,
    limits::{self, TRIM_BYTES, TRIM_EVERY},
    metrics::{Metrics, resident_bytes},
};

/// Trims after bursts, for ever. Cost at rest: one read of `/proc` per second.
pub(crate) async fn trim_after_bursts(metrics: &Metrics, caches: &Caches) {
    let mut watch = TrimPolicy::default();
    loop {
        tokio::time::sleep(TRIM_EVERY).await;
        let Some(resident) = resident_bytes() else { return };
        let ended = metrics.connections_ended();
        let gone = caches.bytes_gone();
        if watch.look(resident, ended, gone) {
            trim();
            watch.trimmed(resident_bytes().unwrap_or(resident), ended, gone);
        }
    }
}

/// Consecutive checks without growth that count as quiet.
const QUIET_LOOKS: u32 = 2;

/// Minimum number of checks between two trims while connections end continually.
const BUSY_LOOKS: u32 = 10;

/// Minimum number of checks between two trims while caches evict steadily: freed memory is soon reused then.
const CHURN_LOOKS: u32 = 60;

/// Quiet checks after which even a fraction of [`TRIM_BYTES`] is returned, once.
const SETTLED_LOOKS: u32 = 10;

/// Decides when to trim.
#[derive(Debug, Default)]
struct TrimPolicy {
    /// Size after the last trim.
    floor: u64,
    /// Number of ended connections at the last trim.
    ended: u64,
    /// Bytes evicted by caches at the last trim.
    gone: u64,
    /// Bytes evicted by caches at the last check.
    gone_last: u64,
    /// Consecutive checks in which caches evicted little.
    still: u32,
    /// Size at the last check.
    last: u64,
    /// Consecutive checks without growth.
    quiet: u32,
    /// Checks since the last trim.
    looks: u32,
}

impl TrimPolicy {
    /// Runs one check. Returns true if it is time to trim: the size does not grow, and either it is clearly above the
    /// last floor, or connections have ended or caches have evicted much since, whose memory glibc keeps without a
    /// change in size. If the last trim came in the middle of a burst, its tail is below those bounds and is trimmed
    /// later.
    fn look(&mut self, resident: u64, ended: u64, gone: u64) -> bool {
        let grew = resident > self.last + TRIM_BYTES / 4;
        self.quiet = if grew { 0 } else { self.quiet + 1 };
        self.last = resident;
        self.looks += 1;
        let risen = resident > self.floor + TRIM_BYTES;
        let left = ended > self.ended && (self.looks >= BUSY_LOOKS || resident > self.floor);
        self.still = if gone > self.gone_last + TRIM_BYTES / 4 { 0 } else { self.still + 1 };
        self.gone_last = gone;
        let is_over = self.still >= QUIET_LOOKS || self.looks >= CHURN_LOOKS;
        let let_go = gone > self.gone + TRIM_BYTES && is_over;
        let tail = resident > self.floor + TRIM_BYTES / 4 || gone > self.gone + TRIM_BYTES / 4;
        let settled = tail && self.quiet.min(self.still) >= SETTLED_LOOKS;
        self.quiet >= QUIET_LOOKS && (risen || left || let_go || settled)
    }

    fn trimmed(&mut self, resident: u64, ended: u64, gone: u64) {
        let (floor, last, gone_last) = (resident, resident, gone);
        *self = Self { floor, last, ended, gone, gone_last, quiet: 0, still: 0, looks: 0 };
    }
}

/// Bounds the number of arenas, unless the environment does, and fixes the threshold of their free ends. For the start of
/// the program, before other threads allocate, and before any large block is freed, which would change the threshold.
pub(crate) fn prepare() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tune(std::env::var_os("MALLOC_ARENA_MAX").is_none().then_some(cores.div_ceil(ARENA_CORES)));
}

/// Cores that share an arena, whose lock they take for what the caches of their threads lack.
const ARENA_CORES: usize = 4;

/// Returns the free memory of all arenas to the system, and fixes the threshold of their free ends. Cost: milliseconds,
/// walks the free lists. After the first call, blocks of 128 KiB and more have a mapping of their own.
pub(crate) fn trim() {
    tune(None);
}

/// Trims, and bounds the number of arenas to come.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn tune(arenas: Option<usize>) {
    let free_end = limits::ARENA_FREE_END_MAX.try_into().expect("a small number");
    let arenas = arenas.and_then(|arenas| arenas.try_into().ok());
    let settings =
        arenas.map(|arenas| (libc::M_ARENA_MAX, arenas)).into_iter().chain([(libc::M_TRIM_THRESHOLD, free_end)]);
    for (name, value) in settings {
        #[expect(
            unsafe_code,
            reason = "glibc's calls to give memory back; they take no pointer and are safe at any time"
        )]
        // SAFETY: both only touch the allocator's own state, under its own locks.
        let _ = unsafe { (libc::mallopt(name, value), libc::malloc_trim(0)) };
    }
}

/// Other allocators return memory on their own.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn tune(_: Option<usize>) {}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Checks once per second with (MiB, ended connections) and asserts the checks at which it trims, to `floor` MiB.
    fn check(floor: u64, looks: &[(u64, u64)], expected: &[usize]) {
        let mut watch = TrimPolicy::default();
        watch.trimmed(floor * MIB, 0, 0);
        let mut trims = Vec::new();
        for (second, &(size, ended)) in looks.iter().enumerate() {
            if watch.look(size * MIB, ended, 0) {
                trims.push(second);
                watch.trimmed(floor * MIB, ended, 0);
            }
        }
        assert_eq!(trims, expected);
    }

    #[test]
    fn trims_once_after_a_burst_and_not_during_it() {
        let sizes = [40, 40, 41, 80, 120, 160, 160, 160, 42, 42, 42, 42];
        check(40, &sizes.map(|size| (size, 0)), &[7]);
    }

    /// Goal: a trim in the middle of a burst does not keep the burst's tail. Method: 20 MiB and then 3 MiB, which is
    /// less than a burst, with a trim between them.
    #[test]
    fn the_tail_of_a_burst_is_given_back_once_it_is_quiet() {
        let mut looks = vec![(40, 0), (60, 0), (60, 0), (60, 0)];
        looks.extend([(43, 0); 14]);
        check(40, &looks, &[3, 14]);
    }

    #[test]
    fn what_cannot_be_given_back_is_asked_for_once() {
        check(200, &[(200, 0); 100], &[]);
    }

    #[test]
    fn memory_of_connections_that_ended_is_given_back_though_the_size_does_not_show_it() {
        check(
            200,
            &[
                (200, 0),
                (200, 0),
                (200, 0),
                (200, 64),
                (200, 64),
                (200, 64),
                (200, 64),
                (200, 64),
                (200, 64),
                (200, 64),
            ],
            &[9],
        );
    }

    /// Goal: memory of deleted objects is returned even if no connection ends. Method: evicted MiB in a process of
    /// constant size; all of it at once, or some all the time.
    #[test]
    fn memory_that_caches_let_go_of_is_given_back_though_the_size_does_not_show_it() {
        let trims = |gone: &[u64]| {
            let mut watch = TrimPolicy::default();
            watch.trimmed(200 * MIB, 0, 0);
            let mut trims = Vec::new();
            for (second, gone) in gone.iter().enumerate() {
                if watch.look(200 * MIB, 0, gone * MIB) {
                    trims.push(second);
                    watch.trimmed(200 * MIB, 0, gone * MIB);
                }
            }
            trims
        };
        assert_eq!(trims(&[0, 0, 10, 20, 30, 30, 30, 30, 30, 30, 33, 33, 33, 33]), [6]);
        let churn: Vec<u64> = (0..150).map(|second| second * 3).collect();
        assert_eq!(trims(&churn), [59, 119]);
    }

    #[test]
    fn connections_that_end_all_the_time_cost_a_trim_every_ten_looks() {
        let looks: Vec<_> = (0..40).map(|second| (40, second)).collect();
        check(40, &looks, &[9, 19, 29, 39]);
    }
}
