//! What the counted benches have in common: how a limit is said, and the objects they work on.
//!
//! INVARIANT: a limit is the count of the day it was set and about an eighth more of instructions, a twelfth of allocations
//! and a tenth of bytes; none more where allocations are promised. Whoever makes a path cheaper lowers its limit.
//! Instructions differ a little between compilers, C libraries and processors (`memchr` and `zlib-rs` choose by what the
//! processor has), allocations do not.

use gungraun::{Callgrind, Dhat, DhatMetric, EventKind, LibraryBenchmarkConfig};

/// What one bench may cost: instructions, allocations (one that grows or moves counts again), and bytes of them. Above any
/// it fails, whatever it cost before.
pub(crate) fn limits(instructions: u64, allocations: u64, bytes: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::with_args(["--cache-sim=no"]).hard_limits([(EventKind::Ir, instructions)]));
    // As many callers as reach the bench, or what it calls from far below would not count.
    config.tool(
        Dhat::with_args(["--num-callers=200"])
            .hard_limits([(DhatMetric::TotalBlocks, allocations), (DhatMetric::TotalBytes, bytes)]),
    );
    config
}
