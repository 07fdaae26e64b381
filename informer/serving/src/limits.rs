//! Limits of what a server makes.

/// Causes listed in one Status; further ones are counted. Memory: about 300 bytes each, besides the values they repeat.
pub const CAUSES_MAX: usize = 100;
