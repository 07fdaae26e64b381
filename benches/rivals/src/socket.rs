//! The floor of every client: one thread reads the informer's watch from a blocking socket and counts its lines.

use std::{
    io::{BufRead as _, Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Failure, client::Report, memory};

/// Size of the reads, as large as those of the other clients.
const READ_BYTES: usize = 64 * 1024;

/// Longest wait for the initial state.
const SYNC_TIME_MAX: Duration = Duration::from_secs(100);

/// The same request as the informer's.
const WATCH: &str = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
    &allowWatchBookmarks=true&timeoutSeconds=3600";

/// Executes commands from stdin until it is closed.
pub(crate) fn main(url: &str) -> Result<(), Failure> {
    println!("ready");
    // Lines of the response so far, and their number at the end of the initial state.
    let (lines, initial) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    for command in std::io::stdin().lock().lines() {
        let mut report = Report { requests: 1, connections: 1, ..Report::default() };
        if command? == "sync" {
            let (start, cpu) = (Instant::now(), memory::cpu_seconds()?);
            let socket = requested(url)?;
            let (all, first) = (Arc::clone(&lines), Arc::clone(&initial));
            std::thread::spawn(move || follow(socket, &all, &first));
            while initial.load(Ordering::SeqCst) == 0 {
                if start.elapsed() > SYNC_TIME_MAX {
                    return Err("no sync".into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            report.synced_ms = start.elapsed().as_secs_f64() * 1e3;
            report.cpu_s = memory::cpu_seconds()? - cpu;
            let usage = memory::usage()?;
            (report.resident, report.resident_peak) = (usage.resident, usage.peak);
            report.live = crate::HEAP.current_usage();
        } else {
            report.cpu_s = memory::cpu_seconds()?;
            report.events = lines.load(Ordering::SeqCst) - initial.load(Ordering::SeqCst);
        }
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(())
}

fn requested(url: &str) -> Result<TcpStream, Failure> {
    let host = url.strip_prefix("http://").ok_or("a URL without TLS")?;
    let mut socket = TcpStream::connect(host)?;
    let accept = "application/json;drop=metadata.managedFields,application/json";
    write!(socket, "GET {WATCH} HTTP/1.1\r\nhost: {host}\r\naccept: {accept}\r\n\r\n")?;
    Ok(socket)
}

/// Counts the lines of a response until it ends: its line feeds, less those of HTTP's own lines, which have a carriage
/// return. Objects contain neither.
fn follow(mut socket: TcpStream, lines: &AtomicU64, initial: &AtomicU64) {
    const END: &[u8] = b"k8s.io/initial-events-end";
    let mut buffer = vec![0; READ_BYTES];
    // Until the initial state is complete, the end of each read stays in front of the next one.
    let mut kept = 0;
    while let Ok(count @ 1..) = socket.read(&mut buffer[kept..]) {
        let count_of = |wanted: u8| buffer[kept..kept + count].iter().filter(|byte| **byte == wanted).count() as u64;
        let new = count_of(b'\n').saturating_sub(count_of(b'\r'));
        let total = lines.fetch_add(new, Ordering::SeqCst) + new;
        if initial.load(Ordering::SeqCst) > 0 {
            kept = 0;
            continue;
        }
        let end = kept + count;
        if buffer[..end].windows(END.len()).any(|window| window == END) {
            initial.store(total.max(1), Ordering::SeqCst);
        }
        kept = end.min(END.len());
        buffer.copy_within(end - kept..end, 0);
    }
}
