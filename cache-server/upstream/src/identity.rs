//! Which cluster answers at each address: the uid of its namespace `kube-system`.
//!
//! INVARIANT: no request is sent to an address whose last answer named another cluster, and none to an address that has not
//! answered since its connections broke, as long as it may be another cluster's by now. INVARIANT: a refusal names no
//! cluster: it takes no uid back, and once a uid is known, it proves no address. INVARIANT: the cluster changes only if all
//! addresses have turned to others: one wrong address never takes over. Only the first answer of the first one replaces
//! earlier answers of later addresses.

use std::{
    mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use informer_core::text::Chain;
use kube::client::Body;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tower::{BoxError, service_fn};

use super::last_answer::LastAnswer;
use crate::limits::{IDENTITY_CHECKED_EVERY, IDENTITY_WAIT, MESSAGE_BYTES_MAX};

/// Identity of a cluster, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterName {
    /// Uid of the namespace `kube-system`.
    Uid(Arc<str>),
    /// This server may not read it, or there is none: only proofs of histories find out about another cluster.
    Unreadable,
}

impl ClusterName {
    /// Returns the uid, if it is known.
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Uid(uid) => Some(uid),
            Self::Unreadable => None,
        }
    }

    /// True if both are known and differ.
    fn is_other(&self, than: &Self) -> bool {
        matches!((self, than), (Self::Uid(one), Self::Uid(other)) if one != other)
    }
}

/// Answer to the question for the identity.
pub enum NameAnswer {
    Known(ClusterName),
    /// The server has no answer now: it is overloaded, or starting.
    Busy,
    /// No answer came.
    None(String),
}

/// Reason why no request is sent to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedAddress {
    #[error("the address is another cluster's")]
    Foreign,
    #[error("the address has not answered yet")]
    Unanswered,
    #[error("the address does not tell its cluster")]
    Unproved,
}

/// The identities at the addresses of one upstream.
pub struct UpstreamIdentity {
    addresses: Vec<ClusterAddress>,
    state: Mutex<IdentityState>,
    /// `None` until an address has answered.
    cluster: watch::Sender<Option<ClusterName>>,
    is_unreadable_reported: AtomicBool,
    last_answer: Arc<LastAnswer>,
}

struct ClusterAddress {
    url: String,
    client: kube::Client,
    /// Held during a check, which all requests that need it share.
    turn: tokio::sync::Mutex<()>,
}

struct IdentityState {
    cluster: Option<ClusterName>,
    /// By address.
    checks: Vec<AddressCheck>,
}

/// The last check of an address.
#[derive(Clone, Debug, Default)]
struct AddressCheck {
    found: Option<ClusterName>,
    /// [`LastAnswer::breaks`] before the last check that proved the cluster.
    breaks: u64,
    /// Time and result of the last check, if it proved nothing.
    missed: Option<(Instant, RefusedAddress)>,
    /// The reason why the last check had no answer.
    error: Option<String>,
}

impl UpstreamIdentity {
    /// `addresses` are URLs, in order of preference, with clients that have this server's own identity there.
    pub fn new(addresses: impl Iterator<Item = (String, kube::Client)>, last_answer: Arc<LastAnswer>) -> Arc<Self> {
        let address = |(url, client)| ClusterAddress { url, client, turn: tokio::sync::Mutex::default() };
        let addresses: Vec<_> = addresses.map(address).collect();
        let state = IdentityState { cluster: None, checks: vec![AddressCheck::default(); addresses.len()] };
        Arc::new(Self {
            addresses,
            state: Mutex::new(state),
            cluster: watch::Sender::default(),
            is_unreadable_reported: AtomicBool::new(false),
            last_answer,
        })
    }

    /// Returns the clients of all addresses. Their requests fail at an address of another cluster.
    pub fn clients(self: &Arc<Self>) -> Vec<kube::Client> {
        (0..self.addresses.len()).map(|address| self.client(address)).collect()
    }

    fn client(self: &Arc<Self>, address: usize) -> kube::Client {
        let (identity, client) = (Arc::clone(self), self.addresses[address].client.clone());
        let sending = move |request: Request<Body>| {
            let (identity, client) = (Arc::clone(&identity), client.clone());
            async move {
                identity.admit(address).await?;
                client.send(request).await.map_err(|error| {
                    identity.last_answer.break_off();
                    if let kube::Error::Service(error) = error { error } else { BoxError::from(error) }
                })
            }
        };
        kube::Client::new(service_fn(sending), "default")
    }

