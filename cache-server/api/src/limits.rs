//! Every bound of the rules by name, with its unit and its cost.

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

/// Names in `x-kubernetes-list-map-keys` that count. Time: that many look-ups for each item.
pub const LIST_KEYS_MAX: usize = 32;

/// States of the automata of all patterns in one CustomResourceDefinition, and of those in the rules of one schema.
/// Patterns in use have some hundred each, long ones of Unicode classes some 30,000. Memory: some hundred bytes each, once an object of the type was validated.
pub const PATTERN_STATES_MAX: usize = 128 << 10;

/// States that each pattern counts for at least.
pub const PATTERN_STATES: usize = 64;

/// Bytes of one compiled pattern.
pub const PATTERN_BYTES_MAX: usize = 8 << 20;

/// Bytes of a cache for matching one pattern, for each thread that does.
pub const PATTERN_CACHE_BYTES: usize = 32 << 10;

/// Steps in validating one object against its schema, of about 10 ns: each schema for each value takes
/// [`STEPS_PER_VALUE`], each value of an enum one, and a pattern one for each byte and [`STATES_PER_STEP`].
pub const VALIDATION_STEPS_MAX: usize = 50_000_000;

/// Steps for each schema of each value.
pub const STEPS_PER_VALUE: usize = 10;

/// Bytes of a text that a step reads.
pub const BYTES_PER_STEP: usize = 8;

/// States of a pattern that take one step for each byte. Most texts are in few states at a time; patterns such as
/// `[ab]*a[ab]{1000}c` are in half of theirs.
pub const STATES_PER_STEP: usize = 16;

/// Values of an enum listed in the cause for another value; further ones are counted.
pub const ALLOWED_VALUES_MAX: usize = 100;

/// Bytes of these values. Memory: for each of at most a hundred causes of one answer.
pub const ALLOWED_BYTES_MAX: usize = 4 << 10;

/// Warnings of one response, each a header. Common HTTP clients refuse a response with more than 100 headers.
pub const WARNINGS_MAX: usize = 50;

/// Characters of one warning about an object. Most clients limit the headers of a response to some KiB.
pub const WARNING_CHARS_MAX: usize = 256;

/// Characters of all warnings of one response.
pub const WARNINGS_CHARS_MAX: usize = 4096;

/// Bytes of one expression in CEL. Longest ones in use have some 3 KiB.
pub const EXPRESSION_BYTES_MAX: usize = 16 << 10;

/// Bytes of all expressions in one schema. Memory: some 40 times as much, once an object of the type was written.
pub const EXPRESSIONS_BYTES_MAX: usize = 256 << 10;

/// Levels of one expression. Stack: some KiB each.
pub const EXPRESSION_DEPTH_MAX: usize = 100;

/// Lists, maps, macros and optional values that one expression makes: its values nest at most that much deeper than the
/// object. Stack: some KiB each.
pub const VALUE_LEVELS_MAX: usize = 256;

/// Steps of one evaluation of an expression, as many as kube-apiserver's cost: some 0.1 s. Memory: at most about a hundred
/// bytes a step, for the items of lists.
pub const CALL_STEPS_MAX: u64 = 1_000_000;

/// Steps of all evaluations for one object, as many as kube-apiserver's cost: some 1 s.
pub const OBJECT_STEPS_MAX: u64 = 10_000_000;

/// Bytes of a text that are read or written in one step.
pub const STEP_BYTES: usize = 10;

/// Steps for each state of a pattern that is compiled during an evaluation.
pub const PATTERN_STEPS: usize = 10;

/// Bytes of the message that an expression makes.
pub const RULE_MESSAGE_BYTES_MAX: usize = 5 << 10;

/// Digits behind the point that a format may ask for.
pub const DIGITS_MAX: usize = 100;
