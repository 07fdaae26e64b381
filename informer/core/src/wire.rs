//! What travels between a Kubernetes API server and its clients: watch frames, list bodies, errors, tokens.

pub mod continue_token;
pub mod framer;
pub mod go;
pub mod json;
pub mod list;
pub mod status;
pub mod watch_event;
