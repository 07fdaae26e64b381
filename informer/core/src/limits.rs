//! Every bound of the core by name, with its unit and what it costs.

use std::time::Duration;

/// One object while it is framed, in bytes; the default of `object_bytes_max`. Memory: one such buffer a session.
/// An object above it is skipped. kube-apiserver accepts bodies of 3 MiB, so sixteen leaves room for growth.
pub const OBJECT_BYTES_MAX: usize = 16 << 20;

/// Bytes of a LIST body outside its items (kind, apiVersion, metadata), and of the frame around a watch event's object.
pub const ENVELOPE_BYTES_MAX: usize = 64 << 10;

/// Nesting of one JSON document that is read. Memory: one bit a level. kube-apiserver accepts more in custom resources
/// with unknown fields: its JSON decoder, Go's, stops at 10,000 levels. An object above it is skipped: hardly any reader
/// could decode it (`serde_json` stops at 128), and most decoders recurse.
pub const DEPTH_MAX: usize = 512;

/// Nesting of an object while it is skipped: Go's 10,000, and the watch event or list around it. Memory: one bit a
/// level. A body that is deeper ends with an error.
pub const SKIPPED_DEPTH_MAX: usize = 10_048;

/// One name of a skipped object (its namespace, name, uid, resourceVersion, kind or apiVersion), in bytes. Longer ones
/// count as not readable.
pub const SKIPPED_NAME_BYTES_MAX: usize = 8 << 10;

/// What the framer keeps allocated between objects, in bytes. One large object must not pin its size for ever.
pub const FRAMER_KEEP_BYTES: usize = 256 << 10;

/// What is kept allocated for the keys of objects, in bytes: a namespace, a slash and a name have 317 at most.
pub const KEY_KEEP_BYTES: usize = 512;

/// An error body that is read to find the Status in it, in bytes. The rest is not read.
pub const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// Causes that one Status lists; the others are counted. Memory: some 300 bytes each, beside the values they repeat.
pub const CAUSES_MAX: usize = 100;

/// The token of a mark in an initial state, in bytes. It travels in a header; one for the longest key has some 600.
pub const TOKEN_BYTES_MAX: usize = 2_048;

/// Objects a page holds by default; client-go's number.
pub const PAGE_SIZE: u32 = 500;

/// Objects of one LIST over all of its pages. A list that does not end is given up there and asked for again with the
/// delays of failed reads. etcd's 8 GiB hold no more. Memory: none, they are counted.
pub const LIST_OBJECTS_MAX: u64 = 10_000_000;

/// Time from the first request of one LIST to the end of its last page. kube-apiserver's page tokens expire after 5 to 10 minutes,
/// with etcd's compaction.
pub const LIST_TIME_MAX: Duration = Duration::from_mins(15);

/// Changes a store keeps for readers that want each of them, at most, whatever they ask for. Memory: 48 bytes each, and
/// the version of an object that the change replaced: some 200 MiB if those have 3 KiB.
pub const RING_CHANGES_MAX: usize = 65_536;

/// Deleted objects that stay readable for a time, in each store; the first deleted go first. Memory: the last version of
/// each, some 12 MiB if those have 3 KiB.
pub const LINGERING_OBJECTS_MAX: usize = 4_096;

/// A value by which an index finds an object, in bytes. Longer ones find nothing.
pub const INDEX_VALUE_BYTES_MAX: usize = u16::MAX as usize;

const _: () = assert!(ENVELOPE_BYTES_MAX <= FRAMER_KEEP_BYTES && FRAMER_KEEP_BYTES <= OBJECT_BYTES_MAX);
