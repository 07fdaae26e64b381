//! Every bound of the server by name, with its unit and what it costs. Those of the cache are in `watch_cache`.

use std::time::Duration;

/// Connections open at once. More wait in the listen queue. Memory: about 15 KiB each while idle, and 2 while it is
/// an idle watch of HTTP/1.1.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Open files that connections leave to everything else: the log, `/proc`, certificates, the runtime's own.
pub const FILES_RESERVED: usize = 32;

/// Connections the kernel queues before it refuses.
pub const LISTEN_BACKLOG: u32 = 1024;

/// hyper's read buffer of one HTTP/1 connection, in bytes; so also the longest request head (answered 431 above).
/// kube-apiserver's clients send URLs of a few KiB with long selectors.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// Bytes that a client may send behind the request of an HTTP/1.1 watch, before the socket is not read any more. Memory:
/// as much as it sends, for each watch.
pub const PIPELINED_BYTES_MAX: usize = 16 << 10;

/// Bytes of data frames, headers included, that a client may send on the WebSocket of a watch, which asks for none. More
/// end it with code 1009. Memory: none, they are skipped.
pub const WEBSOCKET_IGNORED_BYTES_MAX: u64 = 64 << 10;

/// How long a client may take to answer the close frame of a WebSocket, before its connection ends without it.
pub const WEBSOCKET_CLOSE_WAIT: Duration = Duration::from_secs(5);

/// How long a client may take to send a request head, and how long an idle connection is kept.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a client may take for a request head, and how long an idle connection is kept, while less than an eighth of
/// the connections is free. Without it 30 silent clients keep all others out of a server that may open 64 files.
pub const HEAD_TIMEOUT_CROWDED: Duration = Duration::from_secs(10);

/// Request bodies, in bytes, as kube-apiserver has it. Larger ones are answered 413. Memory: one body a request, all of
/// them together at most [`BODIES_BYTES_MAX`] and [`SMALL_BODIES_BYTES_MAX`].
pub const REQUEST_BODY_BYTES_MAX: usize = 3 << 20;

/// Bytes of all request bodies longer than [`BODY_PIECEMEAL_BYTES`] that arrive or wait for their turn. Further ones wait
/// for [`ROOM_WAIT`].
pub const BODIES_BYTES_MAX: usize = 64 << 20;

/// Bytes of all shorter request bodies that arrive or are being handled.
pub const SMALL_BODIES_BYTES_MAX: usize = 16 << 20;

/// Part of [`BODIES_BYTES_MAX`] that one connection may take, with all its streams.
pub const CONNECTION_BODIES_BYTES_MAX: usize = 16 << 20;

/// Part of [`SMALL_BODIES_BYTES_MAX`] that one connection may take, with all its streams.
pub const CONNECTION_SMALL_BODIES_BYTES_MAX: usize = 4 << 20;

/// Bytes up to which a body takes room as it arrives. A longer one takes room for all of it at once, so that bodies that
/// are half there never wait for each other.
pub const BODY_PIECEMEAL_BYTES: usize = 256 << 10;

/// How long a body waits for room, and a large write for its turn, before its client gets 429.
pub const ROOM_WAIT: Duration = Duration::from_secs(10);

/// Bytes a second at which a body must arrive while others wait for room.
pub const BODY_RATE_MIN: usize = 64 << 10;

/// How long a body may come more slowly than [`BODY_RATE_MIN`], or not at all, while others wait for room. Less than [`ROOM_WAIT`], so that who holds a body back keeps
/// nobody out.
pub const BODY_RATE_AFTER: Duration = Duration::from_secs(3);

/// Bytes that one document may have once it is decoded: sixteen times [`OBJECT_BYTES_MAX`]. Objects of clusters have
/// three to ten times their text. A write has at most five of them at once: 120 MiB.
pub const DECODED_BYTES_MAX: usize = 24 << 20;

/// Bytes of one stored object, as etcd's limit of a request. Settings may change it; larger ones are answered 413.
pub const OBJECT_BYTES_MAX: usize = 3 << 19;

/// Bytes beyond both limits that an object may have while it is being deleted: its time and grace, with room to spare.
pub const DELETION_MARK_BYTES_MAX: usize = 4 << 10;

/// Bytes of a body or of a stored object, above which a write is large: it runs on a thread of its own.
pub const LARGE_BYTES_MIN: usize = 256 << 10;

/// Bytes of a document, decoded, above which a write is large.
pub const LARGE_DECODED_BYTES_MIN: usize = 4 << 20;

/// Large writes that run at once at most; half as many as there are processors, and at least one. Memory: about 128 MiB
/// each.
pub const LARGE_WRITES_MAX: usize = 4;

