//! Leader election by a Lease, with the rules and times of client-go: one replica of a program leads, and the others
//! wait, with warm caches.
//!
//! INVARIANT: every write of the Lease is conditional on the version read, so that one of two candidates wins.
//! INVARIANT: a Lease expires by this machine's clocks, counted from when its version was first seen here. Clocks of
//! different machines are never compared. A follower counts on the monotonic clock, which does not jump.
//! INVARIANT: only a renewal whose response arrived extends a leadership.
//!
//! ```no_run
//! # async fn control() {}
//! # async fn doc(client: kube::Client, pod: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use informer::lease::Election;
//!
//! let election = Election::new(client, "default", "my-controller", pod);
//! let leadership = election.lead().await;               // waits until this replica leads
//! println!("term {}", leadership.term());
//! leadership.run(control()).await?;                     // Err: the Lease was lost, and the work was dropped
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! A leader stops before another one can take the Lease, as long as both clocks run at about the same speed: it holds
//! the Lease for [`renew_deadline`](LeaseTiming::renew_deadline) after the last renewal was *sent*, and a follower
//! waits for the longer [`lease`](LeaseTiming::lease) after it *saw* that renewal. After a suspension of the machine
//! [`is_held`](Leadership::is_held) is false at once, and the work is dropped within [`retry`](LeaseTiming::retry).
//!
//! A request that is on its way when the Lease is lost cannot be called back. Where that matters, put
//! [`term`](Leadership::term) into the objects written, and refuse smaller terms.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt as _,
    api::{ObjectMeta, PostParams},
};
use tokio::{
    select,
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{error::Chain, progress::ConfirmedTime};

/// Times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseTiming {
    /// Time after which a follower takes over a Lease that it did not see renewed. Whole seconds.
    pub lease: Duration,
    /// Time after which a leader that could not renew the Lease stops.
    pub renew_deadline: Duration,
    /// Pause between attempts to take the Lease, plus up to a fifth at random. A leader counts it from the start of the
    /// attempt before.
    pub retry: Duration,
}

impl Default for LeaseTiming {
    /// 15 s, 10 s and 2 s, the defaults of client-go.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) }
    }
}

/// A replica that wants to lead.
#[derive(Clone, Debug)]
pub struct Election {
    leases: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    timing: LeaseTiming,
}

/// The leadership of this replica. Renews the Lease in a task of its own, until it is dropped, released or lost.
///
/// Dropping it stops the renewal without a [`release`](Self::release), so the next leader waits until the Lease
/// expires.
#[derive(Debug)]
#[must_use = "the Lease expires when this is dropped"]
pub struct Leadership {
    election: Election,
    term: i32,
    held: watch::Receiver<LeaseState>,
    /// The task that renews. Ends with this value.
    _renewal: JoinSet<()>,
}

/// State of a leadership, written by the task that renews.
#[derive(Clone, Copy, Debug)]
struct LeaseState {
    /// When the last renewal was sent whose response confirmed it.
    renewed: ConfirmedTime,
    is_lost: bool,
}

/// The Lease was lost: it could not be renewed in time, or another candidate has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the leadership of term {term} was lost")]
#[non_exhaustive]
pub struct LeadershipLost {
    /// Term of the lost leadership.
    pub term: i32,
}

/// Version of a Lease that a follower saw last, and when it first saw it.
type SeenVersion = Option<(Option<String>, Instant)>;

impl Election {
    /// Declares a candidate for the Lease `name`, which the first candidate creates. `identity` is unique among the
    /// replicas, such as the name of the pod. The program needs the rights to get, create and update Leases there.
    ///
    /// # Panics
    /// If the namespace, the name or the identity is empty: a Lease without a holder is free.
    #[must_use]
    pub fn new(client: kube::Client, namespace: &str, name: &str, identity: &str) -> Self {
        let is_complete = ![namespace, name, identity].contains(&"");
        assert!(is_complete, "a Lease needs a namespace, a name and an identity");
        let leases = Api::namespaced(client, namespace);
        let (namespace, name, identity) = (namespace.to_owned(), name.to_owned(), identity.to_owned());
        Self { leases, namespace, name, identity, timing: LeaseTiming::default() }
    }

    /// Changes the times: `.timing(|timing| timing.retry = Duration::from_secs(1))`.
    ///
    /// # Panics
    /// Unless the lease is whole seconds, at most `i32::MAX`, and longer than the renew deadline, and that longer than
    /// the pause, which is not zero.
    #[must_use]
    pub fn timing(mut self, change: impl FnOnce(&mut LeaseTiming)) -> Self {
        change(&mut self.timing);
        let LeaseTiming { lease, renew_deadline, retry } = self.timing;
        // Other replicas wait for the seconds written into the Lease.
        let is_writable = lease.subsec_nanos() == 0 && i32::try_from(lease.as_secs()).is_ok();
        let is_ordered = lease > renew_deadline && renew_deadline > retry && !retry.is_zero();
        let is_valid = is_writable && is_ordered;
        assert!(is_valid, "a lease needs whole seconds, and lease > renew_deadline > retry > 0: {:?}", self.timing);
        self
    }

