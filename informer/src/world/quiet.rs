//! Quiet points: without faults every view becomes the truth, each copy has one watch, and nothing was listed twice.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    BrokenGuarantee, ProgramWorld, WorldCounts, component::Component, ensure, network::PipeEndpoint, tap::OpenRead,
    truth::NAMESPACES,
};
use crate::RelistCause;

/// Bound on the time from the last fault until every view is the truth. A silent peer is noticed after 45 s, a watch
/// that a proxy lost after 150 s, and delays are below 60 s.
const CONVERGES_WITHIN: Duration = Duration::from_secs(600);

/// Causes of relists that only expired positions justify.
const AVOIDABLE: [RelistCause; 9] = [
    RelistCause::Expired,
    RelistCause::TooLarge,
    RelistCause::NotResumable,
    RelistCause::WatchForbidden,
    RelistCause::Unproven,
    RelistCause::Foreign,
    RelistCause::HistoryReset,
    RelistCause::Refused,
    RelistCause::WentBack,
];

impl ProgramWorld {
    /// Ends the faults and waits until everything agrees, twice in a row.
    pub(super) async fn calm(&mut self) -> Result<(), BrokenGuarantee> {
        self.heal();
        // Only a change shows that a watch is alive.
        NAMESPACES.into_iter().for_each(|namespace| self.truth.touch(namespace));
        self.note("calm");
        let (since, mut agreed) = (Instant::now(), 0);
        while agreed < 2 {
            sleep(Duration::from_secs(3)).await;
            self.read(usize::MAX)?;
            self.check_states()?;
            match self.agrees().await {
                Ok(()) => agreed += 1,
                Err(violation) if since.elapsed() > CONVERGES_WITHIN => return Err(violation),
                Err(_) => agreed = 0,
            }
        }
        self.note(format!("quiet after {:?}", since.elapsed()));
        self.check_costs()?;
        self.may_relist = false;
        for component in &mut self.components {
            component.expect_each(&self.truth);
        }
        Ok(())
    }

    /// Checks that each view is the truth, and that it explains itself by the watches that are open.
    pub(super) async fn agrees(&mut self) -> Result<(), BrokenGuarantee> {
        for at in 0..self.components.len() {
            let component = &mut self.components[at];
            component.check_quiet(&self.truth).await.map_err(|violation| violation.of(component))?;
            self.explains(at).map_err(|violation| violation.of(&self.components[at]))?;
        }
        let ready = self.cluster.ready_all(Duration::ZERO).await;
        ensure(ready.is_ok(), "Ready", || format!("{ready:?}"))?;
        self.one_watch_each()
    }

    /// Each copy that reads has one watch, and no two copies ask for the same objects.
    fn one_watch_each(&self) -> Result<(), BrokenGuarantee> {
        let mut watches: BTreeMap<String, usize> = BTreeMap::new();
        for read in self.tap.open() {
            ensure(read.request.contains("watch=true"), "Quiet", || format!("{read:?} is open"))?;
            *watches.entry(read.subject()).or_default() += 1;
        }
        ensure(watches.values().all(|count| *count == 1), "Shared", || format!("watches: {watches:?}"))?;
        let running = self.cluster.state().running().live().len();
        ensure(running == watches.len(), "Shared", || format!("{running} informers, watches: {watches:?}"))
    }

