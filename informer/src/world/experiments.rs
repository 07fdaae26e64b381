//! Experiments at quiet points: one event each, whose cost in requests and connections is known.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::sleep;

use super::{
    BrokenGuarantee, ProgramWorld,
    component::Component,
    ensure,
    network::PipeEndpoint,
    truth::{NAMESPACES, PodQuestion},
};
use crate::{
    Informer,
    testing::{FakeApiServer, RequestKind},
};

/// Time in which the sessions of all watches become healthy, so that the next request follows without backoff.
const SETTLES: Duration = Duration::from_secs(15);

/// Bound on the time until a vanished peer is noticed and every view is the truth again.
const FAILS_OVER_WITHIN: Duration = Duration::from_secs(50);

/// Bound on the time until an endpoint that refuses connections is left and every view is the truth again.
const LEAVES_WITHIN: Duration = Duration::from_secs(75);

/// Requests so far, at all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestCounts {
    /// Lists and streams of initial state.
    initial: usize,
    watches: usize,
    /// Connections opened.
    connections: usize,
}

impl ProgramWorld {
    pub(super) async fn experiment(&mut self) -> Result<(), BrokenGuarantee> {
        if self.components.is_empty() {
            self.start(PodQuestion::of(&[]))?;
            self.calm().await?;
        }
        sleep(SETTLES).await;
        let number = self.rng.u8(..8);
        self.note(format!("experiment {number}"));
        match number {
            0 => self.goaway_moves_watches_at_their_end().await,
            1 => self.a_dead_peer_is_noticed().await,
            2 => self.a_moved_name_is_followed().await,
            3 => self.relists_after_goaway_queue().await,
            4 => self.namespaces_fail_separately().await,
            5 => self.users_come_and_go_without_requests().await,
            6 => self.an_equal_or_wider_copy_answers().await,
            _ => self.a_dead_endpoint_is_left().await,
        }
    }

    fn requests(&self) -> RequestCounts {
        let servers = || self.endpoints.iter().flat_map(PipeEndpoint::servers);
        RequestCounts {
            initial: servers().map(FakeApiServer::initial_reads).sum(),
            watches: servers().map(|server| server.count(RequestKind::Watch)).sum(),
            connections: self.endpoints.iter().map(PipeEndpoint::opened).sum(),
        }
    }

    /// Writes to each namespace, and waits until every view has the writes.
    async fn write_and_see(&mut self, within: Duration) -> Result<(), BrokenGuarantee> {
        NAMESPACES.into_iter().for_each(|namespace| self.truth.touch(namespace));
        sleep(within).await;
        self.read(usize::MAX)?;
        self.check_states()?;
        for component in &mut self.components {
            component.check_quiet(&self.truth).await.map_err(|violation| violation.of(component))?;
        }
        Ok(())
    }

    /// Endpoints with open watches.
    fn used_endpoints(&self) -> usize {
        let open = self.tap.open();
        (0..self.endpoints.len()).filter(|at| open.iter().any(|read| read.endpoint == *at)).count()
    }

    /// GOAWAY ends no watch. Watches that end later resume on one new connection.
    async fn goaway_moves_watches_at_their_end(&mut self) -> Result<(), BrokenGuarantee> {
        let (before, watches) = (self.requests(), self.tap.open().len());
        self.endpoints.iter().flat_map(PipeEndpoint::servers).for_each(|server| drop(server.go_away()));
        self.disturbances += self.endpoints.len();
        self.write_and_see(Duration::from_secs(1)).await?;
        if !self.is_long_lived {
            return ensure(self.requests().initial == before.initial, "Goaway", || format!("{before:?}"));
        }
        let after = self.requests();
        ensure(after == before, "Goaway", || format!("{after:?}, before GOAWAY {before:?}"))?;

        let endpoints = self.used_endpoints();
        self.endpoints.iter().flat_map(PipeEndpoint::servers).for_each(|server| drop(server.close_watches()));
        self.write_and_see(Duration::from_secs(5)).await?;
        let after = self.requests();
        let expected = RequestCounts {
            initial: before.initial,
            watches: before.watches + watches,
            connections: before.connections + endpoints,
        };
        ensure(after == expected, "Goaway", || format!("{after:?}, not {expected:?}"))
    }

