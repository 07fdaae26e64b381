//! The wire format between a Kubernetes API server and its clients, as a client reads it: watch frames, list bodies,
//! errors, marks. Servers write it with the crate `informer-serving`.

pub mod framer;
pub mod go;
pub mod json;
pub mod marks;
pub mod status;
pub mod watch_event;
