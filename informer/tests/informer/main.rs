//! Tests of the SDK against scripted and fake servers: in memory with paused time, over sockets, and finite responses.

#![expect(clippy::unwrap_used, reason = "a fixture that fails is a test that fails")]

mod fixture;
mod serving;

mod answers;
mod checkpoint;
mod conditions;
mod controllers;
mod controllers_failing;
mod controllers_living;
mod endpoints;
mod fake;
mod gzip;
mod histories;
mod indexes;
mod lease;
mod lifecycle;
mod liveness;
mod logs;
#[cfg(feature = "metrics")]
mod metrics;
mod odd;
mod outages;
mod overload;
mod plain;
mod probes;
mod proofs;
mod raw;
mod reading;
mod representations;
mod resuming;
mod runtime;
mod runtime_corners;
mod runtime_delays;
mod selections;
mod sharing;
mod sharing_ends;
mod skipping;
mod sockets;
mod status;
mod storms;
mod subscribing;
mod timing;
mod transport;
mod wire;
mod writes;
