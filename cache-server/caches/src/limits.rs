//! Every bound of the server by name, with its unit and cost. The bounds of the cache are in `watch_cache`.

mod audit;

use std::time::Duration;

pub use api_rules::limits::*;

pub use audit::*;

/// Idle time after which a cache started on demand ends. Its next reader costs the API server its initial state again.
pub const CACHE_IDLE: Duration = Duration::from_secs(600);

/// Pause before a task that panicked is started again: doubled for each panic, up to [`RESTART_PAUSE_MAX`].
pub const RESTART_PAUSE: Duration = Duration::from_millis(50);

/// Longest pause before a restart, and the time after which a task that runs counts as well again.
pub const RESTART_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Connections open at once, unless `--connections-max` or the program's limit of open files states another number. More
/// wait in the listen queue. Memory: about 15 KiB per idle connection, 30 KiB over HTTP/2, and 2 KiB per idle watch of
/// HTTP/1.1.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Forks of a server at once. Further ones get 429. Memory: some 25 KiB each once read, and what is written to it.
pub const FORKS_MAX: usize = 256;

/// Turns of writes that charge quotas. A namespace takes one by the hash of its name. Memory: 40 bytes each.
pub const QUOTA_TURNS_MAX: usize = 64;

/// Types of a data folder in memory beyond which those without objects and definition leave; afterwards, twice as many as
/// stayed. Memory: 2 KiB each.
pub const STORED_TYPES_UNSWEPT: usize = 256;

/// Open files reserved for other uses than connections: the log, `/proc`, certificates, and the runtime.
pub const FILES_RESERVED: usize = 32;

/// Connections the kernel queues before it refuses more.
pub const LISTEN_BACKLOG: u32 = 1024;

/// hyper's read buffer of one HTTP/1 connection, in bytes; so also the longest request head (longer ones get 431).
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// Bytes that a client may send after the request of an HTTP/1.1 watch before the server stops reading the socket.
/// Memory: the bytes sent, for each watch.
pub const PIPELINED_BYTES_MAX: usize = 16 << 10;

/// Bytes of data frames, headers included, that a client may send on the WebSocket of a watch, which uses none. More
/// end it with code 1009. Memory: none, they are skipped.
pub const WEBSOCKET_IGNORED_BYTES_MAX: u64 = 64 << 10;

/// Time a client may take to send its close frame on a WebSocket before the connection is closed without it.
pub const WEBSOCKET_CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Time a client may take to send a request head, and an idle connection may stay open.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Like [`HEAD_TIMEOUT`] while less than an eighth of the connections is free: 30 silent clients could take all of 64.
pub const HEAD_TIMEOUT_CROWDED: Duration = Duration::from_secs(10);

/// Bytes of one request body, as in kube-apiserver. Larger ones get 413. Memory: one body per request, all of them
/// together at most [`BODIES_BYTES_MAX`] and [`SMALL_BODIES_BYTES_MAX`].
pub const REQUEST_BODY_BYTES_MAX: usize = 3 << 20;

/// Bytes of all request bodies longer than [`BODY_PIECEMEAL_BYTES`] that are arriving or waiting for their turn.
/// Further ones wait for [`ROOM_WAIT`].
pub const BODIES_BYTES_MAX: usize = 16 << 20;

/// Bytes of all shorter request bodies that are arriving or being handled.
pub const SMALL_BODIES_BYTES_MAX: usize = 16 << 20;

/// Part of [`BODIES_BYTES_MAX`] that one user may use, with all its connections.
pub const USER_BODIES_BYTES_MAX: usize = BODIES_BYTES_MAX / 2;

/// Part of [`SMALL_BODIES_BYTES_MAX`] that one user may use, with all its connections.
pub const USER_SMALL_BODIES_BYTES_MAX: usize = SMALL_BODIES_BYTES_MAX / 2;

/// Watches that all users but masters may have open, unless `--watches-max` states another number. One user alone gets four
/// fifths of them, and further ones get 429. Memory: about 4 KiB each.
pub const WATCHES_MAX: usize = 200_000;

/// Part of [`BODIES_BYTES_MAX`] that one connection may use, with all its streams.
pub const CONNECTION_BODIES_BYTES_MAX: usize = 4 << 20;

/// Part of [`SMALL_BODIES_BYTES_MAX`] that one connection may use, with all its streams.
pub const CONNECTION_SMALL_BODIES_BYTES_MAX: usize = 4 << 20;

/// Bytes up to which a body reserves its budget as it arrives. A longer one reserves its whole length at once, so that
/// half-received bodies never wait for each other.
pub const BODY_PIECEMEAL_BYTES: usize = 256 << 10;

/// Time a body waits for its budget, and a large write for its turn, before the client gets 429.
pub const ROOM_WAIT: Duration = Duration::from_secs(10);

/// Bytes per second at which a body must arrive while others wait for budget.
pub const BODY_RATE_MIN: usize = 64 << 10;

