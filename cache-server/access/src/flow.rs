//! Flow control, as API Priority and Fairness: which requests wait, and which are refused, so that no user starves others.
//!
//! A FlowSchema sorts a request into a priority level and a flow. Each level has seats of the server's, and may borrow more
//! from levels that do not need theirs. A request occupies as many seats as it is expected to cost. Requests that find no
//! seats wait in queues: each flow in few of them, so that one with many requests leaves the queues of others short.
//!
//! INVARIANT: time and seeds are arguments; a request that waits is a number, which the caller connects with its task.
//!
//! In reading order: [`objects`] (the two types), [`bootstrap`] (those of every cluster), [`config`] (the schema of a
//! request), [`estimate`] (its seats), [`queues`] (who is next), [`levels`] (who borrows), [`retry_after`].

pub mod bootstrap;
pub mod config;
mod dealer;
mod demand;
pub mod estimate;
mod fields;
pub mod levels;
pub mod objects;
pub mod queues;
pub mod retry_after;

pub use fields::FlowObjectError;
