//! Parts of HTTP/2 connections: pages of bodies, frames on their way through h2, unread streams, floods.

pub mod flood;
pub mod gather;
pub mod overdue;
pub mod paged;
pub mod preface;
pub mod settings;
pub mod streams;
