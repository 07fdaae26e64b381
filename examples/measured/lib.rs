//! Parts of the examples that measure a server: child processes, memory as counted by the kernel, and pictures.

pub mod child;
pub mod memory;
pub mod picture;
pub mod server;

/// Any error, printed as one line.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
