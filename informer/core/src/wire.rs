//! The wire format between a Kubernetes API server and its clients: watch frames, list bodies, errors, tokens.

pub mod continue_token;
pub mod framer;
pub mod go;
pub mod json;
pub mod list;
pub mod marks;
pub mod options;
pub mod query;
pub mod reads;
pub mod status;
pub mod watch_event;
