//! A raw TCP server that implements just enough of the list/watch protocol, and breaks it according to a [`Fault`]. It
//! shares no code with the SDK or its fake server, and so none of their bugs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    faults::{Fault, Line, Raw, Then},
    world::{Change, Object, World},
};

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadKind {
    Stream,
    Watch,
    List,
    Page,
    /// One object, by GET or by a LIST of its name.
    Object,
}

#[derive(Clone)]
pub(crate) struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// A counter, incremented by every write and every change of the fault.
    moved: watch::Sender<u64>,
    port: u16,
}

pub(crate) struct State {
    pub(crate) world: World,
    fault: Option<&'static Fault>,
    /// Watches opened at an earlier generation end.
    generation: u64,
    /// Time and kind of each request.
    pub(crate) requests: Vec<(Instant, ReadKind)>,
    /// States that pages are read from, by version.
    snapshots: HashMap<u64, Vec<Object>>,
    accepts: bool,
}

/// A parsed request line.
struct Request {
    path: String,
    query: HashMap<String, String>,
}

impl Request {
    fn asked(&self) -> ReadKind {
        let has = |key: &str| self.query.contains_key(key);
        if !self.path.ends_with("/configmaps") || has("fieldSelector") {
            ReadKind::Object
        } else if has("sendInitialEvents") {
            ReadKind::Stream
        } else if has("watch") {
            ReadKind::Watch
        } else if has("continue") {
            ReadKind::Page
        } else {
            ReadKind::List
        }
    }

    fn get(&self, key: &str) -> &str {
        self.query.get(key).map_or("", String::as_str)
    }
}