/// Time for which a body may arrive more slowly than [`BODY_RATE_MIN`], or not at all, while others wait for budget.
/// Less than [`ROOM_WAIT`], so that a client that stalls its body locks no other client out.
pub const BODY_RATE_AFTER: Duration = Duration::from_secs(3);

/// Maximum of large writes that run at once; half the number of processors if that is less, and at least one. Memory:
/// about 128 MiB each.
pub const LARGE_WRITES_MAX: usize = 4;

/// Decoded bytes of all writes below the large ones that run at once. Further ones wait.
pub const SMALL_WRITES_BYTES_MAX: usize = 64 << 20;

/// Attempts of a write that names no version, when other writes of the object come first each time. kube-apiserver is
/// bounded only by the request's deadline; the client may retry.
pub const WRITE_ATTEMPTS_MAX: usize = 64;

/// Events that an exact read undoes on a worker of the runtime, at about 0.3 µs each. More are undone on a blocking
/// thread.
pub const UNDO_INLINE_MAX: usize = 1_024;

/// Lists longer than this many bytes are compressed for clients that accept gzip, as in kube-apiserver.
pub const GZIP_BYTES_MIN: usize = 128 << 10;

/// Bytes of the texts of cached OpenAPI documents, which are dropped when no client requests them for a minute or two.
/// The documents of version 3 have 2.5 MiB for built-in types, and each form of version 2 has about as much. Documents
/// beyond the bound are generated for each request.
pub const OPENAPI_BYTES_MAX: usize = 32 << 20;

/// Slices handed to the socket in one vectored write.
pub const SLICES_MAX: usize = 64;

/// Bytes gathered into one batch of a response body. They are slices of shared bytes, so they cost memory only if a
/// client reads so slowly that the objects change meanwhile. Smaller batches cost more writes: with 16 KiB the initial
/// states of many clients take 1.5 times as long.
pub const BATCH_BYTES: usize = 64 << 10;

/// Bytes of request bodies that one HTTP/2 connection may send before the server reads them.
pub const HTTP2_RECEIVE_BYTES_MAX: u32 = 256 << 10;

/// Idle time of an HTTP/2 connection before the server sends a ping. Memory: one timer each.
pub const HTTP2_PING_EVERY: Duration = Duration::from_secs(60);

/// Time a client may take to answer a ping. Data in flight to a slow reader arrives first: on loopback 128 KiB.
pub const HTTP2_PONG_WAIT: Duration = Duration::from_secs(120);

/// Frames without a part of a request (SETTINGS, PING, PRIORITY, RST_STREAM, WINDOW_UPDATE, unknown ones) that the
/// client of one HTTP/2 connection may send at once. A RST_STREAM counts as 4, a SETTINGS as 100. More end the
/// connection with ENHANCE_YOUR_CALM. Enough to reset all streams at once ([`HTTP2_STREAMS_MAX`]).
pub const HTTP2_CONTROL_FRAMES_BURST: u32 = 10_000;

/// Such frames per second that are always allowed. Cost: about 1 µs each.
pub const HTTP2_CONTROL_FRAMES_PER_SECOND: u32 = 1_000;

/// Bytes sent to the client that allow one more such frame: clients confirm what they read by WINDOW_UPDATE, some of
/// them twice for each frame.
pub const HTTP2_BYTES_PER_CONTROL_FRAME: usize = 128;

/// Time for which the client of an HTTP/2 stream may leave the next bytes of a response in the server. Then the stream is
/// reset; watches end at their deadline. Longer than [`SOCKET_STUCK`]: the streams of a slow connection take turns.
pub const HTTP2_STREAM_STUCK: Duration = Duration::from_secs(300);

/// Like [`HTTP2_STREAM_STUCK`] for a user that has its part of [`HTTP2_UNREAD_BYTES_MAX`]. Then the whole connection ends: bytes that h2 holds cannot be taken back from a stream.
/// Long enough for the windows of a client that reads: a round trip around the world.
pub const HTTP2_STREAM_STUCK_SHORT: Duration = Duration::from_millis(300);

/// Bytes of all HTTP/2 responses that wait for their clients, with [`HTTP2_STREAM_BYTES`] for each stream. A user has at most
/// as much as is free, and so half if it is alone. From one half on, pages are small ([`HTTP2_SMALL_PAGE_BYTES`]).
pub const HTTP2_UNREAD_BYTES_MAX: usize = 64 << 20;

/// Memory of one HTTP/2 stream that waits for its client, besides the bytes of its response: its task, its response head,
/// its snapshot or cursor, and h2's state.
pub const HTTP2_STREAM_BYTES: usize = 10 << 10;

/// Unsent bytes of all responses of one HTTP/2 connection above which its pages are small ([`HTTP2_SMALL_PAGE_BYTES`]).
/// Memory: at most this and one small page for each stream. Without it a client that opens each window by one byte holds
/// 16 MiB.
pub const HTTP2_UNSENT_BYTES: usize = 1 << 20;

