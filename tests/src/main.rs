//! The server binary: one call.

fn main() {}
