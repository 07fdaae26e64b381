//! What informers of one cluster share: the client, the relist budget, and what is known about its streams.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use informer_core::reflector::Verdict;
use kube::{Resource, core::ApiResource};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    declaration::Type,
    error::{Error, Kind},
    informer::InformerBuilder,
    raw,
};

/// Informers of one cluster that read their initial state at the same time, by default.
pub const RELISTS_AT_ONCE: usize = 2;

/// What informers are started from. Cheap to clone; clones share the relist budget and the verdicts.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    client: kube::Client,
    relists: Arc<Semaphore>,
    verdicts: Verdicts,
}

impl Cluster {
    /// Informers that read through `client`, with its authentication, TLS and proxy.
    ///
    /// kube's client retries some failures by itself; informers' requests are made such that it does not.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self::with_relists_at_once(client, RELISTS_AT_ONCE)
    }

    /// As [`new`](Self::new), with a budget other than [`RELISTS_AT_ONCE`]: as many informers read their initial state
    /// at the same time, the others wait for their turn. More ask more of the server after an outage.
    ///
    /// # Panics
    /// On zero: nothing would ever be read.
    #[must_use]
    pub fn with_relists_at_once(client: kube::Client, relists_at_once: usize) -> Self {
        assert!(relists_at_once > 0, "a budget of no relists");
        let relists = Arc::new(Semaphore::new(relists_at_once.min(Semaphore::MAX_PERMITS)));
        Self { shared: Arc::new(Shared { client, relists, verdicts: Verdicts::default() }) }
    }

    /// Declares an informer of a type known at compile time. Nothing is sent before
    /// [`start`](InformerBuilder::start).
    pub fn informer<K>(&self) -> InformerBuilder<K>
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        InformerBuilder::new(self.clone(), Type::of::<K>())
    }

    /// Declares an informer of a type known at run time, such as `DynamicObject` of a custom resource.
    pub fn informer_for<K>(&self, resource: &ApiResource) -> InformerBuilder<K> {
        InformerBuilder::new(self.clone(), Type::from(resource))
    }

    /// Declares a raw stream: changes as bytes, in order, without a store. See [`raw`].
    pub fn raw(&self, resource: &ApiResource) -> raw::Builder {
        raw::Builder::new(self.clone(), Type::from(resource))
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.shared.client
    }

    pub(crate) fn relists(&self) -> &Arc<Semaphore> {
        &self.shared.relists
    }

    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.shared.verdicts
    }
}

impl TryFrom<kube::Config> for Cluster {
    type Error = Error;

    /// A cluster with a client of its own. Needs a tokio runtime.
    ///
    /// # Errors
    /// What kube says about the configuration, and a URL without its scheme, on which kube's client would panic later.
    fn try_from(mut config: kube::Config) -> Result<Self, Error> {
        let mut url = config.cluster_url.clone().into_parts();
        url.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        http::Uri::from_parts(url)
            .map_err(|error| Error::new(Kind::Client(kube::Error::HttpError(error.into())), None))?;
        // Fifteen retries from 5 ms, without jitter, before anybody sees the first failure.
        config.default_retry = false;
        let client = kube::Client::try_from(config).map_err(|error| Error::new(Kind::Client(error), None))?;
        Ok(Self::new(client))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("relists_free", &self.shared.relists.available_permits())
            .finish_non_exhaustive()
    }
}

/// What is known about streams, by path of the resource type. Grows with the types in use, never with objects.
#[derive(Default)]
pub(crate) struct Verdicts {
    by_type: Mutex<HashMap<String, Judged>>,
}

struct Judged {
    verdict: Verdict,
    until: Instant,
}

impl Verdicts {
    /// What is known about a type. A verdict ends by itself, so that an upgraded server is asked again.
    pub(crate) fn of(&self, path: &str) -> Verdict {
        let now = Instant::now();
        self.by_type.lock().get(path).filter(|judged| now < judged.until).map_or(Verdict::Streams, |it| it.verdict)
    }

    /// Remembers what an informer found out, so that the next one of the type need not.
    pub(crate) fn set(&self, path: String, verdict: Verdict) {
        let mut by_type = self.by_type.lock();
        match verdict {
            Verdict::Streams => drop(by_type.remove(&path)),
            Verdict::Pages(_) => {
                let until = Instant::now() + VERDICT_LASTS.mul_f64(1.0 + fastrand::f64() / 5.0);
                by_type.insert(path, Judged { verdict, until });
            }
        }
    }
}

/// How long a verdict against streams is handed to new informers, a fifth of jitter added. Costs one refused request.
const VERDICT_LASTS: Duration = Duration::from_hours(1);