/// Bytes of a page once [`HTTP2_UNSENT_BYTES`] are unsent.
pub const HTTP2_SMALL_PAGE_BYTES: usize = 1 << 10;

/// Bytes of the decoded head of one HTTP/2 request.
pub const HTTP2_HEAD_BYTES_MAX: u32 = 64 << 10;

/// Encrypted bytes of one connection that wait for the socket, besides the 16 KiB of the record they end with.
pub const TLS_UNSENT_BYTES_MAX: usize = 16 << 10;

/// Maximum duration of a TLS handshake. Ten thousand clients that connect at once need seconds on a small machine.
pub const TLS_HANDSHAKE_WAIT: Duration = Duration::from_secs(30);

/// Bytes that a connection reads before others run, if there are always more. Time: about 20 µs with TLS. Cost: one more turn
/// of the runtime for so many bytes.
pub const READ_TURN_BYTES: usize = 32 << 10;

/// Unsent bytes of one socket in the kernel above which the socket counts as full. Without it "constant memory for
/// each client" hides megabytes in the kernel.
pub const SOCKET_UNSENT_BYTES: u32 = 16 << 10;

/// Time for which a full socket may make no progress before the server resets it. A client that stopped reading would
/// otherwise keep its snapshot alive as long as it stays connected. The kernel opens a full window by whole segments,
/// so on loopback a client has to read 128 KiB in this time, and with a small receive buffer 4 KiB.
pub const SOCKET_STUCK: Duration = Duration::from_secs(60);

/// Period over which watches end after a relist, or once another process serves their clients: these come spread out.
pub const ENDS_SPREAD: Duration = Duration::from_secs(10);

/// Time that each side of an upgrade waits for the next message of the other.
pub const UPGRADE_WAIT: Duration = Duration::from_secs(30);

/// Time in which a new process must be able to serve from the caches that it got, or gets the folder.
pub const UPGRADE_WARM_WAIT: Duration = Duration::from_secs(300);

/// Time that a server which leaves its folder waits for its last answers. Later ones ask their clients to repeat the request.
pub const UPGRADE_ANSWERS_WAIT: Duration = Duration::from_millis(25);

/// Pause between two checks of such a wait.
pub const UPGRADE_CHECK_EVERY: Duration = Duration::from_millis(5);

/// Time after its deadline that a watch may take to send its pending data. Then it is reset: a client that reads a
/// byte a minute, or that has closed the window of its HTTP/2 stream, would still keep a cursor and old objects.
pub const WATCH_END_WAIT: Duration = Duration::from_secs(10);

/// Time from when this server knows that a caller lost its right to the end of the caller's watches.
pub const WITHDRAWAL_WAIT: Duration = Duration::from_secs(10);

/// Interval at which the rights of open watches are checked by what this server knows. Cost: one decision for each different
/// caller and resource.
pub const RECHECK_EVERY: Duration = Duration::from_secs(4);

/// Age up to which an earlier answer about a right counts in such a check: less than any pause before another question.
pub const RECHECKED_AGE: Duration = Duration::from_millis(100);

/// Longest time between two questions to the API server about an open watch whose right no followed role explains. Each
/// caller's pause is 75 to 95 % of it.
pub const RIGHT_ASKED_EVERY: Duration = Duration::from_mins(5);

/// Pause after the first question about an open watch that left its right undecided. Doubles with each, up to
/// [`RIGHT_ASKED_EVERY`].
pub const RIGHT_RETRY: Duration = Duration::from_millis(200);

/// Longest pause after an undecided question about a right that the API server allowed by a role, and that the followed
/// roles do not allow any more: its caller may fill its own queues at the API server to be left without an answer.
pub const DOUBTED_RIGHT_RETRY_MAX: Duration = Duration::from_secs(5);

/// Longest time between two questions to the API server about an open watch whose right followed roles explain: they do
/// not tell that a token was revoked, or that a webhook denies. Each caller's pause is 50 to 95 % of it.
pub const EXPLAINED_RIGHT_ASKED_EVERY: Duration = Duration::from_mins(60);

/// Time after its expiry for which kube-apiserver accepts the token of a service account.
pub const EXPIRED_TOKEN_LEEWAY: Duration = Duration::from_secs(60);

/// Time after the expiry of a token at which it is refused, if all clocks are right.
pub const EXPIRY_MARGIN: Duration = Duration::from_secs(1);

/// Time without an event or a bookmark after which followed roles do not explain rights any more. kube-apiserver sends a
/// bookmark each minute.
pub const ROLES_SILENT_MAX: Duration = Duration::from_mins(3);

/// Pause between two checks if the policies change all the time.
pub const RECHECK_PAUSE: Duration = Duration::from_millis(200);

/// Seats that the priority levels of flow control share, as in kube-apiserver (400 reads and 200 writes). A request has
/// one, a list up to ten.
pub const SEATS: u32 = 600;