    /// Returns the cluster; `None` until an address has answered.
    pub fn cluster(&self) -> Option<ClusterName> {
        self.cluster.borrow().clone()
    }

    /// The cluster, which changes if all addresses turn to another one.
    pub fn changes(&self) -> watch::Receiver<Option<ClusterName>> {
        self.cluster.subscribe()
    }

    /// Waits until an address has answered, and returns the cluster. Tries the addresses in order of preference. The word of a
    /// later address does not count alone if its cluster `is_doubted`: the first one may be restarting.
    pub async fn reached(&self, is_doubted: impl Fn(&ClusterName) -> bool) -> ClusterName {
        let mut is_named = false;
        loop {
            for address in 0..self.addresses.len() {
                self.check(address).await;
                let Some(cluster) = self.cluster() else { continue };
                if self.state.lock().checks[0].found.is_some() || !is_doubted(&cluster) {
                    return cluster;
                }
                if !mem::replace(&mut is_named, true) {
                    let (server, first) = (&self.addresses[address].url, &self.addresses[0].url);
                    tracing::warn!(server, first, "saved states are another cluster's: the first address decides");
                }
            }
            sleep(REACH_PAUSE).await;
        }
    }

    /// Returns `Ok` if requests may be sent to an address. Checks it if its connections broke since the last check. A check
    /// that began later counts for all that wait.
    ///
    /// # Errors
    /// [`RefusedAddress`].
    pub async fn admit(&self, address: usize) -> Result<(), RefusedAddress> {
        let breaks = self.last_answer.breaks();
        if let Some(verdict) = self.verdict(address, breaks) {
            return verdict;
        }
        let _turn = self.addresses[address].turn.lock().await;
        if let Some(verdict) = self.verdict(address, breaks) {
            return verdict;
        }
        self.check(address).await;
        self.verdict(address, breaks).unwrap_or(Err(RefusedAddress::Unanswered))
    }

    /// Returns what is known of an address after that number of breaks; `None` if it must be checked.
    fn verdict(&self, address: usize, breaks: u64) -> Option<Result<(), RefusedAddress>> {
        let state = &*self.state.lock();
        let check = &state.checks[address];
        let cluster = state.cluster.as_ref();
        if check.found.as_ref().zip(cluster).is_some_and(|(found, cluster)| found.is_other(cluster)) {
            return Some(Err(RefusedAddress::Foreign));
        }
        if check.found.is_some() && check.found.as_ref() == cluster && breaks <= check.breaks {
            return Some(Ok(()));
        }
        let missed = check.missed.filter(|(at, _)| at.elapsed() < MISSED_AGE);
        missed.map(|(_, reason)| Err(reason))
    }

    /// Checks all addresses. Notes whether any of them answers.
    async fn check_all(&self) {
        let sent = Instant::now();
        let answers = join_all((0..self.addresses.len()).map(|address| self.check(address))).await;
        if answers.iter().all(|is_answered| !is_answered) {
            self.last_answer.miss(sent);
        }
    }

    /// Asks an address for its cluster. Returns false if there was no answer.
    async fn check(&self, address: usize) -> bool {
        let breaks = self.last_answer.breaks();
        match read_name(&self.addresses[address].client).await {
            NameAnswer::Known(found) => {
                self.last_answer.note();
                self.take_over(address, found, breaks);
                true
            }
            NameAnswer::Busy => {
                self.miss(address);
                true
            }
            NameAnswer::None(error) => {
                self.report(address, error);
                self.miss(address);
                false
            }
        }
    }

    /// Reports why a check had no answer: at level warn once until an answer, or another error.
    fn report(&self, address: usize, error: String) {
        let server = self.addresses[address].url.as_str();
        let reported = &mut self.state.lock().checks[address].error;
        if reported.as_ref() == Some(&error) {
            tracing::debug!(server, error, "cluster identity not read");
        } else {
            tracing::warn!(server, error, "cluster identity not read");
            *reported = Some(error);
        }
    }

    /// Notes a check without an answer.
    fn miss(&self, address: usize) {
        self.state.lock().checks[address].missed = Some((Instant::now(), RefusedAddress::Unanswered));
    }

