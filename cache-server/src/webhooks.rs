//! The admission webhooks and policies that are configured now, and connections to webhooks.
//!
//! INVARIANT: a configuration decides about every write that begins after it was stored: a write reads the
//! configurations from their caches, which are fresh. INVARIANT: without a configuration, a write costs one look at the
//! caches of each of their types, which are not started.
//!
//! `object_rules` decides which webhooks a write is sent to, and what policies say; `write/webhooks` asks them.

mod client;
pub(crate) mod converting;
mod trust;

use std::{collections::HashMap, sync::Arc};

use api_rules::object::Object;
use futures::TryStreamExt as _;
use informer_core::Objects;
use informer_serving::status::Status;
use object_rules::{
    policies::{self, AdmissionPolicy, PolicyBinding},
    quotas::QUOTAS,
    ranges::RANGES,
    webhooks::{self, AdmissionWebhook, WebhookKind},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;
use watch_cache::Entry;

pub(crate) use self::client::WebhookAnswer;
use self::client::WebhookClient;
use crate::{
    budget::WorkTurn,
    cacher::Caches,
    registry::{Registry, ResourceType},
    storage::{SourceError, Store},
};

/// A webhook, and the connections to it.
pub(crate) struct ConnectedWebhook {
    /// Its rules.
    pub(crate) webhook: AdmissionWebhook,
    /// Connections to it.
    pub(crate) client: WebhookClient,
}

/// A policy with its bindings, in the order of their names.
pub(crate) struct BoundPolicy {
    pub(crate) policy: Arc<AdmissionPolicy>,
    pub(crate) bindings: Vec<Arc<PolicyBinding>>,
}

/// The webhooks of all configurations, and all policies with bindings, in the order of the names of these.
#[derive(Default)]
pub(crate) struct ConfiguredWebhooks {
    of_kinds: [Vec<Arc<ConnectedWebhook>>; 2],
    policies: Vec<BoundPolicy>,
}

impl ConfiguredWebhooks {
    /// The webhooks for writes of the type that may change objects, or those that may not.
    pub(crate) fn of(&self, kind: WebhookKind, ty: &ResourceType) -> &[Arc<ConnectedWebhook>] {
        if webhooks::is_exempt(ty) { &[] } else { &self.of_kinds[kind as usize] }
    }

    /// The policies for writes of the type.
    pub(crate) fn policies(&self, ty: &ResourceType) -> &[BoundPolicy] {
        if policies::is_exempt(ty) { &[] } else { &self.policies }
    }

    /// True if a webhook may be called for a write of the type, or a policy asked.
    pub(crate) fn concern(&self, ty: &ResourceType) -> bool {
        let mut called = WebhookKind::ALL.into_iter().flat_map(|kind| self.of(kind, ty));
        called.any(|one| one.webhook.writes.concern(ty))
            || self.policies(ty).iter().any(|one| one.policy.writes.concern(ty))
    }
}

/// One request on its way through the webhooks and policies.
pub(crate) struct RequestAdmission {
    /// Those that decide about it.
    pub(crate) webhooks: Arc<ConfiguredWebhooks>,
    /// Options of the request.
    pub(crate) options: Object,
    /// UserInfo of the caller.
    pub(crate) user: Value,
    /// Their warnings so far.
    pub(crate) warnings: Mutex<Vec<String>>,
    /// Its permits and its deadline.
    pub(crate) turn: Arc<WorkTurn>,
}

/// Where the configurations are.
#[derive(Clone, Copy)]
pub(crate) struct StoredConfigurations<'a> {
    pub(crate) caches: &'a Caches,
    pub(crate) store: &'a dyn Store,
    pub(crate) registry: &'a Registry,
    /// True if others write to the store.
    pub(crate) is_shared: bool,
}

/// The webhooks and policies of a server.
#[derive(Default)]
pub(crate) struct Webhooks {
    /// Set once the caches of configurations that were stored before are started.
    begun: OnceCell<()>,
    read: Mutex<ReadConfigurations>,
}

/// Ids of the types of configurations.
const TYPES: [&str; 4] =
    [WebhookKind::Mutating.type_id(), WebhookKind::Validating.type_id(), policies::POLICIES, policies::BINDINGS];

/// True if objects of the type decide about writes.
pub(crate) fn are_configurations(ty: &ResourceType) -> bool {
    TYPES.contains(&ty.id()) || ty.id() == QUOTAS || ty.id() == RANGES
}

/// The configurations as they were read last.
#[derive(Default)]
struct ReadConfigurations {
    /// Those of each of [`TYPES`].
    stored: [Objects<Entry>; TYPES.len()],
    webhooks: [DecodedObjects<Vec<Arc<ConnectedWebhook>>>; 2],
    policies: DecodedObjects<Arc<AdmissionPolicy>>,
    bindings: DecodedObjects<Arc<PolicyBinding>>,
    all: Arc<ConfiguredWebhooks>,
}