/// Time without progress after which a body gives its seats back, because its client does not read. Then it costs no work:
/// requests that would cost some must not wait for it. To continue, it waits for seats, for at most [`SEAT_WAIT`]; then its
/// response is cut.
pub const SEAT_PARKED: Duration = Duration::from_millis(100);

/// Pause before a body that continues tries again to have a place in the full queues of its flow. Cost: one lock each time.
pub const SEAT_RETRY: Duration = Duration::from_millis(500);

/// Interval at which bodies with seats are checked for progress. Cost: one look at each.
pub const SEAT_CHECK_EVERY_HELD: Duration = Duration::from_millis(50);

/// Like [`SEAT_CHECK_EVERY_HELD`], while no body has seats.
pub const SEAT_CHECK_EVERY: Duration = Duration::from_millis(250);

/// Longest wait for seats; a request with a shorter `?timeout=` waits for a quarter of it. As in kube-apiserver, whose
/// requests have 60 s.
pub const SEAT_WAIT: Duration = Duration::from_secs(15);

/// Rights that are checked at the same time.
pub const RECHECKS_MAX: usize = 64;

/// Time after the withdrawal of a right, or the expiry of credentials, after which a watch is reset if its client does
/// not read its end.
pub const WITHDRAWN_END_WAIT: Duration = Duration::from_secs(1);

/// Bytes of one file of the settings that is watched: tokens, keys, authorities, policies, certificates. Memory: its parsed
/// form, and twice this while it is read.
pub const WATCHED_FILE_BYTES_MAX: u64 = 4 << 20;

/// Interval at which such files, and those of flow control, are checked for changes. Cost: one read and one hash of each
/// file; for flow control, one system call.
pub const FILE_CHECK_EVERY: Duration = Duration::from_secs(2);

/// Bearer tokens whose callers are kept. Memory: about 1 KiB each, and at most 16 KiB for the token.
pub const TOKENS_MAX: usize = 4_096;

/// Questions about tokens that the API server answers at the same time. Further ones wait for [`REVIEW_WAIT`], then their
/// requests get 429: floods of invented tokens must not load it without bound.
pub const TOKEN_REVIEWS_MAX: usize = 64;

/// Bytes of the document with an issuer's public keys.
pub const JWKS_BYTES_MAX: usize = 1 << 20;

/// Time for one such document, with its connection.
pub const JWKS_WAIT: Duration = Duration::from_secs(5);

/// Age at which an issuer's keys are fetched again, in the background, so the longest time for which a withdrawn key counts
/// while the issuer answers.
pub const JWKS_AGE: Duration = Duration::from_secs(300);

/// Minimum time between two fetches of an issuer's keys, however many unknown keys tokens name.
pub const JWKS_FETCH_PAUSE: Duration = Duration::from_secs(10);

/// Streams that one HTTP/2 connection may have open at once, as in kube-apiserver.
pub const HTTP2_STREAMS_MAX: u32 = 100;

/// Requests of one HTTP/2 connection that begin in one of its turns: the others come after requests of other connections.
/// Without it 1,000 connections with a hundred requests each delay all others for seconds.
pub const HTTP2_STREAMS_STARTED: usize = 4;

/// Unread HTTP/2 streams of all connections above which connections read little at once and have few of them
/// ([`HTTP2_READ_SHORT`], [`HTTP2_STREAMS_SHORT`]). A stream counts from its request until its client accepts bytes of the
/// response, and while it leaves bytes unread. Memory: [`HTTP2_STREAM_BYTES`] each, a quarter of
/// [`HTTP2_UNREAD_BYTES_MAX`]. With twice as many, 1,000 connections of unread requests grow a server by 60 % more.
pub const HTTP2_UNREAD_STREAMS_MANY: usize = HTTP2_UNREAD_BYTES_MAX / HTTP2_STREAM_BYTES / 4;

/// Unread streams that one HTTP/2 connection may have meanwhile. Its further requests get 429. Memory:
/// [`HTTP2_STREAM_BYTES`] each, for every connection.
pub const HTTP2_STREAMS_SHORT: usize = 4;

/// Bytes, besides the frame that has begun, that an HTTP/2 connection reads in one turn before a caller proved who it is, and
/// while there are [`HTTP2_UNREAD_STREAMS_MANY`]: one request or a few. Without it each of 1,000 connections brings
/// [`HTTP2_STREAMS_MAX`] requests before the first is refused.
pub const HTTP2_READ_SHORT: usize = 64;

/// Send buffer requested for each socket, in bytes; the kernel doubles it for its own bookkeeping. Below 40 KiB,
/// loopback becomes sixty times slower.
pub const SOCKET_SEND_BYTES: u32 = 256 << 10;

/// Maximum wait of a read for its cache: for the first listing, a consistent read, or a position ahead of the cache.
pub const FRESH_WAIT: Duration = Duration::from_secs(3);

/// Time that open connections may take to finish after the server was asked to stop.
pub const GRACE: Duration = Duration::from_secs(10);

