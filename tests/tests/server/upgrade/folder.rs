//! A process takes over the folder of another one: ends of either process at each step, and requests under way.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use serde_json::json;
use tempfile::TempDir;
use tests::{
    http::{Client, MERGE_PATCH, briefs},
    objects::configmap,
    process::Server,
};
use tokio::{
    process::Command,
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

use super::{BINARY, send, until};

const LIST: &str = "/api/v1/configmaps";

/// A folder with objects, and the socket of its upgrades.
struct DataFolder(TempDir);

impl DataFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Starts a server, which takes over from the one before.
    async fn start(&self) -> Server {
        self.start_at("127.0.0.1:0").await
    }

    async fn start_at(&self, listen: &str) -> Server {
        let flags = ["--data-dir", &self.at("data"), "--upgrade-socket", &self.at("upgrade"), "--log", "info"];
        Server::start_at(listen, BINARY, &[], &flags).await
    }
}

/// Goal: a process that ends at any step leaves the one before as it was. Method: the messages up to each step, and then
/// the end of the link; a watch from before all of them, a write and a list after each; then a process that takes over.
#[tokio::test]
async fn a_server_goes_on_at_whatever_step_the_next_process_ends() {
    let folder = DataFolder::new();
    let server = folder.start().await;
    let client = server.client().patient();
    let mut watch = client.watch(&format!("{LIST}?watch=1")).await;
    for steps in 0..5 {
        let (path, data) = (folder.at("upgrade"), fs::metadata(folder.at("data")).unwrap());
        let place = json!({"kind": "folder", "name": format!("{}:{}", data.dev(), data.ino())});
        let taken = spawn_blocking(move || {
            let stream = UnixStream::connect(path)?;
            let hello = json!({"message": "hello", "format": 3, "storage": place});
            let all: [&dyn Fn() -> io::Result<()>; 4] = [
                &|| send(&stream, &hello),
                &|| until(&stream, "complete"),
                &|| send(&stream, &json!({"message": "ready"})),
                &|| until(&stream, "go"),
            ];
            all.iter().take(steps).try_for_each(|step| step())
        });
        taken.await.unwrap().unwrap();
        client.create(&configmap(&format!("o{steps}"))).await;
        let keys: Vec<_> = (0..=steps).map(|number| format!("default/o{number}")).collect();
        assert_eq!(client.get(LIST).await.with_code(200).keys(), keys);
    }
    let added: Vec<_> = (0..5).map(|number| format!("ADDED default/o{number}")).collect();
    assert_eq!(briefs(&watch.events(5).await), added);
    let next = folder.start().await;
    assert_eq!(next.address(), server.address());
    assert_eq!(next.client().get(LIST).await.with_code(200).keys().len(), 5);
    assert_eq!(server.ended().await.code, Some(0));
}

