//! Leader election by a Lease, with the rules of client-go: one replica leads, and the followers keep warm caches.
//!
//! INVARIANT: every write of the Lease is conditional on the version read, so that one of two candidates wins. INVARIANT:
//! a Lease expires by this machine's clock, counted from when its version was first seen here. Clocks of different
//! machines are never compared.
//!
//! kube-runtime has no leader election. No crate for kube 5 takes an expired Lease over by a conditional write, without
//! which two candidates can both believe that they lead.

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
use tokio::time::{Instant, sleep, timeout};

/// Times of an election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Time after which a follower takes over a Lease that was not renewed. Whole seconds.
    pub(crate) lease: Duration,
    /// Time after which a leader that could not renew stops. Shorter than `lease`, so that two replicas never lead.
    pub(crate) renew_deadline: Duration,
    /// Pause between attempts.
    pub(crate) retry: Duration,
}

impl Default for Timing {
    /// The defaults of client-go.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) }
    }
}

/// A replica that wants to lead.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) leases: Api<Lease>,
    pub(crate) name: String,
    /// Name of this replica; unique among the candidates.
    pub(crate) identity: String,
    pub(crate) timing: Timing,
}

/// The replica that leads. Ends by [`release`](Self::release), or when [`hold`](Self::hold) returns.
pub(crate) struct Leader {
    candidate: Candidate,
    lease: Lease,
    renewed: Instant,
}

impl Candidate {
    /// Waits until this replica leads.
    pub(crate) async fn lead(self) -> Leader {
        let mut seen: Option<(Option<String>, Instant)> = None;
        loop {
            let started = Instant::now();
            match self.take(&mut seen).await {
                Ok(Some(lease)) => return Leader { candidate: self, lease, renewed: started },
                Ok(None) => {}
                Err(error) => eprintln!("{}: the lease was not taken: {error}", self.identity),
            }
            sleep(self.timing.retry).await;
        }
    }

    /// Takes the Lease if it is free or has expired. `seen` is its last version, with the time at which this replica
    /// first saw it.
    async fn take(&self, seen: &mut Option<(Option<String>, Instant)>) -> Result<Option<Lease>, kube::Error> {
        let Some(found) = self.leases.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.held(0)) };
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        let version = found.resource_version();
        let since = match seen {
            Some((known, since)) if *known == version => *since,
            Some(_) | None => Instant::now(),
        };
        *seen = Some((version, since));
        let spec = found.spec.clone().unwrap_or_default();
        let is_held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        if is_held && since.elapsed() < lasts(&spec) {
            return Ok(None);
        }
        // The term grows with every leader, so that it can serve as a fence token, also for a replica that restarted
        // with its old name.
        let spec = self.held(spec.lease_transitions.unwrap_or_default().saturating_add(1));
        won(self.leases.replace(&self.name, &PostParams::default(), &Lease { spec: Some(spec), ..found }).await)
    }

    fn held(&self, transitions: i32) -> LeaseSpec {
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
}

impl Leader {
    /// Number of this leadership. Each new leader has a larger number than all leaders before it.
    pub(crate) fn term(&self) -> i32 {
        self.lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default()
    }

    /// Renews the Lease. Returns once this replica must stop writing: the Lease could not be renewed in time, or has a
    /// version that this replica did not see, as after a renewal whose response was lost.
    pub(crate) async fn hold(&mut self) {
        let Timing { renew_deadline, retry, .. } = self.candidate.timing;
        loop {
            sleep(retry).await;
            let started = Instant::now();
            let left = renew_deadline.saturating_sub(self.renewed.elapsed());
            match timeout(left, self.renew()).await {
                Ok(Ok(Some(lease))) => (self.lease, self.renewed) = (lease, started),
                Ok(Ok(None)) | Err(_) => return,
                Ok(Err(error)) => eprintln!("{}: the lease was not renewed: {error}", self.candidate.identity),
            }
        }
    }

    async fn renew(&self) -> Result<Option<Lease>, kube::Error> {
        let mut lease = self.lease.clone();
        lease.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::now()));
        let Candidate { leases, name, .. } = &self.candidate;
        won(leases.replace(name, &PostParams::default(), &lease).await)
    }

    /// Gives the Lease up, so that the next candidate need not wait until it expires. Call it after the last write.
    pub(crate) async fn release(self) -> Result<(), kube::Error> {
        let Candidate { leases, name, identity, .. } = &self.candidate;
        // Read again: a renewal may have been cut off before its response.
        let found = leases.get_opt(name).await?;
        let is_own =
            |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()) == Some(identity);
        let Some(mut lease) = found.filter(is_own) else { return Ok(()) };
        lease.spec.get_or_insert_default().holder_identity = None;
        won(leases.replace(name, &PostParams::default(), &lease).await).map(drop)
    }
}

/// Duration of the Lease as its holder wrote it.
fn lasts(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map_or(Duration::ZERO, Duration::from_secs)
}

/// `None` if another candidate wrote the Lease first.
fn won(written: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match written {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(None),
        Err(error) => Err(error),
    }
}
