//! An etcd of one or several members as processes of a test. `benches/kube-apiserver/prepare --only etcd` builds it.
//!
//! INVARIANT: neither a process nor a file outlives its `EtcdCluster`, however the test ends; see `processes`.
//! INVARIANT: members keep their addresses over restarts and restores.

mod certificates;
mod keys;
mod peers;

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::time::sleep;

pub use certificates::EtcdCertificates;
pub use keys::{EtcdEvent, EtcdKeyValue, EtcdKeys};

use crate::{
    genuine,
    http::Client,
    processes::{Exit, ProcessGroup, free_ports},
};
use peers::PeerNetwork;

/// Timeout until a cluster answers, and the pause between two checks. Three members need 2 s on two idle cores.
const READY_WAIT: Duration = Duration::from_secs(90);
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// Attempts to start: another process may take a port before the program listens on it.
const STARTS_MAX: usize = 3;
/// Largest number of members.
const MEMBERS_MAX: usize = 3;
/// Revisions that a restore with a bump skips: more than any test wrote since its snapshot.
const BUMP: u64 = 1_000_000;

/// Settings of a cluster.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// Number of members, 1 to 3.
    pub members: usize,
    /// Largest size of the database in bytes, if it is not etcd's default.
    pub quota_bytes: Option<u64>,
    /// True to demand TLS of clients, with a certificate of the cluster's authority.
    pub has_tls: bool,
}

impl Default for EtcdSettings {
    fn default() -> Self {
        Self { members: 1, quota_bytes: None, has_tls: false }
    }
}

/// A running etcd.
pub struct EtcdCluster {
    // Drops before the certificates and the data are removed with its folder.
    processes: ProcessGroup,
    programs: PathBuf,
    settings: EtcdSettings,
    members: Vec<EtcdMember>,
    network: PeerNetwork,
    certificates: Option<EtcdCertificates>,
    /// Number of restores. Each begins new folders of data.
    restores: usize,
}

/// Addresses of one member.
#[derive(Clone, Copy, Debug)]
struct EtcdMember {
    client: SocketAddr,
    peer: SocketAddr,
    /// Address under which the others reach it: its own, or that of the network between them.
    advertised: SocketAddr,
}

/// Folder of the programs. Prints one line and returns `None` if they were not built and are not required.
///
/// # Panics
/// If they were not built, and `CI` is set.
pub fn programs(test: &str) -> Option<PathBuf> {
    let folder = genuine::folder();
    if ["etcd", "etcdctl", "etcdutl"].iter().all(|name| folder.join(name).is_file()) {
        return Some(folder);
    }
    assert!(env::var_os("CI").is_none(), "{test}: no etcd in {}, and CI needs it", folder.display());
    eprintln!("{test}: skipped, benches/kube-apiserver/prepare --only etcd was not run");
    None
}

impl EtcdCluster {
    /// Starts one member for a test. `None`, with one line, if the programs were not built.
    pub async fn start(test: &str) -> Option<Self> {
        Self::start_with(test, EtcdSettings::default()).await
    }

    /// Like [`start`](Self::start), with other settings.
    pub async fn start_with(test: &str, settings: EtcdSettings) -> Option<Self> {
        let programs = programs(test)?;
        let mut failures = Vec::new();
        while failures.len() < STARTS_MAX {
            match Self::try_start(&programs, &settings).await {
                Ok(started) => return Some(started),
                Err(exit) => failures.push(exit),
            }
        }
        panic!("etcd does not start: {failures:#?}");
    }

