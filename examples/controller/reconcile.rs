//! Reconciles one Bundle. Reads the informers' stores; requests to the server are writes, and the list of a cleanup.
//!
//! INVARIANT: a reconcile may be aborted at any await and repeated, in this process or another one. INVARIANT: every write
//! is conditional on the version read, so a replica that lost its leadership without noticing overwrites no later write.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use informer::{Informer, Object, ObjectView, WaitError, controller::Requeue};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions},
    runtime::{
        controller::Action,
        events::{self, EventType, Recorder},
        finalizer,
    },
};

use crate::{
    bundle::{Bundle, BundleStatus},
    control::{COPY_OF, Informers},
};

/// Keeps a deleted Bundle until its copies are deleted.
const FINALIZER: &str = "copies.example.dev/copies";

/// Time for the informer to see a write that was acknowledged.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// Everything a reconcile needs besides the Bundle.
pub(crate) struct Context {
    /// For writes.
    pub(crate) client: Client,
    pub(crate) informers: Informers,
    pub(crate) recorder: Recorder,
    /// Fence token of this leadership.
    pub(crate) term: i32,
}

/// Reason why a Bundle could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfinished {
    #[error("a request failed: {0}")]
    Request(#[from] kube::Error),
    #[error("a later leader, of term {0}, has written the status")]
    Deposed(i32),
    #[error("the store lags: {0}")]
    Lag(#[from] WaitError),
    #[error("{0}")]
    Copy(#[from] informer::DecodeError),
    #[error("the Bundle has no name")]
    Nameless,
}

/// Makes the copies of a Bundle equal to its original; of a deleted Bundle, deletes them.
pub(crate) async fn reconcile(bundle: Arc<Bundle>, context: Arc<Context>) -> Result<Requeue, Unfinished> {
    let last_term = bundle.status.as_ref().map_or(0, |status| status.term);
    if last_term > context.term {
        return Err(Unfinished::Deposed(last_term));
    }
    let (context, bundles) = (&*context, &Api::<Bundle>::all(context.client.clone()));
    let done = finalizer(bundles, FINALIZER, bundle, |event| async move {
        match event {
            finalizer::Event::Apply(bundle) => context.apply(bundles, &bundle).await?,
            finalizer::Event::Cleanup(bundle) => context.clean_up(&bundle).await?,
        }
        Ok::<_, Unfinished>(Action::await_change())
    });
    match done.await {
        Ok(_) => Ok(Requeue::await_change()),
        Err(finalizer::Error::ApplyFailed(error) | finalizer::Error::CleanupFailed(error)) => Err(error),
        // The last finalizer was removed by an earlier reconcile, whose response was lost.
        Err(finalizer::Error::RemoveFinalizer(kube::Error::Api(status))) if status.is_not_found() => {
            Ok(Requeue::await_change())
        }
        Err(finalizer::Error::AddFinalizer(error) | finalizer::Error::RemoveFinalizer(error)) => Err(error.into()),
        Err(finalizer::Error::UnnamedObject | finalizer::Error::InvalidFinalizer) => Err(Unfinished::Nameless),
    }
}

impl Context {
    async fn apply(&self, bundles: &Api<Bundle>, bundle: &Bundle) -> Result<(), Unfinished> {
        let source = format!("{}/{}", self.informers.trust_namespace, bundle.spec.source);
        let Some(source) = self.informers.sources.store().snapshot().get(&source) else {
            let message = format!("the ConfigMap {source} does not exist");
            return self.report(bundles, bundle, (false, "NoSource"), message, None).await;
        };
        let source = source.decode()?;
        match self.converge(bundle, &source).await {
            Ok(copies) => {
                let message = format!("{copies} copies equal the original");
                self.report(bundles, bundle, (true, "CopiesEqual"), message, Some(copies)).await
            }
            // A copy changed since it was read: its event triggers the next try.
            Err(Unfinished::Request(kube::Error::Api(status))) if status.is_conflict() => {
                Err(kube::Error::Api(status).into())
            }
            Err(error) => {
                self.report(bundles, bundle, (false, "WriteFailed"), error.to_string(), None).await?;
                Err(error)
            }
        }
    }

    /// Creates, replaces and deletes copies. Returns their number.
    async fn converge(&self, bundle: &Bundle, source: &ConfigMap) -> Result<u32, Unfinished> {
        let targets = self.targets(bundle);
        let mut written = None;
        for copy in self.copies(bundle) {
            if !targets.contains(copy.namespace()) {
                self.delete(copy.namespace(), copy.name(), copy.uid()).await?;
            }
        }
        for namespace in &targets {
            let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
            let name = bundle.name_any();
            let present = self.informers.copies.store().snapshot().get(&format!("{namespace}/{name}"));
            let copy = match present.map(|copy| copy.decode()).transpose()? {
                Some(copy) if copy.data == source.data => continue,
                Some(copy) => {
                    let renewed = ConfigMap { data: source.data.clone(), ..ConfigMap::clone(&copy) };
                    api.replace(&name, &PostParams::default(), &renewed).await?
                }
                None => api.create(&PostParams::default(), &copy_of(bundle, source)).await?,
            };
            println!("~ {namespace}/{name}");
            written = Some(copy);
        }
        if let Some(copy) = written {
            seen(&self.informers.copies, &copy).await?;
        }
        Ok(u32::try_from(targets.len()).unwrap_or(u32::MAX))
    }

    /// Names of the namespaces that get a copy.
    fn targets(&self, bundle: &Bundle) -> BTreeSet<String> {
        let required = &bundle.spec.namespace_labels;
        let namespaces = self.informers.namespaces.store().snapshot();
        let targets = namespaces.iter().filter(|namespace| {
            let has = |(key, value): (&String, &String)| namespace.label(key).is_some_and(|found| found == *value);
            namespace.name() != self.informers.trust_namespace && required.iter().all(has)
        });
        targets.map(|namespace| namespace.name().to_owned()).collect()
    }

    fn copies(&self, bundle: &Bundle) -> Vec<Object<ConfigMap>> {
        let copies = self.informers.copies.store().snapshot();
        copies.by(&self.informers.by_bundle, &bundle.name_any()).map(ObjectView::to_object).collect()
    }

    /// Deletes all copies. Lists them at the server: a store may not have a copy that was just created.
    async fn clean_up(&self, bundle: &Bundle) -> Result<(), Unfinished> {
        let of_bundle = ListParams::default().labels(&format!("{COPY_OF}={}", bundle.name_any()));
        let copies = Api::<ConfigMap>::all(self.client.clone()).list(&of_bundle).await?;
        for copy in copies {
            let (namespace, name) = (copy.namespace().unwrap_or_default(), copy.name_any());
            self.delete(&namespace, &name, copy.metadata.uid.as_deref().unwrap_or_default()).await?;
        }
        Ok(())
    }

    async fn delete(&self, namespace: &str, name: &str, uid: &str) -> Result<(), Unfinished> {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match Api::<ConfigMap>::namespaced(self.client.clone(), namespace).delete(name, &params).await {
            Ok(_) => println!("- {namespace}/{name}"),
            // It does not exist, or another one has its name by now.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Writes the status, and an event if the condition changes, unless the status says so already.
    async fn report(
        &self,
        bundles: &Api<Bundle>,
        bundle: &Bundle,
        (is_synced, reason): (bool, &str),
        message: String,
        copies: Option<u32>,
    ) -> Result<(), Unfinished> {
        let before = bundle.status.clone().unwrap_or_default();
        let condition = bundle.condition(is_synced, reason, message);
        let status = BundleStatus {
            observed_generation: bundle.metadata.generation,
            copies: copies.unwrap_or(before.copies),
            term: self.term,
            conditions: vec![condition.clone()],
        };
        if status == before {
            return Ok(());
        }
        if bundle
            .synced()
            .is_none_or(|before| (&before.status, &before.reason) != (&condition.status, &condition.reason))
        {
            let event = events::Event {
                type_: if is_synced { EventType::Normal } else { EventType::Warning },
                reason: condition.reason,
                note: Some(condition.message),
                action: "Copy".to_owned(),
                secondary: None,
            };
            // Events are best effort: the condition has the same text.
            if let Err(error) = self.recorder.publish(&event, &bundle.object_ref(&())).await {
                eprintln!("an event was not published: {error}");
            }
        }
        // The version in the metadata makes the write conditional.
        let reported = Bundle { status: Some(status), ..bundle.clone() };
        let written = bundles.replace_status(&bundle.name_any(), &PostParams::default(), &reported).await?;
        seen(&self.informers.bundles, &written).await
    }
}

/// Waits until the informer has a write: the next reconcile reads its own writes.
async fn seen<K: kube::Resource>(informer: &Informer<K>, written: &K) -> Result<(), Unfinished> {
    Ok(informer.wait_for(written.resource_version(), SEEN_WITHIN).await?)
}

fn copy_of(bundle: &Bundle, source: &ConfigMap) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(bundle.name_any()),
        labels: Some([(COPY_OF.to_owned(), bundle.name_any())].into()),
        owner_references: Some(bundle.controller_owner_ref(&()).into_iter().collect()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, data: source.data.clone(), ..ConfigMap::default() }
}
