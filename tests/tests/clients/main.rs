//! Programs of others against the built server: client libraries in several languages, kubectl, and a browser.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod chromium;
mod commands;
mod deploy;
mod faults;
mod kubectl;
mod libraries;
mod messages;
mod origins;
mod page;
mod pages;
mod programs;
mod recipes;
mod running;
mod upstream;

/// The server binary of all cases.
const SERVER: &str = env!("CARGO_BIN_EXE_tests-cache-server");