    async fn try_start(programs: &Path, settings: &EtcdSettings) -> Result<Self, Exit> {
        let processes = ProcessGroup::new();
        let ports = free_ports::<{ 2 * MEMBERS_MAX }>().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let (clients, peers) = ports.split_at(MEMBERS_MAX);
        let (clients, peers) = (&clients[..settings.members], &peers[..settings.members]);
        let network = PeerNetwork::start(peers).await;
        let addresses = clients.iter().zip(peers).zip(network.advertised());
        let members = addresses.map(|((&client, &peer), &advertised)| EtcdMember { client, peer, advertised });
        let certificates = settings.has_tls.then(|| EtcdCertificates::write(processes.folder()));
        let mut started = Self {
            members: members.collect(),
            programs: programs.to_owned(),
            settings: settings.clone(),
            processes,
            network,
            certificates,
            restores: 0,
        };
        started.spawn_all();
        started.answered().await?;
        Ok(started)
    }

    fn spawn_all(&mut self) {
        for member in 0..self.members.len() {
            self.spawn(member);
        }
    }

    fn spawn(&mut self, member: usize) {
        let flags = self.flags(member);
        self.processes.spawn(&name(member), &self.programs.join("etcd"), &flags);
    }

    fn flags(&self, member: usize) -> Vec<String> {
        let EtcdMember { client, peer, advertised } = self.members[member];
        let clients = format!("{}://{client}", self.scheme());
        let mut flags: Vec<String> = [
            ("name", name(member)),
            ("data-dir", self.data(member).display().to_string()),
            ("listen-client-urls", clients.clone()),
            ("advertise-client-urls", clients),
            ("listen-peer-urls", format!("http://{peer}")),
            ("initial-advertise-peer-urls", format!("http://{advertised}")),
            ("initial-cluster", self.initial_cluster()),
            // A test does not need its data after a crash of the machine.
            ("unsafe-no-fsync", "true".to_owned()),
            ("log-level", "warn".to_owned()),
        ]
        .map(|(name, value)| format!("--{name}={value}"))
        .into();
        flags.extend(self.settings.quota_bytes.map(|bytes| format!("--quota-backend-bytes={bytes}")));
        flags.extend(self.certificates.iter().flat_map(EtcdCertificates::flags));
        flags
    }

    fn initial_cluster(&self) -> String {
        let members = self.members.iter().enumerate();
        let members = members.map(|(at, member)| format!("{}=http://{}", name(at), member.advertised));
        members.collect::<Vec<_>>().join(",")
    }

    fn data(&self, member: usize) -> PathBuf {
        self.processes.folder().join(format!("data-{member}-{}", self.restores))
    }