/// Time without any byte from a client before the kernel probes the connection.
pub const KEEPALIVE: Duration = Duration::from_secs(60);

/// Pause between two probes of a silent connection. [`KEEPALIVE_TRIES`] probes without an answer end it: a client whose
/// host vanished is noticed within 90 s, one with a watch of HTTP/1.1 within [`UNCONFIRMED_MAX`].
pub const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// Probes without an answer that end a connection.
pub const KEEPALIVE_TRIES: u32 = 3;

/// Time for which a client may leave the sent bytes of an HTTP/1.1 watch unconfirmed. Probes do not run while bytes are
/// unconfirmed, and the kernel alone would retransmit them for a quarter of an hour.
pub const UNCONFIRMED_MAX: Duration = Duration::from_secs(120);

/// Bytes of one YAML manifest file, or of one document of a JSON file, that is loaded. Memory: these bytes and their
/// objects, while it loads.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// Depth of nested folders that `--load` descends into.
pub const MANIFEST_DEPTH_MAX: usize = 32;

/// Maximum number of generated objects of each kind.
pub const POPULATE_MAX: u32 = 10_000_000;

/// Generated objects in one batch.
pub const POPULATE_BATCH: usize = 64;

/// Batches of generated objects that wait to be stored. Memory: some 300 KiB each.
pub const POPULATE_BATCHES: usize = 2;

/// Connections that `populate` and `churn` open to a server, each with one request at a time.
pub const CLIENT_CONNECTIONS: usize = 16;

/// Timeout for connecting to a server.
pub const CLIENT_CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Timeout for a whole response, including connecting.
pub const CLIENT_ANSWER_WAIT: Duration = Duration::from_secs(30);

/// Bytes of one response that `populate` and `churn` read. A page of ordinary pods has some 3 MiB.
pub const CLIENT_ANSWER_BYTES_MAX: usize = 256 << 20;

/// Characters of a server's message that are printed.
pub const CLIENT_MESSAGE_CHARS_MAX: usize = 500;

/// Pods that `churn` lists per page.
pub const CHURN_PAGE: usize = 500;

/// Maximum write rate of `churn`, in the unit of its rate.
pub const CHURN_RATE_MAX: u32 = 100_000;

/// Time for which `churn` waits for the last responses after it was asked to stop.
pub const CHURN_DRAIN: Duration = Duration::from_secs(2);

/// Largest value of `--max-staleness`: the longest time for which an outage of the API server leaves reads without a
/// resourceVersion unaffected.
pub const STALENESS_MAX: Duration = Duration::from_secs(60);

/// Pause between two checks of the addresses of an upstream: whether they answer, and for which cluster. Cost: a read of one
/// object's metadata at each address.
pub const IDENTITY_CHECKED_EVERY: Duration = Duration::from_secs(10);

/// Time for the answer to such a check.
pub const IDENTITY_WAIT: Duration = Duration::from_secs(2);

/// Time that a start waits for the API server before the server listens all the same, and answers 503.
pub const UPSTREAM_START_WAIT: Duration = Duration::from_secs(2);

/// Pause before a server that listens already repeats the part of its start that failed.
pub const START_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Time for the decision whether the caller of a probe may see why checks fail. After it the reasons are withheld: a probe
/// must not wait for an API server that hangs.
pub const REASONS_WAIT: Duration = Duration::from_millis(500);

/// Addresses of one upstream. A request is tried on each of them once, as long as none of them accepts a connection.
pub const UPSTREAM_ADDRESSES_MAX: usize = 8;

/// Other cache-servers that an empty cache may be filled from. The cache tries them one after the other, in random order.
pub const PEERS_MAX: usize = 32;

/// Requests of callers that are passed to the upstream at once, each on a connection of its own. Further ones get 429.
/// Memory: about 50 KiB for its two connections, at most 64 KiB of a body in each direction, two TLS records for each
/// encrypted side, and one open file.
pub const UPSTREAM_REQUESTS_MAX: usize = 4_096;

/// Bytes of all documents with an ETag that are kept, received, or sent to callers: OpenAPI and aggregated discovery. A
/// cluster's have some 10 MiB, in each form and encoding that callers request. The longest unused ones are dropped; while
/// callers that read slowly hold them, further ones are passed on.
pub const MIRROR_BYTES_MAX: usize = 64 << 20;

/// Bytes of one such document. Longer ones are passed on. `/openapi/v2` has 3 MiB without definitions.
pub const MIRROR_DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// Number of such documents. Memory: about 2 KiB each, besides their bodies, and at most [`UPSTREAM_HEAD_BYTES_MAX`].
pub const MIRROR_DOCUMENTS_MAX: usize = 512;

/// Bytes of path, query, Accept and Accept-Encoding of a request whose document is kept.
pub const MIRROR_KEY_BYTES_MAX: usize = 1 << 10;

/// Documents that are received at the same time in order to be kept. Further ones are passed on. Memory: up to twice
/// [`MIRROR_DOCUMENT_BYTES_MAX`] for each, as its buffer grows.
pub const MIRROR_FILLS_MAX: usize = 2;