    /// Takes over the answer of an address.
    fn take_over(&self, address: usize, found: ClusterName, breaks: u64) {
        let server = self.addresses[address].url.as_str();
        if found == ClusterName::Unreadable && !self.is_unreadable_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(server, namespace = NAMESPACE, "cluster identity not readable");
        }
        let state = &mut *self.state.lock();
        let check = &mut state.checks[address];
        if found == ClusterName::Unreadable && state.cluster.as_ref().is_some_and(|cluster| cluster.uid().is_some()) {
            let missed = check.missed.replace((Instant::now(), RefusedAddress::Unproved));
            if missed.is_none_or(|(_, reason)| reason != RefusedAddress::Unproved) {
                tracing::warn!(server, "upstream address not proved: it does not tell its cluster");
            }
            return;
        }
        let before = check.found.replace(found.clone());
        (check.breaks, check.missed, check.error) = (breaks.max(check.breaks), None, None);
        let Some(ClusterName::Uid(ours)) = &state.cluster else {
            // The first answer, or the first one with a uid.
            if state.cluster.is_none() || found != ClusterName::Unreadable {
                state.cluster = Some(found);
                self.cluster.send_replace(state.cluster.clone());
            }
            return;
        };
        let ours = ClusterName::Uid(Arc::clone(ours));
        if !found.is_other(&ours) {
            return;
        }
        if address == 0 && before.as_ref().and_then(ClusterName::uid).is_none() {
            // Later addresses have decided while the first one was away.
            tracing::error!(
                server,
                from = ours.uid(),
                to = found.uid(),
                "upstream cluster corrected by the first address"
            );
            state.cluster = Some(found);
            self.cluster.send_replace(state.cluster.clone());
            return;
        }
        if before.as_ref() != Some(&found) {
            tracing::error!(
                server,
                found = found.uid(),
                expected = ours.uid(),
                "upstream address refused: another cluster"
            );
        }
        let is_gone = state.checks.iter().all(|check| check.found.as_ref().is_some_and(|found| found.is_other(&ours)));
        if is_gone {
            let next = state.checks[0].found.clone();
            let to = next.as_ref().and_then(ClusterName::uid).unwrap_or_default();
            tracing::error!(from = ours.uid(), to, "upstream cluster replaced");
            state.cluster.clone_from(&next);
            self.cluster.send_replace(next);
        }
    }
}

/// Checks the addresses, every [`IDENTITY_CHECKED_EVERY`] and after a request without an answer, until the identity is
/// dropped.
pub async fn keep_checking(identity: Weak<UpstreamIdentity>, last_answer: Arc<LastAnswer>) {
    loop {
        let is_silent = last_answer.silent_for().is_some();
        let pause = if is_silent { REACH_PAUSE } else { IDENTITY_CHECKED_EVERY };
        tokio::select! {
            () = sleep(pause) => {}
            () = last_answer.doubted() => {}
        }
        let Some(identity) = identity.upgrade() else { return };
        identity.check_all().await;
    }
}

/// Asks a server for the identity of its cluster.
pub async fn read_name(client: &kube::Client) -> NameAnswer {
    let request = Request::builder()
        .method(Method::GET)
        .uri(PATH)
        .header(header::ACCEPT, ONLY_METADATA)
        .body(Body::empty())
        .expect("a request of constants");
    let reading = async {
        let response = client.send(request).await.map_err(|error| Chain(&error).to_string())?;
        let code = response.status();
        let body = Limited::new(response.into_body(), MESSAGE_BYTES_MAX).collect().await;
        Ok::<_, String>((code, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    let (code, body) = match timeout(IDENTITY_WAIT, reading).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return NameAnswer::None(error),
        Err(_) => return NameAnswer::None("no answer in time".to_owned()),
    };
    if code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS {
        return NameAnswer::Busy;
    }
    let named = serde_json::from_slice::<NamedObject>(&body).ok().filter(|_| code.is_success());
    let uid = named.map(|named| named.metadata.uid).filter(|uid| !uid.is_empty());
    NameAnswer::Known(uid.map_or(ClusterName::Unreadable, |uid| ClusterName::Uid(uid.into())))
}

#[derive(Deserialize)]
struct NamedObject {
    metadata: NamedMetadata,
}

#[derive(Deserialize)]
struct NamedMetadata {
    #[serde(default)]
    uid: String,
}

/// The namespace that every cluster has from its start to its end.
pub const NAMESPACE: &str = "kube-system";

const PATH: &str = "/api/v1/namespaces/kube-system";

/// The media type of the question: metadata alone.
pub const ONLY_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Pause between two checks of an upstream that does not answer.
const REACH_PAUSE: Duration = Duration::from_millis(500);

/// Time for which a check without an answer is not repeated for further requests.
const MISSED_AGE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
