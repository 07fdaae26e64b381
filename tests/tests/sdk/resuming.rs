//! Resumed initial streams over sockets: the protocol of `docs/resuming.md` as other clients would use it, and the SDK
//! behind a proxy that cuts connections at random bytes.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;
use informer::{Cluster, Informer, InitialList, delays::Delays};
use k8s_openapi::api::core::v1::Pod;
use tests::{
    http::{Client, Event, Watch, key, watch_list},
    objects::{configmap, pod},
    process::Server,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const PATIENCE: Duration = Duration::from_secs(120);
const PODS: &str = "/api/v1/pods";
const HEADER: &str = "resume-initial-events";

async fn ask(client: &Client, path: &str, marks: &str) -> Watch {
    client.watch_with(&watch_list(path), &[(HEADER, marks)]).await
}

fn token(event: &Event) -> Option<String> {
    event.object["metadata"]["annotations"][HEADER].as_str().map(str::to_owned)
}

/// The content of a stream of initial state.
#[derive(Default)]
struct Begun {
    /// Each mark with the keys before it, in order.
    before: Vec<(String, Vec<String>)>,
    keys: Vec<String>,
    lines: BTreeMap<String, Vec<u8>>,
    /// Position of the end bookmark, if it came.
    end: Option<u64>,
}

/// Reads up to the end of the initial state, or up to `marks` marks.
async fn read(watch: &mut Watch, marks: usize) -> Begun {
    let mut begun = Begun::default();
    while begun.end.is_none() && begun.before.len() < marks {
        let event = watch.event().await;
        if let Some(token) = token(&event) {
            assert_eq!(event.object["metadata"]["resourceVersion"], serde_json::Value::Null, "a mark is no position");
            assert!(!event.ends_initial_state());
            begun.before.push((token, begun.keys.clone()));
        } else if event.ends_initial_state() {
            begun.end = Some(event.resource_version());
        } else {
            assert_eq!(event.kind.as_str(), "ADDED");
            let key = key(&event.object);
            begun.lines.insert(key.clone(), event.raw.to_vec());
            begun.keys.push(key);
        }
    }
    begun
}

/// A server with `pods` generated pods of about 3.5 kB each: one mark per about forty pods.
async fn populated(pods: u32) -> Server {
    Server::start(BINARY, &["--populate", &format!("pods={pods},nodes=4,namespaces=5,seed=7")]).await
}

/// Goal: the whole protocol once. Method: read a stream to its second mark and leave it; create, change and delete
/// objects; compare the resumed stream with what an undisturbed client got before.
#[tokio::test]
async fn what_goes_on_behind_a_mark_is_the_rest_of_the_very_same_state() {
    let server = populated(400).await;
    let http = server.client();
    let whole = read(&mut http.watch(&watch_list(PODS)).await, 1).await;
    let mut first = ask(&http, PODS, "new").await;
    assert_eq!(first.header(HEADER), "accepted");
    let begun = read(&mut first, 2).await;
    drop(first);
    let (mark, before) = begun.before.last().unwrap().clone();
    assert!(!before.is_empty() && before.len() < 390, "{}", before.len());

    http.create(&pod("aaa")).await;
    http.create(&pod("zzz")).await;
    let (gone, changed) = (whole.keys.last().unwrap(), &whole.keys[whole.keys.len() - 2]);
    let path = |key: &str| {
        let (namespace, name) = key.split_once('/').unwrap();
        format!("/api/v1/namespaces/{namespace}/pods/{name}")
    };
    http.delete(&format!("{}?gracePeriodSeconds=0", path(gone))).await.with_code(200);
    let patch = serde_json::json!({"metadata": {"labels": {"changed": "yes"}}});
    http.patch(&path(changed), tests::http::MERGE_PATCH, &patch).await.with_code(200);

    let mut second = ask(&http, PODS, &mark).await;
    assert_eq!(second.header(HEADER), "resumed");
    assert_eq!(token(&second.event().await).as_ref(), Some(&mark), "the mark comes again, first");
    let rest = read(&mut second, usize::MAX).await;
    assert_eq!([before, rest.keys].concat(), whole.keys);
    assert!(rest.lines.iter().all(|(key, line)| whole.lines[key] == *line), "byte for byte");
    assert_eq!(rest.end, whole.end, "at the position of the first");
    let mut live = Vec::new();
    while live.last() != Some(&format!("MODIFIED {changed}")) {
        live.push(second.event().await.brief());
    }
    // The deletion of a pod on a node first modifies it.
    live.retain(|brief| *brief != format!("MODIFIED {gone}"));
    let expected =
        ["ADDED default/aaa", "ADDED default/zzz", &format!("DELETED {gone}"), &format!("MODIFIED {changed}")];
    assert_eq!(live, expected);
}

#[tokio::test]
async fn every_mark_of_a_stream_leads_to_its_rest() {
    let server = populated(200).await;
    let http = server.client();
    let whole = read(&mut ask(&http, PODS, "new").await, usize::MAX).await;
    assert!(whole.before.len() >= 3, "{}", whole.before.len());
    for (mark, before) in &whole.before {
        let mut watch = ask(&http, PODS, mark).await;
        assert_eq!(watch.header(HEADER), "resumed");
        watch.event().await;
        let rest = read(&mut watch, usize::MAX).await;
        assert_eq!([before.clone(), rest.keys.clone()].concat(), whole.keys);
        let marks = |begun: &Begun| begun.before.iter().map(|(token, _)| token.clone()).collect::<Vec<_>>();
        assert!(!marks(&rest).contains(mark), "it goes forward");
    }
}

#[tokio::test]
async fn namespaces_and_selectors_go_on_in_their_own_objects() {
    let server = populated(900).await;
    let http = server.client();
    let namespace =
        read(&mut http.watch(&watch_list(PODS)).await, 1).await.keys[0].split('/').next().unwrap().to_owned();
    for path in [format!("/api/v1/namespaces/{namespace}/pods"), format!("{PODS}?fieldSelector=spec.nodeName%3Dnode-1")]
    {
        let whole = read(&mut ask(&http, &path, "new").await, usize::MAX).await;
        let (mark, before) = &whole.before[0];
        let mut watch = ask(&http, &path, mark).await;
        assert_eq!(watch.header(HEADER), "resumed", "{path}");
        watch.event().await;
        assert_eq!([before.clone(), read(&mut watch, usize::MAX).await.keys].concat(), whole.keys, "{path}");
    }
}

/// Goal: a mark is valid for one stream only. Method: use it in every other place.
#[tokio::test]
async fn a_mark_of_anything_else_begins_anew_and_says_so() {
    let server = populated(120).await;
    let http = server.client();
    let whole = read(&mut ask(&http, PODS, "new").await, usize::MAX).await;
    let mark = whole.before[0].0.clone();
    let forged = |from: &str, to: &str| mark.replacen(from, to, 1);
    let (text, check) = mark.rsplit_once('.').unwrap();
    let page = http.get(&format!("{PODS}?limit=1")).await.token().unwrap();
    for wrong in [
        "x".to_owned(),
        text.to_owned(),
        format!(".{check}"),
        format!("{text}.{}", "0".repeat(check.len())),
        forged("eyJ2", "eyJ3"),
        page.clone(),
        format!("{page}.{check}"),
        "t".repeat(5_000),
    ] {
        let mut watch = ask(&http, PODS, &wrong).await;
        assert_eq!((watch.code().as_u16(), watch.header(HEADER)), (200, "restarted"), "{wrong}");
        assert_eq!(read(&mut watch, 1).await.keys, whole.before[0].1, "from the first object on");
    }
    let other = populated(120).await;
    for (client, path, accept) in [
        (&other.client(), PODS, "application/json"),
        (&http, "/api/v1/namespaces/default/pods", "application/json"),
        (&http, "/api/v1/nodes", "application/json"),
        (&http, "/api/v1/pods?labelSelector=app", "application/json"),
        (&http, "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1", "application/json"),
        (&http, PODS, "application/json;drop=metadata.managedFields,application/json"),
        (&http, PODS, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
    ] {
        let watch = client.watch_with(&watch_list(path), &[(HEADER, &mark), ("accept", accept)]).await;
        assert_eq!((watch.code().as_u16(), watch.header(HEADER)), (200, "restarted"), "{path} {accept}");
    }
    // The mark's state is older than the requested version.
    let newer = http.create(&pod("newer")).await;
    let demanding = format!("{}&resourceVersion={newer}", watch_list(PODS));
    let watch = http.watch_with(&demanding, &[(HEADER, &mark)]).await;
    assert_eq!(watch.header(HEADER), "restarted");
    let listed = http.get(&format!("{PODS}?continue={mark}")).await;
    assert_eq!(listed.code, 400, "a mark is no page");
}

#[tokio::test]
async fn metadata_goes_on_as_metadata_and_tables_have_no_marks() {
    let server = populated(900).await;
    let http = server.client();
    let accept = ("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let mut first = http.watch_with(&watch_list(PODS), &[(HEADER, "new"), accept]).await;
    assert_eq!(first.header(HEADER), "accepted");
    let whole = read(&mut first, usize::MAX).await;
    let (mark, before) = &whole.before[0];
    let mut second = http.watch_with(&watch_list(PODS), &[(HEADER, mark), accept]).await;
    assert_eq!(second.header(HEADER), "resumed");
    assert_eq!(second.event().await.object["kind"], "PartialObjectMetadata", "the mark, as other bookmarks");
    assert_eq!([before.clone(), read(&mut second, usize::MAX).await.keys].concat(), whole.keys);
    let table = ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    assert_eq!(http.watch_with(&watch_list(PODS), &[(HEADER, "new"), table]).await.header(HEADER), "");
}

/// Goal: clients without the header get no marks, and neither do streams without an end bookmark. Method: compare every
/// line of a stream with and without the header, with marks removed.
#[tokio::test]
async fn nobody_else_sees_a_mark() {
    let server = populated(200).await;
    let http = server.client();
    let mut plain = http.watch(&watch_list(PODS)).await;
    assert_eq!(plain.header(HEADER), "");
    let mut marked = ask(&http, PODS, "new").await;
    let mut marks = 0;
    loop {
        let mut event = marked.event().await;
        while token(&event).is_some() {
            marks += 1;
            event = marked.event().await;
        }
        let other = plain.event().await;
        assert!(event.raw == other.raw, "{event:?} {other:?}");
        if event.ends_initial_state() {
            break;
        }
    }
    assert!(marks >= 3, "{marks}");
    for query in ["watch=true", "watch=true&resourceVersion=0", "watch=true&resourceVersion=5&allowWatchBookmarks=true"]
    {
        let answer = http.watch_with(&format!("{PODS}?{query}"), &[(HEADER, "new")]).await;
        assert_eq!((answer.code().as_u16(), answer.header(HEADER)), (200, ""), "{query}");
    }
    let refused = http.get_with(&format!("{}&labelSelector=%3D", watch_list(PODS)), &[(HEADER, "new")]).await;
    assert_eq!((refused.code.as_u16(), refused.header(HEADER)), (400, ""));
}

/// A proxy that cuts each stream of initial state after some bytes, up to a number of cuts.
struct Scissors {
    address: SocketAddr,
    /// Number of initial-state objects that the server sent, including those that were cut off.
    added: Arc<AtomicUsize>,
    /// Number of cut streams of initial state.
    cuts: Arc<AtomicUsize>,
}

const ADDED: &[u8] = br#"{"type":"ADDED""#;

impl Scissors {
    async fn start(server: SocketAddr, cuts: usize, bytes: std::ops::Range<usize>, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scissors = Self { address, added: Arc::default(), cuts: Arc::default() };
        let (added, done) = (Arc::clone(&scissors.added), Arc::clone(&scissors.cuts));
        tokio::spawn(async move {
            let mut rng = Rng::with_seed(seed);
            while let Ok((client, _)) = listener.accept().await {
                let cut = (done.load(Relaxed) < cuts).then(|| rng.usize(bytes.clone()));
                tokio::spawn(pass(client, server, cut, Arc::clone(&added), Arc::clone(&done)));
            }
        });
        scissors
    }
}

/// Forwards one connection until either side ends it, or `cut` bytes came from the server.
async fn pass(
    client: TcpStream,
    server: SocketAddr,
    mut cut: Option<usize>,
    added: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
) {
    let server = TcpStream::connect(server).await.unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answering = async {
        let (mut chunk, mut tail) = (vec![0; 16 << 10], Vec::new());
        while let Ok(bytes @ 1..) = from_server.read(&mut chunk).await {
            tail.extend_from_slice(&chunk[..bytes]);
            added.fetch_add(tail.windows(ADDED.len()).filter(|found| *found == ADDED).count(), Relaxed);
            // Keep the end of the chunk, because the next one may complete a match.
            let kept = tail.len().min(ADDED.len() - 1);
            tail.drain(..tail.len() - kept);
            let pass = cut.map_or(bytes, |left| left.min(bytes));
            if to_client.write_all(&chunk[..pass]).await.is_err() {
                return;
            }
            if let Some(left) = &mut cut {
                *left -= pass;
                if *left == 0 {
                    done.fetch_add(1, Relaxed);
                    return;
                }
            }
        }
    };
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        () = answering => {}
    }
}

/// A backoff of 20 ms for tests.
struct Soon;

impl Delays for Soon {
    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }

    fn reset(&mut self) {}
}

fn cluster_at(address: SocketAddr) -> Cluster {
    Cluster::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap()
}

fn contents(informer: &Informer<Pod>) -> BTreeMap<String, String> {
    let all = informer.store().snapshot();
    all.iter().map(|object| (object.key().to_owned(), object.resource_version().to_owned())).collect()
}

/// Goal: the promise of resuming. Method: 7,130 pods through a proxy that cuts eight times at random bytes while pods
/// change. A reader polls the store all the time, and the proxy counts the objects sent.
#[tokio::test]
async fn a_state_over_a_line_that_breaks_costs_little_more_than_once_and_is_never_seen_in_part() {
    const OBJECTS: usize = 7_130;
    let server = populated(7_130).await;
    let http = server.client();
    let scissors = Scissors::start(server.address(), 8, 500_000..4_000_000, 11).await;
    let pods = cluster_at(scissors.address).informer::<Pod>().delays(Soon).start().unwrap();
    let watching = pods.clone();
    let reader = tokio::spawn(async move {
        let mut partial = 0;
        while watching.ready(Duration::ZERO).await.is_err() {
            partial += watching.store().snapshot().len();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (partial, watching.store().snapshot().len())
    });
    let writer = async {
        for round in 0.. {
            http.create(&pod(&format!("extra-{round}"))).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ready = pods.ready(PATIENCE) => drop(ready.unwrap()),
        () = writer => unreachable!(),
    }
    let (partial, first) = reader.await.unwrap();
    assert_eq!(partial, 0, "nothing before it is complete");
    assert!(first >= OBJECTS, "{first}");
    let stats = pods.stats().reflector;
    let (added, cuts) = (scissors.added.load(Relaxed), scissors.cuts.load(Relaxed));
    println!("{added} objects sent for {OBJECTS}, {cuts} cuts, {} resumes", stats.initial_resumes);
    assert!(cuts >= 4 && stats.initial_resumes == cuts as u64, "{cuts} cuts: {stats:?}");
    assert_eq!((stats.syncs, stats.pages), (1, 0));
    assert!(added * 10 < OBJECTS * 12, "{added} objects sent for {OBJECTS}");

    let last = http.create(&pod("last")).await;
    pods.wait_for(&informer::ResourceVersion::from(last), PATIENCE).await.unwrap();
    let listed = http.get(PODS).await.json();
    let there: BTreeMap<String, String> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (key(item), item["metadata"]["resourceVersion"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(contents(&pods), there);
}

/// Goal: managedFields that the informer would drop are not sent. Method: one state with and without managedFields.
#[tokio::test]
async fn managed_fields_that_nobody_keeps_are_not_sent() {
    let server = populated(300).await;
    let cluster = cluster_at(server.address());
    for initial in [InitialList::Stream, InitialList::Paged] {
        let declare = || cluster.informer::<Pod>().initial_list(initial);
        let (without, with) = (declare().start().unwrap(), declare().keep_managed_fields().start().unwrap());
        without.ready(PATIENCE).await.unwrap();
        with.ready(PATIENCE).await.unwrap();
        let (few, many) = (without.stats().bytes_received, with.stats().bytes_received);
        println!("{initial:?}: {few} instead of {many} bytes");
        assert!(few * 100 < many * 70, "{initial:?}: {few} instead of {many} bytes");
        let first = |informer: &Informer<Pod>| informer.store().snapshot().iter().next().unwrap().json().into_owned();
        assert!(!String::from_utf8(first(&without)).unwrap().contains("managedFields"));
        assert!(String::from_utf8(first(&with)).unwrap().contains("managedFields"));
    }
}

/// Goal: a mark of a previous server process restarts the stream. Method: a restart in between.
#[tokio::test]
async fn a_server_that_was_restarted_begins_anew() {
    let before = populated(120).await;
    let mark = read(&mut ask(&before.client(), PODS, "new").await, 1).await.before[0].0.clone();
    before.terminate();
    assert_eq!(before.ended().await.code, Some(0));
    let after = populated(120).await;
    after.client().create(&configmap("other")).await;
    let mut watch = ask(&after.client(), PODS, &mark).await;
    assert_eq!(watch.header(HEADER), "restarted");
    assert_eq!(read(&mut watch, usize::MAX).await.keys.len(), 120);
}
