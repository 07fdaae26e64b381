//! One ordered history per resource type: the objects now, a window of recent events, and a cursor for each client.
//!
//! INVARIANT: appending an event costs the same for one watcher and for ten thousand; waking costs only those it
//! concerns. INVARIANT: an object's wire bytes exist once; everything sent is a slice of them. Does no I/O and knows no
//! clock.

