//! Every bound of the rules by name, with its unit and its cost.

use std::time::Duration;

/// Bytes of each annotation that an autoscaler of `autoscaling/v1` keeps the members of the newer version in; longer ones
/// are dropped. Memory: some twenty times as much during a write.
pub const AUTOSCALING_ANNOTATION_BYTES_MAX: usize = 256 << 10;

/// Bytes that one document may occupy once decoded: sixteen times [`OBJECT_BYTES_MAX`]. Objects of real clusters
/// decode to three to ten times their text. A write holds at most five of them at once: 120 MiB.
pub const DECODED_BYTES_MAX: usize = 24 << 20;

/// Bytes of one stored object, as in etcd's limit of a request. Configurable; larger ones get 413.
pub const OBJECT_BYTES_MAX: usize = 3 << 19;

/// Bytes beyond both limits that an object may have while it is being deleted: its deletion time and grace period,
/// with a margin.
pub const DELETION_MARK_BYTES_MAX: usize = 4 << 10;

/// Bytes of a body or of a stored object above which a write is large: it runs on a thread of its own.
pub const LARGE_BYTES_MIN: usize = 256 << 10;

/// Bytes of decoded documents above which a write is large. Texts up to [`UNREAD_BYTES_MAX`] do not count. An apply of a
/// document of this size takes about 20 ms, a create 10 ms.
pub const LARGE_DECODED_BYTES_MIN: usize = 1 << 20;

/// Bytes of a text whose decoded size is estimated as [`WEIGHT_UNREAD`] times its length, without scanning it.
pub const UNREAD_BYTES_MAX: usize = 16 << 10;

/// Assumed ratio of a short document's decoded size to its text; typical ratios are three to ten.
pub const WEIGHT_UNREAD: usize = 64;

/// Nesting of objects and lists in a protobuf body. Stored JSON may nest up to 127 levels.
pub const PROTOBUF_DEPTH_MAX: usize = 100;

/// Versions of one CustomResourceDefinition. kube-apiserver bounds neither these nor the other lists of a definition,
/// except its selectable fields. Memory: one type each while served, some 8 KiB. Definitions in use have up to eight.
pub const VERSIONS_MAX: usize = 64;

/// Names in `status.storedVersions` of one CustomResourceDefinition: old ones stay until a client removes them.
pub const STORED_VERSIONS_MAX: usize = 2 * VERSIONS_MAX;

/// `additionalPrinterColumns` of one version. Definitions in use have up to twenty.
pub const PRINTER_COLUMNS_MAX: usize = 128;

/// Short names of one CustomResourceDefinition.
pub const SHORT_NAMES_MAX: usize = 64;

/// Categories of one CustomResourceDefinition.
pub const CATEGORIES_MAX: usize = 64;

/// Selectable fields of one version that are validated one by one. A longer list is refused without reading it; eight
/// are allowed.
pub const SELECTABLE_FIELDS_READ_MAX: usize = 64;

/// Values and members of an object that the columns of its definition may visit together for one row, for any length
/// of the object: a cell that is not found by then is `null`. Cost: some 25 ns each.
pub const ROW_LOOKS_MIN: usize = 4_000;

/// Additional visits per byte of the object: enough to visit each of its values several times.
pub const ROW_LOOKS_PER_BYTE: usize = 4;

/// Maximum of these visits for objects of any length. Cost: some 5 ms.
pub const ROW_LOOKS_MAX: usize = 200_000;

/// Bytes of values in one row of a custom resource. A cell that would exceed it is `null`. Memory: one row for each
/// table that is being written.
pub const ROW_BYTES_MAX: usize = 128 << 10;

/// Reported problems with the fields of one object. Memory: some 100 bytes each.
pub const STRICT_ERRORS_MAX: usize = 100;

/// Warnings of one response, each a header. Common HTTP clients refuse a response with more than 100 headers.
pub const WARNINGS_MAX: usize = 50;

/// Characters of one warning about an object. Most clients limit the headers of a response to some KiB.
pub const WARNING_CHARS_MAX: usize = 256;

/// Characters of all warnings of one response.
pub const WARNINGS_CHARS_MAX: usize = 4096;

/// Bytes of all writes that wait for admission webhooks: their bodies, decoded objects, the questions, and
/// [`WEBHOOK_SHORT_ANSWER_BYTES_MAX`] for each answer. Further writes get 429.
pub const WAITING_WRITES_BYTES_MAX: usize = 128 << 20;

/// Bytes of [`WAITING_WRITES_BYTES_MAX`] for each call at least: 256 calls of a server and its forks at once. Memory:
/// the buffers of its connection are in it.
pub const WEBHOOK_CALL_BYTES_MIN: usize = 512 << 10;

/// Bytes of an answer that carries no patch: of a validating webhook, or about a deletion. Longer ones fail the call.
pub const WEBHOOK_SHORT_ANSWER_BYTES_MAX: usize = 256 << 10;

/// Longer answers, of webhooks that may change an object, that are read or decoded at once. Further ones are read
/// later, in the time of their calls. Memory: that many of the longest one.
pub const WEBHOOK_LONG_ANSWERS_MAX: usize = 8;

/// Time of a write that webhooks decide about, with all attempts, once its body arrived. Equal to kube-apiserver's timeout
/// for a whole request. Later the client gets 504.
pub const WRITE_WAIT: Duration = Duration::from_secs(60);
