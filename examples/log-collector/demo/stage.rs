//! Environment of the demo: a log tree, an API server, the collector, and a record of the lines of every container.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use cache_server::{Server, config};
use informer::Cluster;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    Failure,
    collect::{Collector, Counts, Settings},
    enrich::Pods,
    scratch::Scratch,
    tail::Limits,
};

/// Maximum line length in the demo, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;

/// Time for which the demo's lines wait for their pod.
pub(super) const METADATA_WAIT: Duration = Duration::from_millis(300);

/// Timeout that is ample even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const NODE: &str = "node-1";

/// Location of a container's logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ContainerRef {
    namespace: String,
    pod: String,
    uid: String,
    container: String,
}

/// A line of output: stream and text.
type OutputLine = (String, String);

/// Everything the script acts on.
pub(super) struct Stage {
    scratch: Scratch,
    client: kube::Client,
    cluster: Cluster,
    /// Dropping this stops the server.
    _serving: oneshot::Sender<()>,
    /// `None` between two runs of the collector.
    collector: Option<Collector<Tee>>,
    records: Records,
    out: Tee,
    /// Namespace, uid, and true if the server knows the pod; by pod name.
    pods: BTreeMap<String, (String, String, bool)>,
    files: BTreeMap<ContainerRef, File>,
    expected: BTreeMap<ContainerRef, Vec<OutputLine>>,
    lines_written: u64,
    counts: Counts,
}

/// The output so far.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<u8>>>);

/// Writes to the demo's output and keeps a copy.
#[derive(Clone)]
struct Tee {
    out: Arc<Mutex<dyn Write + Send>>,
    records: Records,
}

impl Stage {
    /// Starts a server without pods, and the collector on an empty log tree.
    pub(super) async fn new(out: impl Write + Send + 'static) -> Result<Self, Failure> {
        let scratch = Scratch::try_new("demo")?;
        fs::create_dir(scratch.path().join("pods"))?;
        let listen = ([127, 0, 0, 1], 0).into();
        let server = Server::bind(config::Config { listen, ..config::Config::default() }).await?;
        let url = format!("http://{}", server.local_addr()).parse()?;
        let (serving, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.serve(async { drop(stopped.await) }));
        let client = kube::Client::try_from(kube::Config::new(url))?;
        let records = Records::default();
        let mut stage = Self {
            scratch,
            cluster: Cluster::new(client.clone()),
            client,
            _serving: serving,
            collector: None,
            out: Tee { out: Arc::new(Mutex::new(out)), records: records.clone() },
            records,
            pods: BTreeMap::new(),
            files: BTreeMap::new(),
            expected: BTreeMap::new(),
            lines_written: 0,
            counts: Counts::default(),
        };
        stage.start().await?;
        Ok(stage)
    }

    /// Starts the collector from the positions of its last run.
    pub(super) async fn start(&mut self) -> Result<(), Failure> {
        let settings = Settings {
            node: NODE.to_owned(),
            root: self.scratch.path().join("pods"),
            own_uid: None,
            positions: Some(self.scratch.path().join("positions.json")),
            poll: Duration::from_millis(5),
            metadata_wait: METADATA_WAIT,
            limits: Limits { line_bytes_max: LINE_BYTES_MAX, files_open_max: 16 },
        };
        let pods = Pods::of_node(&self.cluster, NODE, Some(&self.scratch.path().join("checkpoint")))?;
        pods.informer().ready(PATIENCE).await?;
        self.collector = Some(Collector::new(settings, pods, self.out.clone())?);
        Ok(())
    }