/// Questions about callers' rights that the upstream answers at the same time, those of open watches apart. Further ones
/// wait for [`REVIEW_WAIT`], then their requests get 429.
pub const UPSTREAM_ASKS_MAX: usize = 256;

/// Time for one question to the upstream, with its connection and its answer.
pub const UPSTREAM_ASK_WAIT: Duration = Duration::from_secs(5);

/// Bytes of the answer to one question, which may repeat the selectors of a read.
pub const UPSTREAM_ANSWER_BYTES_MAX: usize = 256 << 10;

/// Idle connections kept for each address of the upstream. Memory: about 40 KiB each with TLS.
pub const UPSTREAM_IDLE_MAX: usize = 64;

/// Time for which an idle connection is kept: less than the 90 s after which kube-apiserver closes it, so that few
/// requests meet a connection that is just being closed.
pub const UPSTREAM_IDLE_WAIT: Duration = Duration::from_secs(30);

/// Time for a connection to one address, with its TLS handshake.
pub const UPSTREAM_CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Time without any byte from the upstream before the kernel probes the connection, which is then broken after
/// [`UPSTREAM_KEEPALIVE_TRIES`] probes without an answer, [`UPSTREAM_KEEPALIVE_EVERY`] apart. It ends requests whose
/// upstream vanished without a word.
pub const UPSTREAM_KEEPALIVE: Duration = Duration::from_secs(30);

/// Pause between two probes of a silent connection.
pub const UPSTREAM_KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// Probes without an answer before the connection is broken.
pub const UPSTREAM_KEEPALIVE_TRIES: u32 = 3;

/// Time for which the upstream may take no byte of a request. Linux only; elsewhere the kernel's own limit holds.
pub const UPSTREAM_STUCK: Duration = Duration::from_secs(60);

/// Bytes of one piece of a body that is passed through. A body holds one piece in hyper's read buffer, one that is being
/// cut, and [`UPSTREAM_UNSENT_BYTES_MAX`]: 32 KiB in all. The body of a caller's HTTP/2 stream holds
/// [`UPSTREAM_HTTP2_WINDOW_BYTES`] in place of the first. Cost: two system calls for each piece, and about 0.5 s of CPU
/// for a GiB.
pub const UPSTREAM_PIECE_BYTES: usize = 8 << 10;

/// Bytes read at once from a socket whose bodies are passed through: one less than hyper's smallest buffer, which it
/// doubles once a read fills it.
pub const UPSTREAM_READ_BYTES: u64 = (8 << 10) - 1;

/// Bytes of the longest head of the upstream's answers.
pub const UPSTREAM_HEAD_BYTES_MAX: usize = 16 << 10;

/// Bytes of one request body that a caller may send over HTTP/2 before the upstream takes them. All streams of a
/// connection share [`HTTP2_RECEIVE_BYTES_MAX`], so one whose upstream does not read leaves room for others.
pub const UPSTREAM_HTTP2_WINDOW_BYTES: u32 = 32 << 10;

/// Bytes that the kernel receives from the upstream on one connection before they are read; it doubles them for its own
/// bookkeeping. Without it the kernel's buffer grows to megabytes while a caller reads slowly. Bounds one transfer to
/// this many bytes in a round trip.
pub const UPSTREAM_RECEIVE_BYTES: usize = 128 << 10;

/// Headers of an answer of the upstream. kube-apiserver sends up to some 200 warnings, each a header: a smaller limit
/// would lose the answer to a write that was carried out. Memory: some 40 bytes each while a head is read.
pub const UPSTREAM_HEADERS_MAX: usize = 512;

/// Bytes of one body on their way to a socket: two pieces, so that one is read while the other is sent.
pub const UPSTREAM_UNSENT_BYTES_MAX: usize = 2 * UPSTREAM_PIECE_BYTES;

/// Bytes copied at once in each direction of an upgraded connection. Memory: twice this for each of them.
pub const TUNNEL_BYTES: usize = 16 << 10;

/// Value of Retry-After, in seconds, while the upstream cannot be reached.
pub const UPSTREAM_RETRY_AFTER_SECONDS: u32 = 5;

/// Bytes that must have been allocated and freed before the allocator is trimmed. Trimming walks the heap, so it is
/// not worth it for less.
pub const TRIM_BYTES: u64 = 4 << 20;

/// Bytes at the free end of an arena of the allocator that stay mapped for the next burst. Memory: once per arena, of which
/// there are as many as cores. A smaller bound would return and fault in the same pages for each large response.
pub const ARENA_FREE_END_MAX: usize = 1 << 20;

/// Pause between two checks of the process's size. Cost: one read of `/proc/self/status`.
pub const TRIM_EVERY: Duration = Duration::from_secs(1);

