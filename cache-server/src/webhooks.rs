//! The admission webhooks that are configured now, and connections to them.
//!
//! INVARIANT: a configuration decides about every write that begins after it was stored: a write reads the configurations
//! from their caches, which are fresh. INVARIANT: without a configuration, a write costs one look at the caches of each of
//! both types, which are not started.
//!
//! `object_rules::webhooks` decides which webhooks a write is sent to, and `write/webhooks` sends it.

mod client;
pub(crate) mod converting;
mod trust;

use std::sync::Arc;

use api_rules::object::Object;
use futures::TryStreamExt as _;
use informer_core::Objects;
use informer_serving::status::Status;
use object_rules::webhooks::{self, AdmissionWebhook, WebhookKind};
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

/// The webhooks of all configurations, in the order of the names of these.
#[derive(Default)]
pub(crate) struct ConfiguredWebhooks {
    of_kinds: [Vec<Arc<ConnectedWebhook>>; 2],
}

impl ConfiguredWebhooks {
    /// Those that may change objects, or those that may not.
    pub(crate) fn of(&self, kind: WebhookKind) -> &[Arc<ConnectedWebhook>] {
        &self.of_kinds[kind as usize]
    }

    /// True if a webhook may be called for a write of the type.
    pub(crate) fn concern(&self, ty: &ResourceType) -> bool {
        let mut all = self.of_kinds.iter().flatten();
        !webhooks::is_exempt(ty) && all.any(|one| one.webhook.concerns(ty))
    }
}

/// One request on its way through the webhooks.
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
    pub(crate) turn: WorkTurn,
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

/// The webhooks of a server.
#[derive(Default)]
pub(crate) struct Webhooks {
    /// Set once the caches of configurations that were stored before are started.
    begun: OnceCell<()>,
    read: Mutex<ReadConfigurations>,
}

/// The configurations as they were read last.
#[derive(Default)]
struct ReadConfigurations {
    stored: [Objects<Entry>; 2],
    /// A configuration that did not change keeps its connections.
    each: [Vec<ReadConfiguration>; 2],
    all: Arc<ConfiguredWebhooks>,
}

/// One configuration.
struct ReadConfiguration {
    entry: Arc<Entry>,
    webhooks: Vec<Arc<ConnectedWebhook>>,
}

impl Webhooks {
    /// Returns the webhooks that are configured now; `None` if there are none.
    ///
    /// # Errors
    /// The Status of configurations that cannot be read: a write that they may forbid has to wait.
    pub(crate) async fn now(
        &self,
        configurations: StoredConfigurations<'_>,
    ) -> Result<Option<Arc<ConfiguredWebhooks>>, Status> {
        self.begun.get_or_try_init(|| begin(configurations)).await?;
        let (mut stored, mut is_configured) = (<[Objects<Entry>; 2]>::default(), false);
        for kind in WebhookKind::ALL {
            let Some(ty) = configurations.registry.by_id(kind.type_id()) else { continue };
            if !configurations.caches.is_started(&ty) {
                continue;
            }
            let reader = configurations.caches.fresh(&ty).await?;
            if reader.count() > 0 {
                stored[kind as usize] = reader.snapshot().objects;
                is_configured = true;
            }
        }
        Ok(is_configured.then(|| self.read.lock().renewed(stored)))
    }
}

/// Starts the caches of types of configurations that may have some already. Later ones are started by the first write of one.
async fn begin(configurations: StoredConfigurations<'_>) -> Result<(), SourceError> {
    for kind in WebhookKind::ALL {
        let Some(ty) = configurations.registry.by_id(kind.type_id()) else { continue };
        if configurations.is_shared || configurations.store.list(&ty).await?.entries.try_next().await?.is_some() {
            configurations.caches.start(&ty);
        }
    }
    Ok(())
}

impl ReadConfigurations {
    /// Returns the webhooks of the configurations that are stored. Cost: decodes those that changed.
    fn renewed(&mut self, stored: [Objects<Entry>; 2]) -> Arc<ConfiguredWebhooks> {
        if self.stored.iter().zip(&stored).all(|(read, stored)| read.same(stored)) {
            return Arc::clone(&self.all);
        }
        let mut all = ConfiguredWebhooks::default();
        for kind in WebhookKind::ALL {
            let known = std::mem::take(&mut self.each[kind as usize]);
            let renew = |entry: &Arc<Entry>| {
                let same = known.iter().find(|known| Arc::ptr_eq(&known.entry, entry));
                let webhooks = same.map_or_else(|| decoded(kind, entry), |same| same.webhooks.clone());
                ReadConfiguration { entry: Arc::clone(entry), webhooks }
            };
            let each: Vec<_> = stored[kind as usize].iter().map(renew).collect();
            all.of_kinds[kind as usize] = each.iter().flat_map(|one| one.webhooks.iter().cloned()).collect();
            self.each[kind as usize] = each;
        }
        self.stored = stored;
        self.all = Arc::new(all);
        Arc::clone(&self.all)
    }
}

fn decoded(kind: WebhookKind, entry: &Entry) -> Vec<Arc<ConnectedWebhook>> {
    let configuration: Object = serde_json::from_slice(entry.object_text()).unwrap_or_default();
    let connected = |webhook: AdmissionWebhook| {
        let client = WebhookClient::new(&webhook);
        Arc::new(ConnectedWebhook { webhook, client })
    };
    webhooks::read(kind, &configuration).into_iter().map(connected).collect()
}
