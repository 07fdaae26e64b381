//! Bounds of the memory and time that one server may cost.

use std::time::Duration;

/// Bytes of one answer. Metrics of 1,000 types with ten kinds of requests each have some 20 MB.
pub(crate) const TOP_ANSWER_BYTES_MAX: usize = 64 << 20;

/// Timeout for connecting to a server.
pub(crate) const TOP_CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Timeout for a whole answer, including connecting.
pub(crate) const TOP_ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Watches in one page, the most that a server sends.
pub(crate) const WATCH_PAGE: usize = 500;

/// Pages of watches that are read for one frame: further watches are only counted. Memory: some 500 bytes a watch.
pub(crate) const WATCH_PAGES_MAX: usize = 8;

/// Readings whose memory is kept, eight minutes at 2 s. Memory: 8 bytes each.
pub(crate) const MEMORY_READINGS_MAX: usize = 240;

/// Characters of a text of the server, such as a user agent. The rest is dropped.
pub(crate) const TEXT_CHARS_MAX: usize = 200;

/// Characters of a filter.
pub(crate) const FILTER_CHARS_MAX: usize = 100;

/// Bytes of a token's file.
pub(crate) const TOKEN_BYTES_MAX: u64 = 64 << 10;