/// Bytes of an error's message with all its causes: they may name fields, whose length is bounded only by the body.
/// Memory: a small multiple of this, while the error is sent.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Ends of watches that are logged within a second; further ones are counted in one line. A restart of all clients
/// writes no more than that. Memory: none.
pub const WATCH_ENDS_LOGGED: u32 = 50;

/// Characters of a path, a user agent or a message that are logged. Memory: one line of the debug log.
pub const LOGGED_CHARS_MAX: usize = 1024;

/// Characters of the user and of the User-Agent of an open watch that are shown and logged. Memory: once for each
/// different client.
pub const READER_CHARS_MAX: usize = 128;

/// Bytes of changes of one type that wait to be saved to `--state-dir`, as JSON. More of them are dropped, and the
/// whole state is saved instead. Memory: at most this much; the cache holds most of these objects anyway.
pub const SAVED_QUEUE_BYTES_MAX: usize = 32 << 20;

/// Changes of one type that wait to be saved.
pub const SAVED_QUEUE_MAX: usize = 65_536;

/// Pause between two saves of one type: a killed process loses at most the changes of this time.
pub const SAVED_EVERY: Duration = Duration::from_millis(500);

/// Bytes by which a saved state grows at least before it is replaced by a smaller one. Disk: this much for each type.
pub const SAVED_GROWTH_MIN: u64 = 64 << 20;

/// Pause after a failed save: doubled for each failure, up to [`SAVED_RETRY_MAX`].
pub const SAVED_RETRY: Duration = Duration::from_secs(15);

/// See [`SAVED_RETRY`].
pub const SAVED_RETRY_MAX: Duration = Duration::from_secs(600);

/// Pause between two attempts to lock a state folder that the process before still uses.
pub const SAVED_FOLDER_CHECK_EVERY: Duration = Duration::from_millis(200);

/// Time to wait for the saves of an earlier cache of the same type before the type is not saved at all.
pub const SAVED_FILE_WAIT: Duration = Duration::from_secs(3);

/// Age up to which the API server's answer that a caller may read is used, so the longest time for which a revoked right
/// still counts for a new read; open watches: [`RIGHT_ASKED_EVERY`]. kube-apiserver caches tokens for as long. Also the
/// largest age of a denial.
pub const RIGHT_AGE: Duration = Duration::from_secs(10);

/// Age up to which the first denial after an allow is used. Each later one is used for as long as the denials before it
/// lasted, up to [`RIGHT_AGE`]. kube-apiserver denies every read for some hundred milliseconds after its start.
pub const DENIAL_AGE_MIN: Duration = Duration::from_secs(1);

/// Time for which the last answer about a right counts while the API server does not respond. No right can be withdrawn
/// there meanwhile, unless only this server is cut off from it.
pub const RIGHT_AGE_AWAY: Duration = Duration::from_secs(300);

/// Time for which the last answer about a caller counts while the API server answers others, but not about this one in
/// [`REVIEW_WAIT`]: its queues may be full, also of the caller's own requests.
pub const RIGHT_AGE_LATE: Duration = Duration::from_secs(30);

/// Answers about rights of callers, and names of callers, that are kept. Memory: about 200 bytes each, and at most
/// [`REVIEW_TEXT_BYTES_MAX`] for the reason of a decision, or a name.
pub const RIGHTS_MAX: usize = 16_384;

/// Callers whose reads of single objects are counted. Memory: about 100 bytes each.
pub const FREQUENT_READERS_MAX: usize = 16_384;

/// Reviews of GETs' callers that go on after their GETs were passed on. They take slots of [`UPSTREAM_ASKS_MAX`].
/// Further ones are given up.
pub const LATE_REVIEWS_MAX: usize = 64;

/// Time for the API server to answer whether a caller may read, after which the caller gets 504.
pub const REVIEW_WAIT: Duration = Duration::from_secs(3);

/// Questions about users' rights that the API server answers at the same time, the checks of open watches apart. Further
/// ones wait for [`REVIEW_WAIT`], then their requests get 429.
pub const SUBJECT_REVIEWS_MAX: usize = 64;

/// Bytes of one such answer, which repeats the selectors of the question. Memory: one answer per waiting question.
pub const REVIEW_BYTES_MAX: usize = 256 << 10;

/// Bytes of a caller's name and of a reason that appear in the text of a denial.
pub const REVIEW_TEXT_BYTES_MAX: usize = 1 << 10;

/// Writes that wait for the disk with `--data-dir`. Further ones wait before it. Memory: their objects.
pub const DURABLE_QUEUE_MAX: usize = 1_024;

/// Writes that share one commit to the disk.
pub const DURABLE_BATCH_MAX: usize = 512;

/// Bytes of objects that share one commit to the disk; the last one may exceed it.
pub const DURABLE_BATCH_BYTES_MAX: usize = 8 << 20;

/// Age of the oldest change in the data file. Longer than the default age of the window, so that restarts cost no
/// position. Disk: the versions that were superseded in this time.
pub const HISTORY_AGE: Duration = Duration::from_secs(600);

