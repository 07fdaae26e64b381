//! The server over its sockets, beside recorded sessions of kube-apiserver, beside the protocol's rules and beside a
//! stock server.

mod assets;
mod audit;
mod authentication;
mod cli;
mod cluster;
mod conformance;
mod differential;
mod durable;
mod flow_control;
mod forks;
mod http2;
mod list_semantics;
mod observe;
mod process;
mod refused;
mod requests;
mod restricted_writes;
mod rights;
mod table;
mod tls;
mod top;
mod traces;
mod upgrade;
mod watch_start;
mod webhooks;
mod websockets;
mod writes;