/// Objects of a type as they were decoded last. One that did not change stays, with its connections and programs.
struct DecodedObjects<T>(Vec<(Arc<Entry>, T)>);

impl<T> Default for DecodedObjects<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> DecodedObjects<T> {
    /// Decodes objects that changed.
    fn renew(&mut self, stored: &Objects<Entry>, decode: impl Fn(&Object) -> T) {
        let known: HashMap<_, _> = self.0.iter().map(|(entry, decoded)| (Arc::as_ptr(entry), decoded)).collect();
        let renew = |entry: &Arc<Entry>| {
            let decode = || decode(&serde_json::from_slice(entry.object_text()).unwrap_or_default());
            (Arc::clone(entry), known.get(&Arc::as_ptr(entry)).map_or_else(decode, |same| (*same).clone()))
        };
        self.0 = stored.iter().map(renew).collect();
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, decoded)| decoded)
    }
}

impl Webhooks {
    /// Returns the webhooks and policies that are configured now; `None` if there are none.
    ///
    /// # Errors
    /// The Status of configurations that cannot be read: a write that they may forbid has to wait.
    pub(crate) async fn now(
        &self,
        configurations: StoredConfigurations<'_>,
    ) -> Result<Option<Arc<ConfiguredWebhooks>>, Status> {
        self.begun.get_or_try_init(|| begin(configurations)).await?;
        let (mut stored, mut is_configured) = (<[Objects<Entry>; TYPES.len()]>::default(), false);
        for (id, stored) in TYPES.into_iter().zip(&mut stored) {
            let Some(ty) = configurations.registry.by_id(id) else { continue };
            if !configurations.caches.is_started(&ty) {
                continue;
            }
            let reader = configurations.caches.fresh(&ty).await?;
            if reader.count() > 0 {
                *stored = reader.snapshot().objects;
                is_configured = true;
            }
        }
        Ok(is_configured.then(|| self.read.lock().renewed(stored)))
    }
}

/// Starts the caches of types of configurations, quotas and ranges that may have some already. Later ones are started by
/// the first write of one.
async fn begin(configurations: StoredConfigurations<'_>) -> Result<(), SourceError> {
    for id in TYPES.into_iter().chain([QUOTAS, RANGES]) {
        let Some(ty) = configurations.registry.by_id(id) else { continue };
        if configurations.is_shared || configurations.store.list(&ty).await?.entries.try_next().await?.is_some() {
            configurations.caches.start(&ty);
        }
    }
    Ok(())
}

impl ReadConfigurations {
    /// Returns the webhooks and policies that are stored. Cost: decodes those that changed.
    fn renewed(&mut self, stored: [Objects<Entry>; TYPES.len()]) -> Arc<ConfiguredWebhooks> {
        if self.stored.iter().zip(&stored).all(|(read, stored)| read.same(stored)) {
            return Arc::clone(&self.all);
        }
        let [mutating, validating, policies, bindings] = &stored;
        for (kind, stored) in WebhookKind::ALL.into_iter().zip([mutating, validating]) {
            self.webhooks[kind as usize].renew(stored, |configuration| connected(kind, configuration));
        }
        self.policies.renew(policies, |policy| Arc::new(AdmissionPolicy::read(policy)));
        self.bindings.renew(bindings, |binding| Arc::new(PolicyBinding::read(binding)));
        let of_kind = |kind: WebhookKind| self.webhooks[kind as usize].iter().flatten().cloned().collect();
        let mut by_policy: HashMap<&str, Vec<Arc<PolicyBinding>>> = HashMap::new();
        for binding in self.bindings.iter() {
            by_policy.entry(&binding.policy).or_default().push(Arc::clone(binding));
        }
        let mut bound = |policy: &Arc<AdmissionPolicy>| {
            let bindings = by_policy.remove(&*policy.name)?;
            Some(BoundPolicy { policy: Arc::clone(policy), bindings })
        };
        let policies = self.policies.iter().filter_map(&mut bound).collect();
        self.all = Arc::new(ConfiguredWebhooks { of_kinds: WebhookKind::ALL.map(of_kind), policies });
        self.stored = stored;
        Arc::clone(&self.all)
    }
}

fn connected(kind: WebhookKind, configuration: &Object) -> Vec<Arc<ConnectedWebhook>> {
    let connected = |webhook: AdmissionWebhook| {
        let client = WebhookClient::new(&webhook);
        Arc::new(ConnectedWebhook { webhook, client })
    };
    webhooks::read(kind, configuration).into_iter().map(connected).collect()
}
