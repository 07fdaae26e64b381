//! Limits and objects shared by the counted benches.
//!
//! INVARIANT: a limit is the count of the day it was set plus about an eighth of the instructions, a twelfth of the
//! allocations and a tenth of the bytes, and nothing for paths that promise not to allocate. A change that makes a path
//! cheaper lowers its limit.
//!
//! Instructions differ slightly between compilers, C libraries and processors (`memchr` and `zlib-rs` select code by
//! CPU features); allocations do not.

use gungraun::{Callgrind, Dhat, DhatMetric, EventKind, LibraryBenchmarkConfig};

/// Limits of a bench: instructions, allocations (a reallocation counts again), and allocated bytes. The bench fails
/// above any of them, regardless of earlier results.
pub(crate) fn limits(instructions: u64, allocations: u64, bytes: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::with_args(["--cache-sim=no"]).hard_limits([(EventKind::Ir, instructions)]));
    // Deep enough to include the bench function in each stack; allocations in deeper calls would not count otherwise.
    config.tool(
        Dhat::with_args(["--num-callers=200"])
            .hard_limits([(DhatMetric::TotalBlocks, allocations), (DhatMetric::TotalBytes, bytes)]),
    );
    config
}