/// Bytes that all writes that are not large may have decoded at once. More of them wait.
pub const SMALL_WRITES_BYTES_MAX: usize = 64 << 20;

/// Events that an exact read undoes on a worker of the runtime: about 0.3 µs each. More are undone on a blocking thread.
pub const UNDO_INLINE_MAX: usize = 1_024;

/// Bytes of a text that is taken to have [`WEIGHT_UNREAD`] times as many once it is decoded, without a look at it.
pub const UNREAD_BYTES_MAX: usize = 16 << 10;

/// How much longer than its text a short document is once it is decoded; typical ones are three to ten times as long.
pub const WEIGHT_UNREAD: usize = 64;

/// Objects and lists inside each other in a protobuf body. Stored JSON is read again down to 127.
pub const PROTOBUF_DEPTH_MAX: usize = 100;

/// Lists longer than this many bytes are compressed for clients that take gzip; kube-apiserver's number.
pub const GZIP_BYTES_MIN: usize = 128 << 10;

/// OpenAPI documents that are kept, in bytes of their texts. Those of built-in types have 2.5 MiB; further ones are made
/// again for each request.
pub const OPENAPI_BYTES_MAX: usize = 32 << 20;

/// Versions of one CustomResourceDefinition; kube-apiserver has no bound of its own here, nor on the
/// other lists of a definition but its selectable fields.
/// Memory: one type each while served, some 8 KiB. Definitions in use have up to eight.
pub const VERSIONS_MAX: usize = 64;

/// Names in `status.storedVersions` of one CustomResourceDefinition: old ones stay until somebody takes them out.
pub const STORED_VERSIONS_MAX: usize = 2 * VERSIONS_MAX;

/// `additionalPrinterColumns` of one version. Definitions in use have up to twenty.
pub const PRINTER_COLUMNS_MAX: usize = 128;

/// Short names of one CustomResourceDefinition.
pub const SHORT_NAMES_MAX: usize = 64;

/// Categories of one CustomResourceDefinition.
pub const CATEGORIES_MAX: usize = 64;

/// Selectable fields of one version that are checked one by one. A longer list is refused unread; eight are allowed.
pub const SELECTABLE_FIELDS_READ_MAX: usize = 64;

/// Values and members of an object that the columns of its definition may look at together for one row, whatever its
/// length: a cell of theirs that is not found by then is `null`. Cost: some 25 ns each.
pub const ROW_LOOKS_MIN: usize = 4_000;

/// And for each byte of the object: enough to visit each of its values some times.
pub const ROW_LOOKS_PER_BYTE: usize = 4;

/// Their most, however long the object is. Cost: some 5 ms.
pub const ROW_LOOKS_MAX: usize = 200_000;

/// Bytes of values in one row of a custom resource. A cell that would not fit is `null`. Memory: one row for each table
/// that is being written.
pub const ROW_BYTES_MAX: usize = 128 << 10;

/// Slices handed to the socket in one vectored write.
pub const SLICES_MAX: usize = 64;

/// Bytes gathered into one turn of a response body. They are slices of shared bytes, so they cost memory only where a
/// client takes them so slowly that their objects change meanwhile. Smaller turns cost more writes: at 16 KiB the first
/// states of many clients take half as much time again.
pub const BATCH_BYTES: usize = 64 << 10;

/// Bytes of request bodies that one HTTP/2 connection may send ahead of who reads them.
pub const HTTP2_RECEIVE_BYTES_MAX: u32 = 256 << 10;

/// How long an HTTP/2 connection may say nothing before it is asked whether it lives. Memory: one timer each.
pub const HTTP2_PING_EVERY: Duration = Duration::from_secs(60);

/// How long it may take to answer. What is on its way to a slow reader comes first: on loopback 128 KiB.
pub const HTTP2_PONG_WAIT: Duration = Duration::from_secs(120);

/// Head of one HTTP/2 request, decoded, in bytes.
pub const HTTP2_HEAD_BYTES_MAX: u32 = 64 << 10;

/// Encrypted bytes of one connection that wait for the socket, beside the 16 KiB of the record they end with.
pub const TLS_UNSENT_BYTES_MAX: usize = 16 << 10;

/// How long a TLS handshake may take. Ten thousand clients that come at once need seconds of a small machine.
pub const TLS_HANDSHAKE_WAIT: Duration = Duration::from_secs(30);

/// How long a changed certificate may go unnoticed. The cost is one read of two small files.
pub const TLS_RELOAD_EVERY: Duration = Duration::from_secs(10);

/// Bytes of one socket that the kernel holds and has not sent, above which the socket counts as full. Without it
/// "constant memory for each client" hides megabytes in the kernel.
pub const SOCKET_UNSENT_BYTES: u32 = 16 << 10;

