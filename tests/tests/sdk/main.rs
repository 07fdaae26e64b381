//! The SDK against the server, against servers that break the protocol, and in the seeded world.

mod chaos;
mod checkpoint;
mod components;
mod gzip;
mod history;
mod hostile;
mod informers;
mod kube;
mod pauses;
mod resuming;
mod transport;
mod world;