/// A client that creates objects without end. It repeats a request that got no answer.
struct Creating {
    acknowledged: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Creating {
    fn start(client: Client, prefix: &'static str) -> Self {
        let (acknowledged, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, over) = (Arc::clone(&acknowledged), Arc::clone(&is_over));
        let task = tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let object = configmap(&format!("{prefix}{}", count.load(Ordering::SeqCst)));
                let body = object.body().to_string().into();
                let headers = [("content-type", "application/json")];
                let request = Client::request(Method::POST, &object.collection(), &headers, body);
                match client.try_send(request).await {
                    // The answer to an earlier attempt may be lost.
                    Ok(answer) if matches!(answer.code.as_u16(), 201 | 409) => {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(_) | Err(_) => sleep(Duration::from_millis(5)).await,
                }
            }
        });
        Self { acknowledged, is_over, task }
    }

    /// Waits until it has created so many more.
    async fn created(&self, more: usize) {
        let goal = self.acknowledged.load(Ordering::SeqCst) + more;
        while self.acknowledged.load(Ordering::SeqCst) < goal {
            assert!(!self.task.is_finished());
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns the number of created objects.
    async fn stop(self) -> usize {
        self.is_over.store(true, Ordering::SeqCst);
        self.task.await.expect("no request panics");
        self.acknowledged.load(Ordering::SeqCst)
    }
}

/// Moments of kills, in writes since the upgrade began: before the folder changes hands, meanwhile, and after.
const KILLED_AFTER: [usize; 6] = [0, 10, 60, 120, 180, 240];

/// Goal: kill -9 of the next process loses no acknowledged write, and the one before goes on unless it was replaced. Method:
/// kills at several moments; then a process that takes over from either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_of_the_next_process_loses_nothing() {
    let folder = DataFolder::new();
    let mut server = folder.start().await;
    let (address, mut count) = (server.address().to_string(), 0);
    for (prefix, writes) in ["a", "b", "c", "d", "e", "f"].into_iter().zip(KILLED_AFTER) {
        let creating = Creating::start(server.client().patient(), prefix);
        let mut next = Command::new(BINARY);
        next.args(["serve", "--listen", &address, "--data-dir", &folder.at("data")]);
        next.args(["--upgrade-socket", &folder.at("upgrade")]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut next = next.spawn().unwrap();
        server.logged("upgrade began").await;
        creating.created(writes).await;
        next.kill().await.unwrap();
        let is_replaced = async {
            while !server.log().contains("drain started") {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = creating.created(5) => {}
            () = is_replaced => {}
        }
        server = folder.start_at(&address).await;
        creating.created(1).await;
        count += creating.stop().await;
        assert_eq!(
            server.client().get(LIST).await.with_code(200).keys().len(),
            count,
            "{writes} writes before the kill"
        );
    }
}

/// Goal: kill -9 of the process before loses no acknowledged write, and the next one serves. Method: kills at several
/// moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_of_the_process_before_loses_nothing() {
    let folder = DataFolder::new();
    let mut server = folder.start().await;
    let (address, mut count) = (server.address().to_string(), 0);
    for (prefix, writes) in ["a", "b", "c", "d", "e", "f"].into_iter().zip(KILLED_AFTER) {
        let creating = Creating::start(server.client().patient(), prefix);
        let kill = async {
            server.logged("upgrade began").await;
            creating.created(writes).await;
            server.signal("KILL");
        };
        let (next, ()) = tokio::join!(folder.start_at(&address), kill);
        server = next;
        creating.created(1).await;
        count += creating.stop().await;
        assert_eq!(
            server.client().get(LIST).await.with_code(200).keys().len(),
            count,
            "{writes} writes before the kill"
        );
    }
}

/// Returns a request for a new object, and the part of it that a slow client sends first.
fn creation(address: SocketAddr, name: &str) -> (String, usize) {
    let object = configmap(name);
    let (path, body) = (object.collection(), object.body().to_string());
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    (head.clone() + &body, head.len() + length / 2)
}

/// Reads one answer, whose body has a length.
fn answer(stream: &mut TcpStream) -> io::Result<String> {
    let (mut read, mut piece) = (String::new(), [0; 4 << 10]);
    loop {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.push_str(&String::from_utf8_lossy(&piece[..count]));
        let Some((head, body)) = read.split_once("\r\n\r\n") else { continue };
        let length = head.to_ascii_lowercase();
        let length = length.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if length.is_some_and(|length: usize| length <= body.len()) {
            return Ok(read);
        }
    }
}

/// Goal: a client that reuses its connection over HTTP/1.1 gets every answer, and learns from one when to open another
/// connection; one that is idle loses its connection. Method: both during an upgrade.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_over_http1_reuse_their_connections_until_an_answer_ends_them() {
    let folder = DataFolder::new();
    let server = folder.start().await;
    let address = server.address();
    let mut idle = TcpStream::connect(address).unwrap();
    idle.write_all(creation(address, "idle").0.as_bytes()).unwrap();
    assert!(answer(&mut idle).unwrap().starts_with("HTTP/1.1 201"));
    let over = Arc::<AtomicBool>::default();
    let stopped = Arc::clone(&over);
    let busy = spawn_blocking(move || {
        let (mut count, mut connections) = (0, 0);
        while !stopped.load(Ordering::SeqCst) {
            let mut stream = TcpStream::connect(address)?;
            connections += 1;
            loop {
                stream.write_all(creation(address, &format!("busy{count}")).0.as_bytes())?;
                let answer = answer(&mut stream)?;
                assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
                count += 1;
                if answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n") || stopped.load(Ordering::SeqCst) {
                    break;
                }
            }
        }
        Ok::<_, io::Error>((count, connections))
    });
    let next = folder.start().await;
    assert_eq!(server.ended().await.code, Some(0));
    over.store(true, Ordering::SeqCst);
    let (count, connections): (usize, usize) = busy.await.unwrap().expect("each request is answered");
    assert!(1 < connections, "the first one ends with the process");
    assert_eq!(next.client().get(LIST).await.with_code(200).keys().len(), count + 1);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "it ends, and not by a reset");
}

/// Goal: a write that its client sends too slowly happens once: the process that left the folder asks to repeat it. Method:
/// half of its body before the next process serves, the rest after.
#[tokio::test]
async fn a_write_that_misses_the_change_is_refused_and_can_be_repeated() {
    let folder = DataFolder::new();
    let server = folder.start().await;
    let (request, part) = creation(server.address(), "slow");
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.write_all(&request.as_bytes()[..part]).unwrap();
    let next = folder.start().await;
    slow.write_all(&request.as_bytes()[part..]).unwrap();
    let refused = answer(&mut slow).unwrap().to_ascii_lowercase();
    assert!(refused.starts_with("http/1.1 503") && refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    next.client().create(&configmap("slow")).await;
    assert_eq!(next.client().get(LIST).await.with_code(200).keys(), ["default/slow"]);
}

/// Goal: a deletion that waits for a finalizer goes on at the next process, whether it began long before the upgrade or
/// during it. Method: two such objects, one of them marked when the copy of the file may have been made.
#[tokio::test]
async fn deletions_that_wait_for_finalizers_go_on() {
    let folder = DataFolder::new();
    let server = folder.start().await;
    let client = server.client().patient();
    let held = ["early", "late"].map(configmap);
    for object in &held {
        let mut manifest = object.body().clone();
        manifest["metadata"]["finalizers"] = json!(["example.com/held"]);
        client.create_manifest(&manifest).await.with_code(201);
    }
    client.delete(&held[0].path()).await.with_code(200);
    let marks = async {
        server.logged("upgrade began").await;
        client.delete(&held[1].path()).await.with_code(200);
    };
    let (next, ()) = tokio::join!(folder.start(), marks);
    for object in &held {
        let marked = next.client().get(&object.path()).await.with_code(200).json();
        assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
        let change = json!({"metadata": {"finalizers": null}});
        next.client().patch(&object.path(), MERGE_PATCH, &change).await.with_code(200);
        next.client().get(&object.path()).await.with_code(404);
    }
}