/// How long a full socket may take nothing before the server resets it. A client that stopped reading would otherwise
/// keep its snapshot alive for as long as it lives. The kernel opens a full window by whole segments, so on loopback a
/// client has to take 128 KiB in this time, and with a small receive buffer 4 KiB.
pub const SOCKET_STUCK: Duration = Duration::from_secs(60);

/// How long behind its deadline a watch may take to send what it holds. Then it is reset: at the end of its time a client
/// that takes a byte a minute, or has shut the window of its HTTP/2 stream, still keeps a cursor and old objects.
pub const WATCH_END_WAIT: Duration = Duration::from_secs(10);

/// Streams one HTTP/2 connection may have open at once.
pub const HTTP2_STREAMS_MAX: u32 = 1_000;

/// Send buffer asked for each socket, in bytes; the kernel doubles it for its own bookkeeping. Below 40 KiB loopback
/// becomes sixty times slower.
pub const SOCKET_SEND_BYTES: u32 = 256 << 10;

/// Longest wait of a read for a cache that is not there yet: first listing, consistent read, a position ahead of us.
pub const FRESH_WAIT: Duration = Duration::from_secs(3);

/// How long open connections may take to end after the server was told to stop.
pub const GRACE: Duration = Duration::from_secs(10);

/// Bytes of one manifest file that is loaded at start. Memory: that file, and its objects, while it loads.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// Folders inside folders that `--load` descends into.
pub const MANIFEST_DEPTH_MAX: usize = 32;

/// Objects of each kind that the generator makes at most.
pub const POPULATE_MAX: u32 = 10_000_000;

/// Generated objects that are handed over at once.
pub const POPULATE_BATCH: usize = 64;

/// Batches of generated objects that wait to be stored. Memory: some 300 KiB each.
pub const POPULATE_BATCHES: usize = 2;

/// Connections that `populate` and `churn` open to a server, each with one request at a time.
pub const CLIENT_CONNECTIONS: usize = 16;

/// How long a connection to a server may take to be there.
pub const CLIENT_CONNECT_WAIT: Duration = Duration::from_secs(5);

/// How long a whole answer may take, its connection included.
pub const CLIENT_ANSWER_WAIT: Duration = Duration::from_secs(30);

/// Bytes of one answer that `populate` and `churn` read. A page of ordinary pods has some 3 MiB.
pub const CLIENT_ANSWER_BYTES_MAX: usize = 256 << 20;

/// Characters of a server's message that are shown.
pub const CLIENT_MESSAGE_CHARS_MAX: usize = 500;

/// Pods that `churn` lists at a time.
pub const CHURN_PAGE: usize = 500;

/// Writes that `churn` makes at most, in the unit of its rate.
pub const CHURN_RATE_MAX: u32 = 100_000;

/// How long `churn` waits for the last answers once it is told to stop.
pub const CHURN_DRAIN: Duration = Duration::from_secs(2);

/// Memory that must have come and gone before the allocator is asked to give it back, in bytes. Trimming walks the
/// heap, so it is not done for less.
pub const TRIM_BYTES: u64 = 4 << 20;

/// Pause between two looks at the process's size. The cost is one read of `/proc/self/statm`.
pub const TRIM_EVERY: Duration = Duration::from_secs(1);

/// What is wrong with the fields of one object, as many times as it is said. Memory: some 100 bytes each.
pub const STRICT_ERRORS_MAX: usize = 100;

/// Bytes of the message of an error, and of all its causes: they may name fields, which a client can make as long as a
/// body. Memory: a few times that, while the error is answered.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Characters of a path, a user agent or a message that are logged. Memory: one line of the debug log.
pub const LOGGED_CHARS_MAX: usize = 1024;

/// Warnings of one answer, each a header. Common readers of HTTP refuse an answer with more than 100 headers.
pub const WARNINGS_MAX: usize = 50;

/// Characters of one warning about an object. Headers of an answer are a few KiB in most clients.
pub const WARNING_CHARS_MAX: usize = 256;

/// Characters of all warnings of an answer.
pub const WARNINGS_CHARS_MAX: usize = 4096;

const _: () = assert!(BATCH_BYTES <= SOCKET_SEND_BYTES as usize, "a turn fits into the socket");
const _: () = assert!(4 * CONNECTION_BODIES_BYTES_MAX <= BODIES_BYTES_MAX, "one connection leaves room to others");
const _: () = assert!(4 * CONNECTION_SMALL_BODIES_BYTES_MAX <= SMALL_BODIES_BYTES_MAX, "the same for small bodies");
const _: () = assert!(REQUEST_BODY_BYTES_MAX <= CONNECTION_BODIES_BYTES_MAX, "every body fits");
const _: () = assert!(BODY_RATE_AFTER.as_secs() < ROOM_WAIT.as_secs(), "who waits sees slow bodies go");
