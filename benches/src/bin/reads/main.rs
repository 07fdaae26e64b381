//! CPU time of single reads on the server: selective lists and streams, reads of one object and of one namespace, and
//! the media types for kubectl and metadata clients.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --bin reads [-- --json FILE]` starts a server for each
//! number of objects, sends requests over one connection, and reads the CPU time of the server's threads from the
//! kernel. It prints targets beside measurements and fails if a target is missed.
//!
//! INVARIANT: every measured response is also checked for its number of objects.

mod client;
mod report;
mod server;

use std::{io, process::ExitCode};

use self::{
    client::{Client, Read},
    report::{Row, Target},
    server::Server,
};

/// The size of the published incident's cluster, and one seven times as large.
const SIZES: [Size; 2] =
    [Size { pods: 7_130, nodes: 80, namespaces: 40 }, Size { pods: 50_000, nodes: 560, namespaces: 280 }];

const JSON: &str = "application/json";
/// Media types other than the stored object's.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const WITHOUT_MANAGED_FIELDS: &str = "application/json;drop=metadata.managedFields";

#[derive(Clone, Copy, Debug)]
struct Size {
    pods: usize,
    nodes: usize,
    namespaces: usize,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "serve") {
        return cache_server::cli::main();
    }
    let json = match &*arguments {
        [] => None,
        [flag, file] if flag == "--json" => Some(file.clone()),
        _ => {
            eprintln!("usage: reads [--json FILE]");
            return ExitCode::from(2);
        }
    };
    match run(json.as_deref()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("reads: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(json: Option<&str>) -> io::Result<bool> {
    let mut rows = Vec::new();
    for size in SIZES {
        rows.extend(measure(size)?);
    }
    let small: Vec<Row> = rows.iter().filter(|row| row.pods == SIZES[0].pods).cloned().collect();
    for row in &mut rows {
        row.compare(&small);
    }
    report::print(&rows);
    if let Some(file) = json {
        std::fs::write(file, report::json(&rows))?;
    }
    Ok(rows.iter().all(Row::holds))
}

/// Measures all reads at one size, with a new server.
fn measure(size: Size) -> io::Result<Vec<Row>> {
    let mut server = Server::start(size)?;
    let mut client = Client::connect(server.address())?;
    let pods = Pods::look(&mut client)?;
    assert_eq!(pods.count, size.pods, "the server is filled");
    let mut rows = Vec::new();
    let mut take = |what: &'static str, read: Read<'_>, rounds: u32, target: Target| -> io::Result<()> {
        // Warm up: the first read also builds caches.
        client.read(&read)?;
        let before = server.cpu()?;
        let mut bytes = 0;
        for _ in 0..rounds {
            bytes = client.read(&read)?;
        }
        let cpu = (server.cpu()? - before) / rounds;
        rows.push(Row { what, pods: size.pods, objects: read.objects, bytes, cpu, target, missed: None });
        Ok(())
    };
    let one_percent = format!("labelSelector={}%3D{}", pods.label.0, pods.label.1);
    let list =
        |query: String, objects| Read { path: format!("/api/v1/pods?{query}"), accept: JSON, gzip: false, objects };
    let target = if size.pods == SIZES[0].pods { Target::AtMost { micros: 3_000 } } else { Target::None };
    take("LIST, label of 1 %", list(one_percent.clone(), pods.labelled), 200, target)?;
    let stream = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    take("watch-list, label of 1 %", list(format!("{stream}&{one_percent}"), pods.labelled), 200, target)?;
    let (namespace, name) = pods.first;
    let inside = |query: &str, objects| Read {
        path: format!("/api/v1/namespaces/{namespace}/pods{query}"),
        accept: JSON,
        gzip: false,
        objects,
    };
    take(
        "LIST, metadata.name",
        inside(&format!("?fieldSelector=metadata.name%3D{name}"), 1),
        2_000,
        Target::SameAtAnySize,
    )?;
    take("GET", inside(&format!("/{name}"), 1), 2_000, Target::SameAtAnySize)?;
    take("LIST, one namespace", inside("", pods.in_first_namespace), 300, Target::ByObject)?;
    let all = |accept| Read { path: "/api/v1/pods".to_owned(), accept, gzip: false, objects: pods.count };
    take("LIST, all", all(JSON), 10, Target::None)?;
    take("LIST, all, gzip", Read { gzip: true, ..all(JSON) }, 10, Target::None)?;
    take("LIST, without managedFields", all(WITHOUT_MANAGED_FIELDS), 10, Target::None)?;
    take("LIST, metadata only", all(METADATA), 10, Target::None)?;
    take("LIST, as a table", all(TABLE), 10, Target::None)?;
    Ok(rows)
}

/// Facts about the pods, for use in requests.
struct Pods {
    count: usize,
    /// The label found on closest to 1 % of the pods, and, below, the number of pods with it.
    label: (String, String),
    labelled: usize,
    first: (String, String),
    in_first_namespace: usize,
}

impl Pods {
    fn look(client: &mut Client) -> io::Result<Self> {
        let list: serde_json::Value = serde_json::from_slice(&client.get("/api/v1/pods", JSON, false)?)?;
        let items = list["items"].as_array().ok_or_else(|| io::Error::other("a list has items"))?;
        let mut labels = std::collections::BTreeMap::<(String, String), usize>::new();
        for item in items {
            for (key, value) in item["metadata"]["labels"].as_object().into_iter().flatten() {
                *labels.entry((key.replace('/', "%2F"), value.as_str().unwrap_or_default().to_owned())).or_default() +=
                    1;
            }
        }
        let wanted = items.len() / 100;
        let nearest = labels.into_iter().min_by_key(|(_, count)| count.abs_diff(wanted));
        let (label, labelled) = nearest.ok_or_else(|| io::Error::other("pods have labels"))?;
        let text =
            |item: &serde_json::Value, member: &str| item["metadata"][member].as_str().unwrap_or_default().to_owned();
        let middle = &items[items.len() / 2];
        let first = (text(middle, "namespace"), text(middle, "name"));
        let in_first_namespace = items.iter().filter(|item| text(item, "namespace") == first.0).count();
        Ok(Self { count: items.len(), label, labelled, first, in_first_namespace })
    }
}
