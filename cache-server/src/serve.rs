//! Sockets: accepts connections, hands each request to `http`, and ends cleanly.