    /// `explain` names a watch that is open, at its endpoint, and how the copy is derived from it.
    fn explains(&self, at: usize) -> Result<(), BrokenGuarantee> {
        let component = &self.components[at];
        let question = &component.question;
        let text = component.pods.explain();
        let lies = |why: &str| BrokenGuarantee(format!("Explained: {why}"));
        let (read, note) = text.strip_suffix(')').and_then(|text| text.split_once(" (")).ok_or_else(|| lies("form"))?;
        let (request, endpoint) = match read.split_once(" at fallback ") {
            Some((request, fallback)) => (request, fallback.parse().map_err(|_| lies("endpoint"))?),
            None => (read, 0),
        };
        let named = OpenRead { endpoint, request: request.to_owned() };
        let open = self.tap.open();
        ensure(open.iter().filter(|read| **read == named).count() == 1, "Explained", || format!("open: {open:?}"))?;
        let (users, derived) = note.split_once(", ").unwrap_or((note, ""));
        let users: usize =
            users.strip_prefix("shared by ").and_then(|users| users.parse().ok()).ok_or_else(|| lies("users"))?;
        // Equal questions with one text use one copy, unless a watch of its own took the place of another one. Derived
        // copies are users as well.
        let is_equal = |other: &&Component| other.question.equals(question) && other.pods.explain() == text;
        let equal = self.components.iter().filter(is_equal).count();
        let was_replaced = self.on_their_own.iter().any(|other| other.equals(question));
        let most = if self.components.iter().any(Component::is_derived) { usize::MAX } else { equal };
        let least = if was_replaced { 1 } else { equal };
        ensure((least..=most).contains(&users), "Explained", || format!("used by {equal}"))?;
        if let Some(filter) = derived.strip_prefix("filtered here: ") {
            let namespaces = question.namespaces.join(" or ");
            let is_named = namespaces.is_empty() || filter.starts_with(&format!("namespace {namespaces}"));
            return ensure(component.from_wider && is_named, "Explained", || "another filter".to_owned());
        }
        let merged =
            if question.is_merged() { format!("one of {} watches", question.watches().len()) } else { String::new() };
        ensure(derived == merged, "Explained", || format!("{derived}, not {merged}"))?;
        let is_open = |watch| open.iter().any(|read| asks_for(&read.request, watch));
        let reads_itself = question.watches().into_iter().all(is_open);
        ensure(reads_itself || (component.from_wider && question.is_merged()), "Explained", || {
            format!("open: {open:?}")
        })
    }

    /// No copy was listed again where it could resume, and connections are shared.
    fn check_costs(&self) -> Result<(), BrokenGuarantee> {
        for informer in self.cluster.state().running().live() {
            let stats = informer.stats().reflector;
            let relists: u64 = AVOIDABLE.iter().map(|cause| stats.relists(*cause)).sum();
            let most = self.expirations;
            ensure(relists <= most && stats.syncs <= 1 + most, "Cheap", || {
                let causes: Vec<_> = RelistCause::all().filter(|cause| stats.relists(*cause) > 0).collect();
                format!("{:?}: {} syncs, because of {causes:?}, {most} expirations", informer.objects, stats.syncs)
            })?;
        }
        let opened: usize = self.endpoints.iter().map(PipeEndpoint::opened).sum();
        let most = self.endpoints.len() + self.disturbances;
        ensure(opened <= most, "Connections", || format!("{opened}, after {} faults", self.disturbances))
    }

    pub(super) fn count(&self, counts: &mut WorldCounts) {
        for informer in self.cluster.state().running().live() {
            let stats = informer.stats();
            counts.resumes += stats.reflector.resumes;
            counts.moves += stats.moves;
            counts.expired += stats.reflector.relists(RelistCause::Expired);
        }
        for component in &self.components {
            counts.filtered += u64::from(component.pods.explain().contains("filtered here"));
            counts.merged += u64::from(component.question.is_merged());
            counts.resets += component.followers.iter().map(|follower| follower.resets() as u64).sum::<u64>();
        }
        counts.connections += self.endpoints.iter().map(|endpoint| endpoint.opened() as u64).sum::<u64>();
        counts.requests += self.tap.begun();
    }

    /// After the last user has left, each copy ends with its grace period, and no request follows.
    pub(super) async fn end(&mut self) -> Result<(), BrokenGuarantee> {
        self.note("end");
        self.components.clear();
        sleep(self.grace + Duration::from_secs(1)).await;
        let (running, open) = (self.cluster.state().running().live().len(), self.tap.open());
        ensure(running == 0 && open.is_empty(), "Lifecycle", || format!("{running} informers, open: {open:?}"))?;
        let before = self.tap.begun();
        sleep(Duration::from_secs(3_600)).await;
        let after = self.tap.begun();
        ensure(before == after, "Lifecycle", || format!("{} requests after the end", after - before))
    }
}

/// True if this is the request of a watch, as [`PodQuestion::watches`] has it.
fn asks_for(request: &str, (namespace, has_labels, has_fields): (Option<&str>, bool, bool)) -> bool {
    let path = match namespace {
        Some(namespace) => format!("GET /api/v1/namespaces/{namespace}/pods?"),
        None => "GET /api/v1/pods?".to_owned(),
    };
    request.starts_with(&path)
        && request.contains("labelSelector=") == has_labels
        && request.contains("fieldSelector=") == has_fields
}
