//! All limits of the core, with their units and costs.

use std::time::Duration;

/// Size of one object while it is framed, in bytes; the default of `object_bytes_max`. Memory: one such buffer per
/// session. Larger objects are skipped. kube-apiserver accepts bodies of 3 MiB, so 16 MiB leaves room for growth.
pub const OBJECT_BYTES_MAX: usize = 16 << 20;

/// Bytes of a LIST body outside its items (kind, apiVersion, metadata), and of the envelope around a watch event's
/// object.
pub const ENVELOPE_BYTES_MAX: usize = 64 << 10;

/// Nesting depth of a JSON document that is read. Memory: one bit per level. Deeper objects are skipped. kube-apiserver
/// accepts deeper ones in custom resources with unknown fields, since Go's decoder stops at 10,000 levels; but hardly
/// any reader could decode them (`serde_json` stops at 128), and most decoders recurse.
pub const DEPTH_MAX: usize = 512;

/// Nesting depth of an object while it is skipped: Go's 10,000, plus the watch event or list around it. Memory: one bit
/// per level. A deeper body ends with an error.
pub const SKIPPED_DEPTH_MAX: usize = 10_048;

/// One name of a skipped object (its namespace, name, uid, resourceVersion, kind or apiVersion), in bytes. Longer names
/// count as unreadable.
pub const SKIPPED_NAME_BYTES_MAX: usize = 8 << 10;

/// Buffer that the framer keeps between objects, in bytes, so that one large object does not pin its size forever.
pub const FRAMER_KEEP_BYTES: usize = 256 << 10;

/// Buffer kept for the keys of objects, in bytes: a namespace, a slash and a name have 317 at most.
pub const KEY_KEEP_BYTES: usize = 512;

/// Part of an error body that is read to find the Status in it, in bytes.
pub const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// The token of a mark in an initial state, in bytes. It is sent in a header; the longest key needs about 600.
pub const TOKEN_BYTES_MAX: usize = 2_048;

/// Default number of objects per page, as in client-go.
pub const PAGE_SIZE: u32 = 500;

/// Objects of one LIST, over all of its pages. A longer list fails, and is retried with backoff. etcd's 8 GiB hold no
/// more. Memory: none, objects are only counted.
pub const LIST_OBJECTS_MAX: u64 = 10_000_000;

/// Time from the first request of one LIST to the end of its last page. kube-apiserver's continue tokens expire after 5
/// to 10 minutes, with etcd's compaction.
pub const LIST_TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// Changes that a store keeps for readers that need each of them, whatever capacity they request. Memory: 48 bytes
/// each, and the object version that the change replaced: about 200 MiB for objects of 3 KiB.
pub const RING_CHANGES_MAX: usize = 65_536;

/// Deleted objects that stay readable for a time, per store; the first deleted are released first. Memory: the last
/// version of each, about 12 MiB for objects of 3 KiB.
pub const LINGERING_OBJECTS_MAX: usize = 4_096;

/// Size of an index value, in bytes. Longer values are not indexed.
pub const INDEX_VALUE_BYTES_MAX: usize = u16::MAX as usize;

const _: () = assert!(ENVELOPE_BYTES_MAX <= FRAMER_KEEP_BYTES && FRAMER_KEEP_BYTES <= OBJECT_BYTES_MAX);