    /// Pings notice a peer that vanished, and the watches resume.
    async fn a_dead_peer_is_noticed(&mut self) -> Result<(), BrokenGuarantee> {
        let before = self.requests();
        self.endpoints.iter().for_each(PipeEndpoint::silence);
        self.disturbances += self.endpoints.len();
        self.write_and_see(FAILS_OVER_WITHIN).await?;
        self.resumed(before)
    }

    /// After a cut, a silence or GOAWAY, requests follow the name to another server.
    async fn a_moved_name_is_followed(&mut self) -> Result<(), BrokenGuarantee> {
        let before = self.requests();
        let old: Vec<_> = self.endpoints.iter().map(|endpoint| endpoint.server().clone()).collect();
        let way = self.rng.u8(..3);
        for endpoint in &self.endpoints {
            let server = endpoint.server().clone();
            endpoint.lead_on();
            match way {
                0 => endpoint.cut(),
                1 => endpoint.silence(),
                _ => drop(server.go_away().close_watches()),
            }
        }
        self.disturbances += self.endpoints.len();
        let sent = |old: &[FakeApiServer]| old.iter().map(|it| it.requests().len()).sum::<usize>();
        let sent_before = sent(&old);
        self.write_and_see(FAILS_OVER_WITHIN).await?;
        // A name whose watches were all on retired connections of the other server may have had none here.
        ensure(sent(&old) == sent_before, "Moved", || "requests for the old server".to_owned())?;
        self.resumed(before)
    }

    /// Watches of an endpoint that refuses connections resume at the other one, and say so.
    async fn a_dead_endpoint_is_left(&mut self) -> Result<(), BrokenGuarantee> {
        let [first, _] = &self.endpoints[..] else { return Ok(()) };
        let before = self.requests();
        first.refuse(true);
        first.cut();
        self.disturbances += 1;
        self.write_and_see(LEAVES_WITHIN).await?;
        self.resumed(before)?;
        self.agrees().await?;
        let stayed = self.tap.open().iter().filter(|read| read.endpoint == 0).count();
        ensure(stayed == 0, "Failover", || format!("{stayed} watches at an endpoint without connections"))
    }

    /// No copy was listed again, and each endpoint got at most one new connection.
    fn resumed(&self, before: RequestCounts) -> Result<(), BrokenGuarantee> {
        let after = self.requests();
        ensure(after.initial == before.initial, "Cheap", || format!("{after:?}, before {before:?}"))?;
        let opened = after.connections - before.connections;
        let most = self.endpoints.len();
        ensure(opened <= most, "Connections", || format!("{opened} opened for {most} endpoints"))
    }

    /// Copies that must all be listed again after GOAWAY do so a few at a time.
    async fn relists_after_goaway_queue(&mut self) -> Result<(), BrokenGuarantee> {
        let before = self.requests();
        let copies = self.tap.open().len();
        self.expire(u64::MAX);
        for server in self.endpoints.iter().flat_map(PipeEndpoint::servers) {
            server.withhold_end_bookmark().go_away().close_watches();
        }
        self.disturbances += self.endpoints.len();
        sleep(Duration::from_secs(3)).await;
        let initial = self.requests().initial - before.initial;
        // Fewer if a copy first asks the preferred endpoint, which may have its position.
        let most = copies.min(self.relists_at_once);
        ensure((1..=most).contains(&initial), "Stampede", || {
            format!("{initial} initial reads of {copies} copies at once")
        })?;
        self.check_states()
    }

    /// A namespace that fails stops neither the others nor what is known of it. A copy that is not complete without it
    /// is not ready, and shows nothing.
    async fn namespaces_fail_separately(&mut self) -> Result<(), BrokenGuarantee> {
        let failing = NAMESPACES[self.rng.usize(..NAMESPACES.len())];
        self.tap.fail(failing);
        let new = self.declare(&PodQuestion::of(&NAMESPACES), "app,!other")?;
        NAMESPACES.into_iter().for_each(|namespace| self.truth.touch(namespace));
        sleep(Duration::from_secs(20)).await;
        for component in &self.components {
            let now = component.pods.store().snapshot();
            let has = |namespace: &&str| {
                let question = PodQuestion::of(&[]);
                let key = format!("{namespace}/anchor");
                let expected = self.truth.view(&question)[&key].to_string();
                now.get(&key).is_some_and(|pod| pod.resource_version() == expected)
            };
            let of = |namespace: &&&str| **namespace != failing && component.question.reads(namespace);
            let lacks = NAMESPACES.iter().filter(of).find(|it| !has(it));
            ensure(lacks.is_none(), "Separate", || format!("{lacks:?} waits for {failing}"))
                .map_err(|violation| violation.of(component))?;
            ensure(component.pods.is_running(), "Separate", || "ended".to_owned())?;
        }
        let not_ready = new.ready(Duration::ZERO).await;
        let is_hidden = not_ready.is_err() && new.store().snapshot().is_empty();
        ensure(is_hidden, "Ready", || format!("without {failing}: {not_ready:?}, {:?}", new.store()))?;
        let all = self.cluster.ready_all(Duration::ZERO).await;
        let named: Vec<_> = all.err().into_iter().flat_map(|error| error.unready).map(|it| it.namespaces).collect();
        ensure(named == [vec![failing.to_owned()]], "Ready", || format!("{failing} fails, not ready: {named:?}"))?;

        self.tap.heal();
        let ready = new.ready(Duration::from_secs(90)).await;
        let count = new.store().snapshot().len();
        let expected = self.truth.view(&PodQuestion::of(&[])).len();
        ensure(ready.is_ok() && count == expected, "Ready", || format!("{ready:?}, {count} of {expected} pods"))
    }