/// Bytes in the data file of superseded versions and deletions. Disk: this much, besides the objects.
pub const HISTORY_BYTES_MAX: u64 = 256 << 20;

/// Changes in the data file. Memory: 40 bytes each.
pub const HISTORY_CHANGES_MAX: usize = 500_000;

/// Changes that leave the history with one commit to the disk. Twice the largest batch, so that it catches up.
pub const HISTORY_TRIMMED_MAX: usize = 2 * DURABLE_BATCH_MAX;

/// Changes of one type that may follow those of an earlier process before its first reader comes. With more, this
/// reader begins at the newest state. Memory: one reference each.
pub const RECOVERED_CHANGES_MAX: usize = 65_536;

/// Gaps between the positions of processes that used one data file. Disk and memory: 16 bytes each.
pub const POSITION_GAPS_MAX: usize = 64;

/// Memory of the data file's pages.
pub const DISK_CACHE_BYTES: usize = 32 << 20;

/// Time for which writes are refused after the data file has failed, before it is tried again.
pub const DISK_REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// Interval at which the writing thread looks for writes to refuse after the data file has failed.
pub const DISK_QUEUE_CHECK_EVERY: Duration = Duration::from_millis(20);

/// Bytes of the data file that are read and written at once after a failed sync.
pub const DISK_REWRITE_BYTES: usize = 1 << 20;

/// Bytes that are reserved in the data folder for removals on a full disk. A removal needs some 50 KiB before the room
/// that it frees can be used.
pub const DISK_RESERVE_BYTES: u64 = 8 << 20;

/// Bytes with which the reserve counts as one: enough for [`DURABLE_REMOVALS_MAX`] removals at once.
pub const DISK_RESERVE_BYTES_MIN: u64 = 2 << 20;

/// Removals that share one commit to a full disk. Disk: with the changes that leave the history, some 200 pages of 4 KiB.
pub const DURABLE_REMOVALS_MAX: usize = 64;

/// Changes that leave the history with one commit to a full disk, besides two for each change that the commit adds.
pub const HISTORY_TRIMMED_WHEN_FULL: usize = 64;

/// Commits that shorten the history of a full disk before the disk is tried again.
pub const HISTORY_TRIMS_WHEN_FULL: usize = 128;

const _: () = assert!(AUDIT_QUEUE_BYTES_MAX > 16 * (HEAD_BYTES_MAX + 2 * AUDIT_BODY_BYTES_MAX), "a record always fits");
const _: () = assert!(MIRROR_DOCUMENT_BYTES_MAX <= MIRROR_BYTES_MAX, "every document can be kept");
const _: () = assert!(BATCH_BYTES <= SOCKET_SEND_BYTES as usize, "a turn fits into the socket");
const _: () = assert!(4 * CONNECTION_BODIES_BYTES_MAX <= BODIES_BYTES_MAX, "one connection leaves room to others");
const _: () = assert!(4 * CONNECTION_SMALL_BODIES_BYTES_MAX <= SMALL_BODIES_BYTES_MAX, "the same for small bodies");
const _: () = assert!(REQUEST_BODY_BYTES_MAX <= USER_BODIES_BYTES_MAX, "every body fits into the part of a user");
const _: () = assert!(REQUEST_BODY_BYTES_MAX <= CONNECTION_BODIES_BYTES_MAX, "every body fits");
const _: () = assert!(BODY_RATE_AFTER.as_secs() < ROOM_WAIT.as_secs(), "who waits sees slow bodies go");
const _: () = assert!(
    RECHECK_EVERY.as_secs() + REVIEW_WAIT.as_secs() + WITHDRAWN_END_WAIT.as_secs() < WITHDRAWAL_WAIT.as_secs(),
    "a withdrawn watch ends in time"
);
const _: () = assert!(
    RECHECK_EVERY.as_secs() + FILE_CHECK_EVERY.as_secs() + WITHDRAWN_END_WAIT.as_secs() < WITHDRAWAL_WAIT.as_secs(),
    "a watch of a removed token ends in time"
);
const _: () = assert!(RECHECKED_AGE.as_millis() < RIGHT_RETRY.as_millis(), "a repeated question is asked");
const _: () = assert!(RECHECKED_AGE.as_millis() < EXPIRY_MARGIN.as_millis(), "an expired token is asked about");
const _: () = assert!(2 * LATE_REVIEWS_MAX <= UPSTREAM_ASKS_MAX, "late reviews leave slots to others");
const _: () = assert!(REVIEW_BYTES_MAX > 2 * HEAD_BYTES_MAX, "an answer repeats selectors, with escapes");

/// Objects that an import of a snapshot writes at once. As many as share one commit to the disk.
pub const IMPORT_BATCH_MAX: usize = DURABLE_BATCH_MAX;

/// Bytes of objects that an import of a snapshot writes at once; the last one may exceed it.
pub const IMPORT_BATCH_BYTES_MAX: usize = DURABLE_BATCH_BYTES_MAX;