    /// Waits until this replica leads. Failed requests are logged, and repeated after the pause.
    ///
    /// Cancel safe, but the Lease may have been taken: then it expires after its time. Must be called inside a tokio
    /// runtime. Cost: a GET each [`retry`](LeaseTiming::retry).
    pub async fn lead(&self) -> Leadership {
        let mut seen = None;
        loop {
            let sent = ConfirmedTime::now();
            match timeout(self.timing.renew_deadline, self.take(&mut seen)).await {
                Ok(Ok(Some(lease))) => return Leadership::new(self.clone(), lease, sent),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => self.log_failure(&error),
                Err(_) => self.log_timeout(),
            }
            sleep(self.timing.retry.mul_f64(1.0 + fastrand::f64() / 5.0)).await;
        }
    }

    /// `namespace/name` of the Lease.
    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn log_failure(&self, error: &kube::Error) {
        tracing::warn!(lease = self.key(), identity = self.identity, error = %Chain(error), "lease request failed");
    }

    fn log_timeout(&self) {
        tracing::warn!(lease = self.key(), identity = self.identity, "lease request timed out");
    }

    /// Takes the Lease if it is free or has expired.
    async fn take(&self, seen: &mut SeenVersion) -> Result<Option<Lease>, kube::Error> {
        let Some(found) = self.leases.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.spec(0)) };
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        let version = found.resource_version();
        let since = match seen {
            Some((known, since)) if *known == version => *since,
            Some(_) | None => Instant::now(),
        };
        *seen = Some((version, since));
        let spec = found.spec.clone().unwrap_or_default();
        if holder(&spec).is_some() && since.elapsed() < self.lasts(&spec) {
            return Ok(None);
        }
        // The term grows with every leader, also with a replica that restarted with its old name.
        let spec = self.spec(spec.lease_transitions.unwrap_or_default().saturating_add(1));
        won(self.leases.replace(&self.name, &PostParams::default(), &Lease { spec: Some(spec), ..found }).await)
    }

    fn spec(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            acquire_time: Some(now.clone()),
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.timing.lease.as_secs()).ok(),
            lease_transitions: Some(transitions),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }

    /// Duration of the Lease as its holder wrote it, else the own one.
    fn lasts(&self, spec: &LeaseSpec) -> Duration {
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(self.timing.lease, Duration::from_secs)
    }

    /// Renews `lease`. Returns when the renewal was sent; `None` if another candidate has it, or if no time is `left`:
    /// others would see a renewal sent then, and wait for it. Fails at the second conflict, like client-go, so that a
    /// busy writer costs two attempts each pause.
    ///
    /// Cancel safe: `lease` is the last version read or written, whose next renewal may then meet a conflict.
    async fn renew(
        &self,
        lease: &mut Lease,
        left: impl Fn() -> Duration,
    ) -> Result<Option<ConfirmedTime>, kube::Error> {
        let mut is_repeated = false;
        loop {
            if left().is_zero() {
                return Ok(None);
            }
            lease.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::now()));
            let sent = ConfirmedTime::now();
            let conflict = match self.leases.replace(&self.name, &PostParams::default(), lease).await {
                Ok(renewed) => {
                    *lease = renewed;
                    return Ok(Some(sent));
                }
                // Deleted: any candidate can create it now.
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
                Err(error) if is_conflict(&error) => error,
                Err(error) => return Err(error),
            };
            // A renewal may have been stored though its response was lost. Other replicas count from when they saw it,
            // so finding it here proves nothing: it is the base of another renewal.
            match self.leases.get_opt(&self.name).await?.filter(|found| self.is_own(found, lease)) {
                Some(found) => *lease = found,
                None => return Ok(None),
            }
            if std::mem::replace(&mut is_repeated, true) {
                return Err(conflict);
            }
        }
    }

    /// True if `found` is a later version of the leadership in `lease`.
    fn is_own(&self, found: &Lease, lease: &Lease) -> bool {
        let of = |lease: &Lease| lease.spec.clone().unwrap_or_default();
        holder(&of(found)) == Some(&self.identity)
            && of(found).lease_transitions == of(lease).lease_transitions
            && found.metadata.uid == lease.metadata.uid
    }

    /// Renews the Lease until it is lost.
    async fn hold(self, mut lease: Lease, held: watch::Sender<LeaseState>) {
        let LeaseTiming { renew_deadline, retry, .. } = self.timing;
        let left = || renew_deadline.saturating_sub(held.borrow().renewed.age());
        let mut attempt = held.borrow().renewed.at();
        loop {
            sleep(retry.saturating_sub(attempt.elapsed()).min(left())).await;
            attempt = Instant::now();
            // Timers stand still while the machine is suspended, so one of the whole deadline would be late.
            let expired = async {
                while !left().is_zero() {
                    sleep(left().min(retry)).await;
                }
            };
            // A response that never comes leaves time for another attempt, if the pause is shorter than this.
            let renewal = timeout(renew_deadline / 2, self.renew(&mut lease, left));
            match select! { biased; renewal = renewal => renewal, () = expired => break } {
                Ok(Ok(Some(sent))) => held.send_modify(|held| held.renewed = sent),
                Ok(Ok(None)) => break,
                Ok(Err(error)) => self.log_failure(&error),
                Err(_) => self.log_timeout(),
            }
        }
        held.send_modify(|held| held.is_lost = true);
        tracing::warn!(lease = self.key(), identity = self.identity, "leadership lost");
    }
}

