//! The server's side of the Kubernetes API's wire format: requests read and responses written, as kube-apiserver does.
//!
//! INVARIANT: knows no socket, clock, task, metric or log. It holds no objects and waits for nothing: it decides which
//! state a request reads, and the bytes around the objects. `tests/tidy` checks the dependency tree for this.
//!
//! In reading order: queries ([`query`]), their options ([`options`]), the state that they read ([`reads`]), pages
//! ([`continue_token`], [`list`]), watches ([`watch_event`], [`marks`]), all of them in [`protobuf`], errors ([`status`]),
//! and Go's words in them ([`go`]). `informer-core` has the client's side.

pub mod limits;

pub mod go;
pub mod status;

pub mod continue_token;
pub mod options;
pub mod query;
pub mod reads;

pub mod list;
pub mod marks;
pub mod protobuf;
pub mod watch_event;