    /// The end of one user, and a new one, change nothing for the others. A copy without users waits for new ones.
    async fn users_come_and_go_without_requests(&mut self) -> Result<(), BrokenGuarantee> {
        let question = self.components[self.rng.usize(..self.components.len())].question;
        let before = self.requests();
        let (first, second) = (self.declare(&question, "")?, self.declare(&question, "")?);
        let ended = first.shutdown(Duration::ZERO).await;
        ensure(ended.is_ok() && second.is_running(), "Lifecycle", || format!("{ended:?}"))?;
        let third = self.declare(&question, "")?;
        drop(second);
        sleep(self.grace + Duration::from_secs(1)).await;
        let ready = third.ready(Duration::ZERO).await;
        ensure(third.is_running() && ready.is_ok(), "Lifecycle", || format!("{ready:?}"))?;
        self.write_and_see(Duration::from_secs(1)).await?;
        let after = self.requests();
        ensure(after.initial == before.initial, "Shared", || format!("{after:?}, before {before:?}"))?;
        if self.grace.is_zero() {
            return Ok(());
        }
        let last = self.declare(&PodQuestion::of(&["a"]), "app,!other")?;
        sleep(Duration::from_secs(5)).await;
        let before = self.requests();
        drop(last);
        sleep(self.grace - Duration::from_millis(1)).await;
        let again = self.declare(&PodQuestion::of(&["a"]), "app,!other")?;
        let ready = again.ready(Duration::from_secs(1)).await;
        let after = self.requests();
        let is_free = ready.is_ok() && after.initial == before.initial;
        ensure(is_free, "Lifecycle", || format!("within the grace period: {ready:?}, {after:?}, before {before:?}"))
    }

    /// Starts a user outside the program, with these labels instead of the question's unless they are empty.
    fn declare(&self, question: &PodQuestion, labels: &str) -> Result<Informer<Pod>, BrokenGuarantee> {
        let labels = if labels.is_empty() { question.labels } else { labels };
        let declared = self.declared(question, labels).from_wider(labels == question.labels);
        declared.start_shared().map_err(|error| BrokenGuarantee(error.to_string()))
    }

    /// A question that an equal or wider copy answers costs no request; others cost one watch for each namespace.
    async fn an_equal_or_wider_copy_answers(&mut self) -> Result<(), BrokenGuarantee> {
        self.components.truncate(4);
        sleep(self.grace + Duration::from_secs(1)).await;
        for _ in 0..3 {
            let question = PodQuestion::draw(&mut self.rng);
            let before = self.requests();
            let answers = |other: &Component, from_wider: bool| {
                let equals = other.question.equals(&question);
                if from_wider { equals || other.question.answers(&question) } else { equals && !other.from_wider }
            };
            let answered = [false, true].map(|it| self.components.iter().any(|other| answers(other, it)));
            self.start(question)?;
            sleep(Duration::from_secs(5)).await;
            let after = self.requests();
            let sent = after.initial - before.initial;
            let from_wider = self.components.last().is_some_and(|component| component.from_wider);
            let most = if answered[usize::from(from_wider)] { 0 } else { question.watches().len() };
            ensure(sent <= most, "Shared", || format!("{question}: {sent} requests"))?;
            self.write_and_see(Duration::from_secs(1)).await?;
        }
        Ok(())
    }
}
