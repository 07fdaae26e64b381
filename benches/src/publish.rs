//! What taking an event in costs the cache, whoever watches.
