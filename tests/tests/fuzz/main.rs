//! Fuzzes the server's HTTP handler: it must give a valid response to every request.
//!
//! Goal: no panic, no 500 that the protocol does not name, no hang, no response that contradicts its headers. Method:
//! real requests and pieces of the protocol, mutated by a seeded generator, through the server's own handler in this
//! process, on a paused clock that advances when all tasks wait. `FUZZ_SECONDS` is the duration, 2 by default;
//! `FUZZ_SEED` is the first seed, which a failure prints with the request.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod corpus;
mod judge;
mod mutate;

use std::{
    collections::BTreeMap,
    panic,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::{Buf as _, Bytes};
use cache_server::{app::App, config::Config};
use fastrand::Rng;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use tokio::time::timeout;

use self::{judge::Came, mutate::Generator};

/// Requests per server. A fresh server per round makes a failure reproducible from the round's seed.
const ROUND: usize = 2_000;

/// Timeout of a response, on the paused clock. Reads that wait for a position take three seconds.
const ANSWER_WAIT: Duration = Duration::from_secs(61);

/// Time without a frame after which a stream is no longer read, on the paused clock.
const SILENCE: Duration = Duration::from_millis(100);

/// Maximum time of a request on the real clock.
const HANG: Duration = Duration::from_secs(20);

/// Maximum frames read of one response.
const FRAMES_MAX: usize = 2_000;

/// Maximum bytes of one response. Request bodies have a few KiB.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Maximum growth of the process, in bytes. Each round's server is dropped.
const GROWTH_BYTES_MAX: u64 = 512 << 20;

/// One request.
#[derive(Clone, Debug, Default)]
struct FuzzRequest {
    method: String,
    /// Path and query.
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl FuzzRequest {
    /// The request, or `None` if HTTP does not allow it.
    fn request(&self) -> Option<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(self.method.as_bytes()).uri(&self.target);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(Bytes::from(self.body.clone()))).ok()
    }
}

/// State of the watchdog: the current request and its start.
type Running = Arc<Mutex<Option<(Instant, String)>>>;

#[tokio::test(start_paused = true)]
async fn fuzz_for_a_while() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("FUZZ_SECONDS").unwrap_or(2);
    let first = number("FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let panics = count_panics();
    let running = Running::default();
    watch_for_hangs(Arc::clone(&running));
    let (begun, before) = (Instant::now(), resident_bytes());
    let (mut codes, mut rounds) = (BTreeMap::new(), 0);
    while begun.elapsed() < Duration::from_secs(seconds) || rounds == 0 {
        let seed = first.wrapping_add(rounds);
        round(seed, &panics, &running, begun + Duration::from_secs(seconds), &mut codes).await;
        rounds += 1;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "FUZZ_SEED={first}: {grown} bytes more");
    let asked: usize = codes.values().sum();
    // Check that requests get past basic validation, or the fuzzer would find nothing.
    let due = if asked < ROUND { &[200][..] } else { &[200, 201, 400, 404, 405, 406, 415, 422] };
    let never: Vec<_> = due.iter().filter(|code| !codes.contains_key(code)).collect();
    assert!(never.is_empty(), "FUZZ_SEED={first}: {asked} requests, none was answered {never:?}: {codes:?}");
    println!("{asked} requests in {rounds} rounds from FUZZ_SEED={first}, {grown} bytes more; by status {codes:?}");
}

/// Runs one server with its requests.
async fn round(seed: u64, panics: &AtomicU64, running: &Running, end: Instant, codes: &mut BTreeMap<u16, usize>) {
    let app = Arc::new(App::new(Config { first_revision: Some(1_000), ..Config::default() }));
    let mut generator = Generator::new(Rng::with_seed(seed));
    for index in 0..ROUND {
        if index > 0 && Instant::now() > end {
            break;
        }
        let asked = generator.next();
        let Some(request) = asked.request() else { continue };
        let story = || format!("FUZZ_SEED={seed}, request {index}: {}", judge::shown(&asked));
        *running.lock().unwrap() = Some((Instant::now(), story()));
        // In a task, so that a panic of the handler is reported with its request.
        let answer = tokio::spawn(answer(Arc::clone(&app), request)).await;
        *running.lock().unwrap() = None;
        assert_eq!(panics.load(Ordering::SeqCst), 0, "a panic by {}", story());
        let came = answer.unwrap_or_else(|error| panic!("{error} by {}", story()));
        let came = came.unwrap_or_else(|wrong| panic!("{wrong} by {}", story()));
        if let Err(wrong) = judge::judge(&asked, &came) {
            panic!("{wrong}\nby {}\nwhich got {} {:?}\n{}", story(), came.code, came.headers, came.start());
        }
        *codes.entry(came.code).or_default() += 1;
        generator.learn(&came);
    }
}

/// Sends a request and reads its response until it ends or stays silent.
async fn answer(app: Arc<App>, request: Request<Full<Bytes>>) -> Result<Came, String> {
    let answer = timeout(ANSWER_WAIT, cache_server::http::handle(app, request)).await;
    let (head, mut body) = answer.map_err(|_| "no answer")?.into_parts();
    let (mut bytes, mut whole) = (Vec::new(), false);
    for _ in 0..FRAMES_MAX {
        match timeout(SILENCE, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Ok(mut data) = frame.into_data() {
                    bytes.extend_from_slice(&data.copy_to_bytes(data.remaining()));
                }
                if bytes.len() > ANSWER_BYTES_MAX {
                    return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
                }
            }
            Ok(Some(Err(error))) => return Err(format!("an answer that breaks off: {error}")),
            Ok(None) => {
                whole = true;
                break;
            }
            // The watch has reached the head of the log.
            Err(_) => break,
        }
    }
    Ok(Came { code: head.status.as_u16(), headers: head.headers, body: bytes, whole })
}

/// Counts panics of all tasks and threads, and still prints them.
fn count_panics() -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let (counter, test, inner) = (Arc::clone(&count), std::thread::current().id(), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        // Do not count the test's own assertions, which panic in this package on the test's thread.
        let ours = info.location().is_some_and(|place| place.file().contains("tests/fuzz/"));
        if !ours || std::thread::current().id() != test {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        inner(info);
    }));
    count
}

/// Ends the process if a request runs longer than `HANG`.
fn watch_for_hangs(running: Running) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = running.lock().unwrap().clone();
            if let Some((since, story)) = now
                && since.elapsed() > HANG
            {
                eprintln!("it hangs: {story}");
                std::process::exit(101);
            }
        }
    });
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}
