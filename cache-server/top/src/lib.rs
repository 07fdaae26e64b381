//! `cache-server top`: the state of a running server in a terminal, or as one frame of plain text.
//!
//! Internal to `cache-server`: no stable API.
//!
//! INVARIANT: only `client` and `run` do I/O. Texts of the server are cleaned when they are read, in `reading`.

#![allow(rustdoc::private_intra_doc_links, reason = "internal: read with the code")]

pub mod client;
mod draw;
pub mod exposition;
mod frame;
mod grid;
mod limits;
mod reading;
pub mod run;
mod screen;
