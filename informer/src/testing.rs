//! An in-memory API server, for tests of programs that read Kubernetes: the crate `informer-testing`.
//!
//! [`FakeApiServer`] holds objects, their resourceVersions and the whole history of both. It answers LIST, GET and
//! WATCH like kube-apiserver (semantics of resourceVersion, pages and their tokens, initial state as a stream,
//! bookmarks, label and field selectors, errors as `Status`), and with the feature `testing-writes` the writes of
//! controllers. Its methods inject faults. It knows only tokio's clock: under paused time hours pass in milliseconds.
//!
//! ```
//! use std::time::Duration;
//! use informer::{Cluster, Informer, testing::FakeApiServer};
//! use k8s_openapi::api::core::v1::Node;
//! use serde_json::json;
//!
//! /// What is tested: how many nodes take no pods.
//! fn cordoned(nodes: &Informer<Node>) -> usize {
//!     let is_cordoned = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
//!     nodes.store().snapshot().typed().filter(|node| is_cordoned(node)).count()
//! }
//!
//! fn node(name: &str, unschedulable: bool) -> serde_json::Value {
//!     let spec = json!({"unschedulable": unschedulable});
//!     json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec})
//! }
//!
//! // In a test: #[tokio::test(start_paused = true)] async fn cordoned_nodes_are_counted_through_an_outage()
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = FakeApiServer::new().at(41).put(node("a", false)).put(node("b", true));
//! let nodes = Cluster::new(server.client()).informer::<Node>().start()?;
//! nodes.ready(Duration::from_secs(5)).await?;
//! assert_eq!(cordoned(&nodes), 1);
//!
//! // An outage of ten minutes, in which a node is cordoned. No time passes for the test.
//! server.refuse_connections().close_watches().put(node("a", true));
//! tokio::time::sleep(Duration::from_secs(600)).await;
//! assert_eq!(cordoned(&nodes), 1, "what was known stays readable");
//! server.recover();
//! nodes.wait_for(server.resource_version(), Duration::from_secs(60)).await?;
//! assert_eq!(cordoned(&nodes), 2);
//! assert_eq!(server.initial_reads(), 1, "it resumed, and did not list again");
//! # Ok(())
//! # }
//! ```

use bytes::Bytes;
use http_body_util::Empty;
#[doc(inline)]
pub use informer_testing::{Body, FakeApiServer, LoggedRequest, RequestKind};
use tower::ServiceExt as _;

use crate::connection::ServerConnection;

impl From<FakeApiServer> for ServerConnection {
    fn from(server: FakeApiServer) -> Self {
        Self::new(server.map_request(|request: http::Request<()>| request.map(|()| Empty::<Bytes>::new())))
    }
}