    /// Stops the collector cleanly.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        let counts = self.collector.take().map_or(Ok(Counts::default()), Collector::finish)?;
        self.counts.add(counts);
        Ok(())
    }

    fn collector(&mut self) -> Result<&mut Collector<Tee>, Failure> {
        self.collector.as_mut().ok_or_else(|| "the collector is stopped".into())
    }

    /// Runs one turn of the collector. Returns true if there is more to read.
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        self.collector()?.turn()
    }

    /// Runs turns until there is nothing more to read. The last turns also notice deleted files.
    pub(super) fn turns(&mut self) -> Result<(), Failure> {
        while self.turn()? {}
        Ok(())
    }

    /// Runs the collector on a thread of its own.
    pub(super) fn runs(&mut self) -> Result<Running, Failure> {
        let collector = self.collector.take().ok_or("the collector is stopped")?;
        let (stop, stopped) = mpsc::channel();
        Ok(Running { stop, collecting: tokio::task::spawn_blocking(move || collector.run(&stopped)) })
    }

    /// Waits until there are as many records as expected lines.
    pub(super) async fn all_came_out(&self) -> Result<(), Failure> {
        let expected: usize = self.expected.values().map(Vec::len).sum();
        until("all lines came out", || self.records() >= expected).await
    }

    /// Stops a collector that runs on its own thread.
    pub(super) async fn ends(&mut self, running: Running) -> Result<(), Failure> {
        drop(running.stop);
        self.counts.add(running.collecting.await??);
        Ok(())
    }

    /// Creates a pod on this node, and waits until the informer has it.
    pub(super) async fn pod(&mut self, namespace: &str, name: &str) -> Result<(), Failure> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": name, "team": "a \"quoted\" one"}},
            "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "demo"}]},
        }))?;
        let created = Api::namespaced(self.client.clone(), namespace).create(&PostParams::default(), &pod).await?;
        let uid = created.metadata.uid.ok_or("a pod without uid")?;
        self.pods.insert(name.to_owned(), (namespace.to_owned(), uid, true));
        let informer = self.collector()?.pods().informer().clone();
        timeout(PATIENCE, informer.wait_until(|now| now.get_named(namespace, name).is_some())).await??;
        Ok(())
    }

    /// Adds a pod with logs that the server does not know.
    pub(super) fn stranger(&mut self, namespace: &str, name: &str) {
        self.pods.insert(name.to_owned(), (namespace.to_owned(), "a-uid-of-nobody".to_owned(), false));
    }

    /// A container of a pod added before.
    pub(super) fn container(&self, pod: &str, container: &str) -> ContainerRef {
        let (namespace, uid, _) = self.pods.get(pod).cloned().unwrap_or_default();
        ContainerRef { namespace, pod: pod.to_owned(), uid, container: container.to_owned() }
    }

    /// Deletes the pod, and waits until the informer has observed that.
    pub(super) async fn deletes(&mut self, container: &ContainerRef) -> Result<(), Failure> {
        self.deletes_unseen(container).await?;
        let informer = self.collector()?.pods().informer().clone();
        let gone = informer.wait_until(|now| now.get_named(&container.namespace, &container.pod).is_none());
        timeout(PATIENCE, gone).await??;
        Ok(())
    }

    /// Deletes the pod, but not its files.
    pub(super) async fn deletes_unseen(&self, container: &ContainerRef) -> Result<(), Failure> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &container.namespace);
        pods.delete(&container.pod, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Deletes the files of a pod.
    pub(super) fn removes(&self, container: &ContainerRef) -> Result<(), Failure> {
        let directory = self.directory(container);
        Ok(fs::remove_dir_all(directory.parent().ok_or("no directory")?)?)
    }

    /// Writes a full line, and expects it in the output.
    pub(super) fn says(&mut self, container: &ContainerRef, stream: &str, text: &str) -> Result<(), Failure> {
        self.writes(container, &format!("{stream} F {text}"))?;
        self.expects(container, stream, text);
        Ok(())
    }

    /// Writes a line with a unique time.
    pub(super) fn writes(&mut self, container: &ContainerRef, line: &str) -> Result<(), Failure> {
        self.lines_written += 1;
        let time = format!("2026-11-20T16:00:00.{:09}Z", self.lines_written);
        self.writes_raw(container, &format!("{time} {line}\n"))
    }

    /// Writes raw bytes.
    pub(super) fn writes_raw(&mut self, container: &ContainerRef, text: &str) -> Result<(), Failure> {
        if !self.files.contains_key(container) {
            self.reopens(container)?;
        }
        let file = self.files.get_mut(container).ok_or("no file")?;
        Ok(file.write_all(text.as_bytes())?)
    }

    /// Expects this as the container's next line in the output.
    pub(super) fn expects(&mut self, container: &ContainerRef, stream: &str, text: &str) {
        self.expected.entry(container.clone()).or_default().push((stream.to_owned(), text.to_owned()));
    }

    fn directory(&self, container: &ContainerRef) -> PathBuf {
        let ContainerRef { namespace, pod, uid, container } = container;
        self.scratch.path().join("pods").join(format!("{namespace}_{pod}_{uid}")).join(container)
    }

    /// Opens the current log file of a container; creates it if it does not exist.
    pub(super) fn reopens(&mut self, container: &ContainerRef) -> Result<(), Failure> {
        let directory = self.directory(container);
        fs::create_dir_all(&directory)?;
        let file = OpenOptions::new().append(true).create(true).open(directory.join("0.log"))?;
        self.files.insert(container.clone(), file);
        Ok(())
    }

    /// Renames the current file; the open handle still writes to it.
    pub(super) fn renames(&self, container: &ContainerRef, name: &str) -> Result<(), Failure> {
        let directory = self.directory(container);
        Ok(fs::rename(directory.join("0.log"), directory.join(name))?)
    }

    /// Adds a copy that must not be read.
    pub(super) fn copies(&self, container: &ContainerRef, name: &str) -> Result<(), Failure> {
        let directory = self.directory(container);
        fs::copy(directory.join("0.log"), directory.join(name))?;
        Ok(())
    }

    /// Truncates the file in place.
    pub(super) fn truncates(&self, container: &ContainerRef) -> Result<(), Failure> {
        Ok(self.files.get(container).ok_or("no file")?.set_len(0)?)
    }

    /// Number of records in the output so far.
    pub(super) fn records(&self) -> usize {
        self.records.bytes().iter().filter(|&&byte| byte == b'\n').count()
    }

    /// Compares the output with the expected lines: equal lines in equal order per container, with the right metadata.
    pub(super) fn check(self) -> Result<Counts, Failure> {
        let mut came: BTreeMap<ContainerRef, Vec<OutputLine>> = BTreeMap::new();
        for line in self.records.bytes().split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let record: Value = serde_json::from_slice(line)?;
            let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
            let from = ContainerRef {
                namespace: text("namespace"),
                pod: text("pod"),
                uid: text("uid"),
                container: text("container"),
            };
            let is_known = self.pods.get(&from.pod).is_some_and(|(.., is_known)| *is_known);
            let labels = json!({"app": from.pod, "team": "a \"quoted\" one"});
            let is_right = if is_known { record["labels"] == labels } else { record["metadata"] == "missing" };
            if !is_right || record["node"] != NODE {
                return Err(format!("wrong metadata: {record}").into());
            }
            came.entry(from).or_default().push((text("stream"), text("text")));
        }
        for (container, expected) in &self.expected {
            let came = came.remove(container).unwrap_or_default();
            if let Some(at) = (0..expected.len().max(came.len())).find(|&at| expected.get(at) != came.get(at)) {
                return Err(
                    format!("{container:?}, line {at}: said {:?}, came {:?}", expected.get(at), came.get(at)).into()
                );
            }
        }
        match came.keys().next() {
            None => Ok(self.counts),
            Some(container) => Err(format!("{container:?} said nothing, and lines came").into()),
        }
    }
}

/// A collector on its own thread.
pub(super) struct Running {
    stop: mpsc::Sender<()>,
    collecting: JoinHandle<Result<Counts, Failure>>,
}

/// Waits until a condition holds, at most [`PATIENCE`].
async fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Failure> {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, waiting).await.map_err(|_| format!("waited in vain: {what}").into())
}

impl Records {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)?;
        self.records.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}
