//! The DaemonSet's servers, one on each node, with agents at their sockets.

use std::path::Path;

use tests::{
    genuine::ADMIN,
    objects::{node, pod},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::UnixStream,
    time::timeout,
};

use super::{NODE, Placement, is_slow_requested, rights::Scene};
use crate::upstream::scene::{PATIENCE, until};

const NODES: [&str; 3] = [NODE, "node-2", "node-3"];
/// Agents on each node.
const AGENTS: usize = 5;

/// A watch of one node's pods, without a token.
struct Agent {
    lines: Lines<BufReader<UnixStream>>,
}

impl Agent {
    async fn start(socket: &Path, node: &str) -> Self {
        let mut stream = UnixStream::connect(socket).await.unwrap();
        let path = format!("/api/v1/pods?watch=1&resourceVersion=0&fieldSelector=spec.nodeName%3D{node}");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        Self { lines: BufReader::new(stream).lines() }
    }

    /// Waits for the next event. Returns the line, which must be of an added pod.
    async fn added(&mut self) -> String {
        loop {
            let line = timeout(PATIENCE, self.lines.next_line()).await.expect("an event").unwrap().expect("is open");
            assert!(!line.starts_with("HTTP/1.1 ") || line.ends_with("200 OK"), "{line}");
            if line.starts_with('{') {
                assert!(line.contains(r#""type":"ADDED""#), "{line}");
                return line;
            }
        }
    }
}

/// Goal: a node costs the API server one watch of its own pods, whatever its agents. Method: a server for each node; agents
/// at the sockets, which see the pods of their node and no others.
#[tokio::test(flavor = "multi_thread")]
async fn agents_share_the_server_of_their_node() {
    if !is_slow_requested("agents on nodes") {
        return;
    }
    let Some(scene) = Scene::set("daemonset", &[]).await else { return };
    let admin = scene.genuine.client(ADMIN);
    for name in &NODES[1..] {
        admin.create(&node(name)).await;
        admin.create(&pod(&format!("first-of-{name}")).namespace("default").node(name)).await;
    }
    let before = scene.genuine.counters().await.open_watches("pods");
    let mut running = Vec::new();
    for name in NODES {
        let placement = Placement::read("daemonset");
        let (server, client) = placement.serve(&scene.flags_of(&placement, name)).await;
        until("the node's server is ready", async || client.get("/readyz").await.code == 200).await;
        let socket = placement.folder.path().join("run/cache-server/api.sock");
        let mut agents = Vec::new();
        for _ in 0..AGENTS {
            agents.push(Agent::start(&socket, name).await);
        }
        running.push((name, placement, server, agents));
    }
    for (name, _, _, agents) in &mut running {
        for agent in agents {
            let first = agent.added().await;
            assert!(first.contains(&format!(r#""nodeName":"{name}""#)), "{first}");
        }
    }
    for name in NODES.iter().rev() {
        admin.create(&pod(&format!("second-of-{name}")).namespace("default").node(name)).await;
    }
    for (name, _, _, agents) in &mut running {
        for agent in agents {
            let second = agent.added().await;
            assert!(second.contains(&format!(r#""name":"second-of-{name}""#)), "{second}");
        }
    }
    let watches = scene.genuine.counters().await.open_watches("pods") - before;
    assert_eq!(watches, NODES.len() as u64, "watches of pods at the API server");
}
