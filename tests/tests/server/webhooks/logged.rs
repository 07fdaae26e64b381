//! Log lines about webhooks.

use std::{
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use cache_server::{Server, config::Config};
use serde_json::json;
use tests::http::Client;
use tokio::task::JoinSet;
use tracing::{Dispatch, Level};

use super::{
    CONFIGMAPS, configure, conversion,
    hook::{Hook, Reply},
    named, webhook,
};

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Goal: no log shows what a conversion webhook answered. Method: one that fails with a word in its answer, which the client gets.
#[tokio::test]
async fn failed_conversions_are_logged_without_answers() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_max_level(Level::WARN).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(log);
    let _second = Dispatch::new(tracing_subscriber::registry());
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::bind(Config { listen, acts_as_cluster: true, ..Config::default() }).await.expect("starts");
    let client = Client::new(server.local_addr());
    let _serving = JoinSet::from_iter([server.serve(pending())]);
    let hook =
        Hook::start(|_, _| Reply::Response(json!({"result": {"status": "Failure", "message": "hunter2"}}))).await;
    conversion::define(&client, &hook).await;
    let refused = conversion::create_converted(&client).await.with_code(500);
    assert!(refused.text().contains("hunter2"), "{}", refused.text());
    let text = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("UTF-8");
    assert!(text.contains("a conversion webhook failed") && !text.contains("hunter2"), "{text}");
}

/// Goal: the log names the class of an ignored failure, and nothing that a webhook answered: it may repeat objects. Method:
/// webhooks that fail in different ways, with a word in their answers.
#[tokio::test]
async fn ignored_failures_are_logged_without_answers() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_max_level(Level::WARN).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(log);
    // With a single dispatcher, tracing caches the interest of other tests' threads, which have no subscriber.
    let _second = Dispatch::new(tracing_subscriber::registry());
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::bind(Config { listen, acts_as_cluster: true, ..Config::default() }).await.expect("starts");
    let client = Client::new(server.local_addr());
    // On this thread, which has the subscriber.
    let _serving = JoinSet::from_iter([server.serve(pending())]);
    let hook = Hook::start(|path, _| match path {
        "code" => Reply::Raw(500, "hunter2".to_owned()),
        "text" => Reply::Raw(200, json!({"response": "hunter2"}).to_string()),
        "uid" => Reply::Response(json!({"uid": "hunter2", "allowed": true})),
        "silent" => Reply::Never,
        _ => Reply::Response(json!({"allowed": true})),
    })
    .await;
    let nowhere = json!({"url": "https://127.0.0.1:1/hunter2"});
    let causes = [
        ("code", hook.client_config("code"), "status code 500"),
        ("text", hook.client_config("text"), "unreadable answer"),
        ("uid", hook.client_config("uid"), "unreadable answer"),
        ("silent", hook.client_config("silent"), "timeout"),
        ("nowhere", nowhere, "connection refused"),
    ];
    let webhooks = causes.clone().map(|(name, config, _)| {
        let more = json!({"clientConfig": config, "failurePolicy": "Ignore", "timeoutSeconds": 1});
        webhook(&hook, name, &["configmaps"], &more)
    });
    configure(&client, "Validating", "x", &webhooks).await.with_code(201);
    client.post(CONFIGMAPS, &named("a")).await.with_code(201);
    let text = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("UTF-8");
    for (name, _, cause) in causes {
        let is_there = |line: &str| line.contains(&format!("{name}.example.com")) && line.contains(cause);
        assert!(text.lines().any(is_there), "{name}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}
