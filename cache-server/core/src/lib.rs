//! One ordered history per resource type: the objects now, a window of recent events, and a cursor for each client.
//!
//! INVARIANT: appending an event costs the same for one watcher and for ten thousand; wake-ups reach only the watchers
//! concerned. INVARIANT: an object's wire bytes exist once; every response is made of slices of them. Does no I/O and
//! reads no clock.
//!
//! In reading order: an object and its bytes ([`entry`]), the format in which a client gets them ([`form`]), a change
//! ([`event`]), the objects that a client selects ([`filter`]), recent changes (`window`, `buckets`), the watchers
//! that wait for them (`interest`), the cache that connects these parts ([`mod@cache`], read through [`reader`]), its
//! objects by node (`nodes`), and the ways in which clients walk it ([`cursor`], [`page`]) into [`slices`].

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
mod nodes;
mod sync;
mod waiting;
mod window;

pub mod cache;
pub mod cursor;
pub mod page;
pub mod reader;
pub mod stats;

pub use cache::{ExpiredPosition, OutOfOrder, Writer, cache, cache_within};
pub use cursor::{Cursor, CursorStart, Step};
pub use entry::{Draft, Entry, EntryError, Field, Schema};
pub use epoch::{HoldKind, WindowHolder};
pub use event::{Change, ChangeKind, Event};
pub use filter::{Filter, UnknownField};
pub use form::{
    Cells, Content, Conversion, Form, Messages, MetaVersion, ObjectGroup, Piece, Row, RowObject, Rows, SlowItem,
    drop_idle_messages, drop_idle_pieces, messages_bytes, pieces_bytes,
};
pub use interest::{BucketWaker, ClosedCache};
pub use limits::{Limits, Total};
pub use page::{Measurement, Page};
pub use reader::{CacheSnapshot, ParkedWatchers, Reader};
pub use slices::{Budget, Slices};
pub use stats::CacheStats;
pub use waiting::PositionWait;
