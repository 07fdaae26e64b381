//! Answers HTTP: routes a request, and turns every outcome into a response.

pub mod body;
mod discovery;
mod list;
mod negotiate;
mod query;
mod route;
mod status;
mod watch;
mod write;