    const fn scheme(&self) -> &'static str {
        if self.certificates.is_some() { "https" } else { "http" }
    }

    /// Waits until every running member answers a linearizable read.
    async fn answered(&mut self) -> Result<(), Exit> {
        let begun = Instant::now();
        for member in 0..self.members.len() {
            let keys = self.keys_of(member);
            while self.processes.runs(&name(member)) && keys.try_revision().await.is_err() {
                if let Some(exit) = self.processes.exited() {
                    return Err(exit);
                }
                assert!(begun.elapsed() < READY_WAIT, "etcd does not answer: {}", self.processes.log());
                sleep(CHECK_EVERY).await;
            }
        }
        Ok(())
    }

    /// URLs of all members, separated by commas.
    pub fn endpoints(&self) -> String {
        let members = 0..self.members.len();
        members.map(|member| self.endpoint(member)).collect::<Vec<_>>().join(",")
    }

    /// URL of one member.
    pub fn endpoint(&self, member: usize) -> String {
        format!("{}://{}", self.scheme(), self.address(member))
    }

    /// Address of one member for clients, such as a relay's.
    pub fn address(&self, member: usize) -> SocketAddr {
        self.members[member].client
    }

    /// The files of a client, if the cluster demands TLS.
    pub const fn certificates(&self) -> Option<&EtcdCertificates> {
        self.certificates.as_ref()
    }

    /// The keys, read and written through the first member.
    pub fn keys(&self) -> EtcdKeys {
        self.keys_of(0)
    }

    /// The keys, read and written through one member.
    pub fn keys_of(&self, member: usize) -> EtcdKeys {
        let client = Client::new(self.address(member));
        EtcdKeys::new(self.certificates.as_ref().map_or(client, |files| client.over_tls(files.trust())))
    }

    /// Kills one member, as a crash does.
    pub fn kill(&mut self, member: usize) {
        self.processes.kill(&name(member));
    }

    /// Starts a killed member, and waits until it answers.
    pub async fn restart(&mut self, member: usize) {
        self.spawn(member);
        self.answered().await.unwrap_or_else(|exit| panic!("etcd does not start again: {exit:?}"));
    }

    /// Stops a member's process, as a stalled disk does: it neither answers nor ends its connections.
    pub fn pause(&self, member: usize) {
        self.processes.signal(&name(member), "STOP");
    }

    /// Continues a paused member.
    pub fn resume(&self, member: usize) {
        self.processes.signal(&name(member), "CONT");
    }

    /// Loses the network between one member and the others. Its clients still reach it.
    pub fn part(&self, member: usize) {
        self.network.part(member);
    }

    /// Lets all members reach each other again.
    pub fn rejoin(&self) {
        self.network.rejoin();
    }

    /// Waits until a member other than `not` is the leader, and returns it.
    pub async fn leader_beside(&self, not: Option<usize>) -> usize {
        let begun = Instant::now();
        loop {
            for member in (0..self.members.len()).filter(|member| Some(*member) != not) {
                let status = self.keys_of(member).try_call("/v3/maintenance/status", &json!({})).await;
                if status.is_ok_and(|status| status["leader"] == status["header"]["member_id"]) {
                    return member;
                }
            }
            assert!(begun.elapsed() < READY_WAIT, "no leader: {}", self.processes.log());
            sleep(CHECK_EVERY).await;
        }
    }

    /// Waits until there is a leader, and returns it.
    pub async fn leader(&self) -> usize {
        self.leader_beside(None).await
    }

    /// Makes another member the leader.
    pub async fn move_leader(&self, to: usize) {
        let from = self.leader().await;
        let id: Value =
            self.keys_of(to).call("/v3/maintenance/status", &json!({})).await["header"]["member_id"].clone();
        self.keys_of(from).call("/v3/maintenance/transfer-leadership", &json!({"targetID": id})).await;
        self.leader_beside(Some(from)).await;
    }

    /// Saves a snapshot with `etcdctl`, as operators do. Returns its path.
    pub fn snapshot(&self) -> PathBuf {
        let path = self.processes.folder().join(format!("snapshot-{}", self.restores));
        let _ = std::fs::remove_file(&path);
        let mut command = Command::new(self.programs.join("etcdctl"));
        run(command.args(["--endpoints", &self.endpoint(0), "snapshot", "save"]).arg(&path));
        path
    }

    /// Replaces the data by a snapshot's with `etcdutl`: all members end, and begin again with it. With `bumps`, the
    /// next revision is above every earlier one, and the history before it is compacted.
    pub async fn restore(&mut self, snapshot: &Path, bumps: bool) {
        self.restores += 1;
        for member in 0..self.members.len() {
            self.kill(member);
            let mut command = Command::new(self.programs.join("etcdutl"));
            let advertised = format!("http://{}", self.members[member].advertised);
            command
                .args(["snapshot", "restore", "--name", &name(member), "--initial-cluster", &self.initial_cluster()])
                .args(["--initial-advertise-peer-urls", &advertised, "--data-dir"])
                .args([&self.data(member), snapshot]);
            if bumps {
                command.args(["--mark-compacted", "--bump-revision", &BUMP.to_string()]);
            }
            run(&mut command);
        }
        self.spawn_all();
        self.answered().await.unwrap_or_else(|exit| panic!("etcd does not start with a snapshot: {exit:?}"));
    }

    /// Ends of the logs of all members.
    pub fn log(&self) -> String {
        self.processes.log()
    }
}

/// Name of a member and its process.
fn name(member: usize) -> String {
    format!("etcd-{member}")
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
