//! One ordered history per resource type: the objects now, a window of recent events, and a cursor for each client.
//!
//! INVARIANT: appending an event costs the same for one watcher and for ten thousand; waking costs only those it
//! concerns. INVARIANT: an object's wire bytes exist once; everything sent is a slice of them. Does no I/O and knows no
//! clock.
//!
//! In reading order: an object and its bytes ([`entry`]), which of them a client gets ([`form`]), a change of it ([`event`]), which objects a client wants
//! ([`filter`]), recent changes (`window`, `buckets`), who waits for them (`interest`), the cache that ties them
//! together ([`mod@cache`], read through [`reader`]), and how clients walk it ([`cursor`], [`page`]) into [`slices`].

pub mod limits;

pub mod entry;
pub mod event;
pub mod filter;
pub mod form;
pub mod slices;

mod backlog;
mod buckets;
mod epoch;
mod interest;
mod sync;
mod waiting;
mod window;

pub mod cache;
pub mod cursor;
pub mod page;
pub mod reader;
pub mod stats;

pub use cache::{Expired, OutOfOrder, Writer, cache, cache_within};
pub use cursor::{Cursor, Start, Step};
pub use entry::{Draft, Entry, EntryError, Field, Schema};
pub use event::{Change, Event, EventKind};
pub use filter::{Filter, UnknownField};
pub use form::{Cells, Content, Form, Meta, Piece, Row, RowObject, Rows, SlowItem, pieces_bytes};
pub use interest::{Closed, Waking};
pub use limits::{Limits, Total};
pub use page::Page;
pub use reader::{Reader, Snapshot};
pub use slices::{Budget, Slices};
pub use stats::Stats;
pub use waiting::Reached;
