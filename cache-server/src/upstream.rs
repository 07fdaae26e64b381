//! The API server behind this one: checks, before a cached read is answered, that it would answer the caller too.

#[cfg_attr(not(test), expect(dead_code, reason = "no request is passed on yet; the cache holds what clients wrote"))]
mod rights;