impl Server {
    /// Starts listening, until it is dropped with its runtime.
    pub(crate) async fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            world: World::new(seed),
            fault: None,
            generation: 0,
            requests: Vec::new(),
            snapshots: HashMap::new(),
            accepts: true,
        };
        let shared = Shared { state: Mutex::new(state), moved: watch::channel(0).0, port };
        let server = Self { shared: Arc::new(shared) };
        tokio::spawn(server.clone().accept(listener));
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.shared.port)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// Changes the world; every watch sees it.
    pub(crate) fn write(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.state().world);
        self.shared.moved.send_modify(|count| *count += 1);
    }

    /// Starts a fault. If the fault concerns new responses, open ones end first.
    pub(crate) fn turn_hostile(&self, fault: &'static Fault) {
        {
            let mut state = self.state();
            state.fault = Some(fault);
            state.accepts = !fault.refuses;
            if fault.cuts {
                state.generation += 1;
            }
            if let Some(change) = fault.world {
                change(&mut state.world);
            }
        }
        self.shared.moved.send_modify(|count| *count += 1);
    }

    /// Ends the fault and every stalled response.
    pub(crate) fn behave(&self) {
        {
            let mut state = self.state();
            (state.fault, state.accepts) = (None, true);
            state.generation += 1;
        }
        self.shared.moved.send_modify(|count| *count += 1);
    }

    async fn accept(self, listener: TcpListener) {
        let (mut moved, mut listener) = (self.shared.moved.subscribe(), Some(listener));
        loop {
            let accepts = self.state().accepts;
            match (&listener, accepts) {
                (Some(open), true) => tokio::select! {
                    accepted = open.accept() => if let Ok((socket, _)) = accepted {
                        tokio::spawn(self.clone().serve(socket));
                    },
                    _ = moved.changed() => {}
                },
                // Without a listener the kernel refuses connections.
                (Some(_), false) => listener = None,
                (None, true) => {
                    // The bind may fail at first, so the loop retries.
                    listener = TcpListener::bind(("127.0.0.1", self.shared.port)).await.ok();
                    sleep(Duration::from_millis(10)).await;
                }
                (None, false) => drop(moved.changed().await),
            }
        }
    }

    async fn serve(self, mut socket: TcpStream) {
        let _ = socket.set_nodelay(true);
        let mut buffer = Vec::new();
        while let Some(request) = read_request(&mut socket, &mut buffer).await {
            let asked = request.asked();
            let (fault, generation) = {
                let mut state = self.state();
                state.requests.push((Instant::now(), asked));
                (state.fault, state.generation)
            };
            let raw = fault.and_then(|fault| fault.answer).and_then(|answer| answer(asked));
            if let Some(raw) = raw {
                return self.misbehave(socket, raw, generation).await;
            }
            let is_alive = match asked {
                ReadKind::Stream | ReadKind::Watch => self.watch(&mut socket, &request, asked, generation).await,
                ReadKind::List | ReadKind::Page => respond(&mut socket, self.list(&request, fault)).await,
                ReadKind::Object => respond(&mut socket, self.object(&request)).await,
            };
            if !is_alive {
                return;
            }
        }
    }

    async fn misbehave(&self, mut socket: TcpStream, raw: Raw, generation: u64) {
        if socket.write_all(&raw.bytes).await.is_err() {
            return;
        }
        match raw.then {
            Then::Close => {
                let _ = socket.shutdown().await;
            }
            Then::Reset => drop(socket.set_zero_linger()),
            Then::Hang => self.until_it_behaves(generation).await,
            Then::Repeat { bytes, every } => {
                while self.state().generation == generation && socket.write_all(bytes).await.is_ok() {
                    sleep(every).await;
                }
            }
        }
    }

    async fn until_it_behaves(&self, generation: u64) {
        let mut moved = self.shared.moved.subscribe();
        while self.state().generation == generation && moved.changed().await.is_ok() {}
    }

    fn list(&self, request: &Request, fault: Option<&'static Fault>) -> (u16, String) {
        let mut state = self.state();
        let now = state.world.version;
        let (at, from) = match request.get("continue").split_once('-') {
            Some((at, from)) => (at.parse().unwrap_or(0), from.parse().unwrap_or(0)),
            None => {
                if let Err(refusal) = check_version(request, now) {
                    return refusal;
                }
                let objects = state.world.objects.values().cloned().collect();
                state.snapshots.insert(now, objects);
                (now, 0)
            }
        };
        let Some(snapshot) = state.snapshots.get(&at) else {
            return status(410, "Expired", "the provided continue parameter is too old");
        };
        let limit = request.get("limit").parse().unwrap_or(usize::MAX);
        let page: Vec<&Object> = snapshot.iter().skip(from).take(limit).collect();
        let next = from + page.len();
        let token = if next < snapshot.len() { format!("{at}-{next}") } else { String::new() };
        let body = match fault.and_then(|fault| fault.list) {
            Some(write) => write(&page, at, &token),
            None => super::faults::list_body(&page, at, &token),
        };
        (200, body)
    }

    fn object(&self, request: &Request) -> (u16, String) {
        let state = self.state();
        if let Err(refusal) = check_version(request, state.world.version) {
            return refusal;
        }
        match request.get("fieldSelector").strip_prefix("metadata.name=") {
            Some(name) => {
                let found: Vec<&Object> = state.world.objects.get(name).into_iter().collect();
                (200, super::faults::list_body(&found, state.world.version, ""))
            }
            None => {
                let name = request.path.rsplit('/').next().unwrap_or_default();
                let found = state.world.objects.get(name).map(|object| (200, object.json()));
                found.unwrap_or_else(|| status(404, "NotFound", "not found"))
            }
        }
    }

    /// Serves a watch. Returns true if the connection can be reused.
    async fn watch(&self, socket: &mut TcpStream, request: &Request, asked: ReadKind, generation: u64) -> bool {
        let mut moved = self.shared.moved.subscribe();
        let (mut lines, mut sent) = match self.begin_watch(request, asked) {
            Ok(begun) => begun,
            Err(refusal) => return respond(socket, refusal).await,
        };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        if socket.write_all(head.as_bytes()).await.is_err() {
            return false;
        }
        let seconds = request.get("timeoutSeconds").parse().unwrap_or(300);
        let ends_at = Instant::now() + Duration::from_secs(seconds);
        loop {
            let text = {
                let fault = self.state().fault;
                let mut text = Vec::new();
                for line in lines.drain(..) {
                    match fault.and_then(|fault| fault.line) {
                        Some(write) => write(&line, &mut text),
                        None => text.extend_from_slice(line.text().as_bytes()),
                    }
                }
                text
            };
            if !text.is_empty() && chunk(socket, &text).await.is_err() {
                return false;
            }
            if self.state().generation != generation || Instant::now() >= ends_at {
                return socket.write_all(b"0\r\n\r\n").await.is_ok();
            }
            // Send a bookmark after each quiet second.
            let is_quiet = timeout(Duration::from_secs(1), moved.changed()).await.is_err();
            let state = self.state();
            if state.generation != generation {
                // Later changes may be of another history.
                continue;
            }
            let news = state.world.history.iter().filter(|change| change.object.version > sent);
            lines.extend(news.cloned().map(Line::Change));
            sent = state.world.version.max(sent);
            if is_quiet {
                lines.push(Line::Bookmark { version: sent, ends: false });
            }
        }
    }

    /// The first lines of a watch, and the version up to which they are complete.
    fn begin_watch(&self, request: &Request, asked: ReadKind) -> Result<(Vec<Line>, u64), (u16, String)> {
        let state = self.state();
        let now = state.world.version;
        check_version(request, now)?;
        if asked == ReadKind::Stream {
            let added = |object: &Object| Line::Change(Change { kind: "ADDED", object: object.clone() });
            let mut lines: Vec<Line> = state.world.objects.values().map(added).collect();
            lines.push(Line::Bookmark { version: now, ends: true });
            return Ok((lines, now));
        }
        let from: u64 = request.get("resourceVersion").parse().unwrap_or(0);
        if from < state.world.compacted {
            return Err(status(410, "Expired", "too old resource version"));
        }
        let news = state.world.history.iter().filter(|change| change.object.version > from);
        Ok((news.cloned().map(Line::Change).collect(), now))
    }
}

/// Like kube-apiserver: 400 for a malformed position, 504 for a future one.
fn check_version(request: &Request, now: u64) -> Result<(), (u16, String)> {
    match request.get("resourceVersion") {
        "" => Ok(()),
        text => match text.parse::<u64>() {
            Err(_) => Err(status(400, "BadRequest", "invalid resource version")),
            Ok(version) if version > now => Err((
                504,
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#.into(),
            )),
            Ok(_) => Ok(()),
        },
    }
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> (u16, String) {
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    );
    (code, body)
}

async fn respond(socket: &mut TcpStream, (code, body): (u16, String)) -> bool {
    let head = format!("HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    socket.write_all((head + &body).as_bytes()).await.is_ok()
}

async fn chunk(socket: &mut TcpStream, text: &[u8]) -> std::io::Result<()> {
    let mut framed = format!("{:x}\r\n", text.len()).into_bytes();
    framed.extend_from_slice(text);
    framed.extend_from_slice(b"\r\n");
    socket.write_all(&framed).await
}

async fn read_request(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.drain(..end + 4);
    let uri = head.split_whitespace().nth(1)?;
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs.map(|(key, value)| (key.to_owned(), value.replace("%3D", "=").replace("%20", " "))).collect();
    Some(Request { path: path.to_owned(), query })
}