impl Leadership {
    fn new(election: Election, lease: Lease, sent: ConfirmedTime) -> Self {
        let term = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
        tracing::info!(lease = election.key(), identity = election.identity, term, "leadership acquired");
        let (sender, held) = watch::channel(LeaseState { renewed: sent, is_lost: false });
        let mut renewal = JoinSet::new();
        renewal.spawn(election.clone().hold(lease, sender));
        Self { election, term, held, _renewal: renewal }
    }

    /// Number of this leadership, a fence token: each new leader has a larger one than all leaders before it.
    /// A Lease that is deleted or restored breaks this: terms begin at 0, or at the restored one, again.
    #[must_use]
    pub const fn term(&self) -> i32 {
        self.term
    }

    /// True while this replica's Lease cannot have expired. For a look right before a write. A deleted or edited Lease
    /// is noticed by the next renewal.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let held = *self.held.borrow();
        !held.is_lost && held.renewed.age() < self.election.timing.renew_deadline
    }

    /// Waits until the leadership is lost: the Lease could not be renewed in time, or another candidate has it. From
    /// then on this replica must not write. Cancel safe.
    pub async fn lost(&self) {
        let mut held = self.held.clone();
        // An error means that the task has ended, with its runtime.
        let _ = held.wait_for(|held| held.is_lost).await;
    }

    /// Runs `work` as long as the leadership lasts, then releases the Lease.
    ///
    /// # Errors
    /// [`LeadershipLost`]. `work` was dropped: a [`Controller`](crate::controller::Controller) aborts its reconciles at
    /// their next await. The process should end, and stand as a new candidate when it is started again.
    pub async fn run<W: Future>(self, work: W) -> Result<W::Output, LeadershipLost> {
        let output = select! { biased;
            () = self.lost() => return Err(LeadershipLost { term: self.term }),
            output = work => output,
        };
        self.release().await;
        Ok(output)
    }

    /// Gives the Lease up, so that the next leader need not wait until it expires. Call it after the last write.
    ///
    /// Tries it for at most the time of [`retry`](LeaseTiming::retry); a failure is logged, and the Lease expires.
    pub async fn release(self) {
        let Self { election, term, _renewal: mut renewal, .. } = self;
        renewal.shutdown().await;
        match timeout(election.timing.retry, election.give_up(term)).await {
            Ok(Ok(true)) => tracing::info!(lease = election.key(), term, "leadership released"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => election.log_failure(&error),
            Err(_) => election.log_timeout(),
        }
    }
}

impl Election {
    /// Makes the Lease free, if it is this replica's of that term. Returns true if it did.
    async fn give_up(&self, term: i32) -> Result<bool, kube::Error> {
        // A renewal may have been aborted before its response: its version is read, and it may still arrive after that.
        let mut is_repeated = false;
        loop {
            let Some(mut lease) = self.leases.get_opt(&self.name).await? else { return Ok(false) };
            let spec = lease.spec.get_or_insert_default();
            if holder(spec) != Some(&self.identity) || spec.lease_transitions != Some(term) {
                return Ok(false);
            }
            spec.holder_identity = None;
            match self.leases.replace(&self.name, &PostParams::default(), &lease).await {
                Err(error) if is_conflict(&error) && !is_repeated => is_repeated = true,
                written => return written.map(|_| true),
            }
        }
    }
}

/// The holder of a Lease; client-go writes an empty name when it releases one.
fn holder(spec: &LeaseSpec) -> Option<&String> {
    spec.holder_identity.as_ref().filter(|holder| !holder.is_empty())
}

/// `None` if another candidate wrote the Lease first.
fn won(written: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match written {
        Ok(lease) => Ok(Some(lease)),
        Err(error) if is_conflict(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if the Lease has another version, or exists already.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_already_exists())
}
