//! Limits of what a server makes.

/// Causes listed in one Status; further ones are counted. Memory: about 300 bytes each, besides the values they repeat.
pub const CAUSES_MAX: usize = 100;

/// Bytes of the causes listed in one Status, which repeat paths and values, after which further ones are counted.
pub const CAUSES_BYTES_MAX: usize = 1 << 20;
