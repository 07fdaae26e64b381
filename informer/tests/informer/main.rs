//! The SDK against servers that do as they are told: in memory with paused time, over sockets, and finite answers.

#![expect(clippy::unwrap_used, reason = "a fixture that fails is a test that fails")]

mod fixture;
mod serving;

mod answers;
mod checkpoint;
mod endpoints;
mod liveness;
mod proofs;
mod fake;
mod raw;
mod reading;
mod runtime;
mod runtime_delays;
mod sockets;
mod subscribing;
mod timing;
mod wire;
