//! A server that acts as a cluster does more than store objects: over its sockets.

mod conversion;
mod deletion;
mod owners;
mod plugins;
mod services;
mod strategies;

use cache_server::testing::ApiServer;
use tests::http::Client;

/// The client of a server, as its URL says.
pub(crate) fn client_of(server: &ApiServer) -> Client {
    let (_, rest) = server.url().split_once("://").expect("a scheme");
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let client = Client::new(address.parse().expect("an address"));
    if path.is_empty() { client } else { client.below(&format!("/{path}")) }
}
