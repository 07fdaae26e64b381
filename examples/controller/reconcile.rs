//! Reconciles one namespace. Independent of the watches.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams},
    runtime::{
        controller::Action,
        reflector::{ObjectRef, Store},
    },
};

use crate::{COPY, WANTED};

/// Everything the reconciler needs besides the namespace.
pub(crate) struct Context {
    client: Client,
    copies: Store<ConfigMap>,
    original: Store<ConfigMap>,
    /// Resolves to true once both stores are complete, or to false if the watches end first. Shared, because a kube store
    /// wakes only one waiter, and many reconcilers wait.
    ready: Shared<BoxFuture<'static, bool>>,
}

impl Context {
    pub(crate) fn new(client: Client, copies: Store<ConfigMap>, original: Store<ConfigMap>) -> Self {
        let (these, those) = (copies.clone(), original.clone());
        let ready = async move { these.wait_until_ready().await.is_ok() && those.wait_until_ready().await.is_ok() };
        Self { client, copies, original, ready: ready.boxed().shared() }
    }
}

/// Reason why a namespace could not be reconciled.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// The server refused a write.
    Write(kube::Error),
    /// The watches have ended.
    Stopped,
}

impl std::fmt::Display for Unfinished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Write(error) => write!(f, "a copy was not written: {error}"),
            Self::Stopped => f.write_str("the watches have ended"),
        }
    }
}

impl std::error::Error for Unfinished {}

/// Delay of a retry after the stores were stale.
const SOON: Duration = Duration::from_millis(500);

/// Makes the namespace's copy equal to the original. Reads from the stores; requests to the server are writes only.
pub(crate) async fn reconcile(namespace: Arc<Namespace>, context: Arc<Context>) -> Result<Action, Unfinished> {
    if !context.ready.clone().await {
        return Err(Unfinished::Stopped);
    }
    match converge(&namespace, &context).await {
        Ok(()) => Ok(Action::await_change()),
        // The stores lag the server slightly; retry once they have caught up.
        Err(kube::Error::Api(status))
            if status.is_already_exists() || status.is_conflict() || status.is_not_found() =>
        {
            Ok(Action::requeue(SOON))
        }
        Err(error) => Err(Unfinished::Write(error)),
    }
}

async fn converge(namespace: &Namespace, context: &Context) -> Result<(), kube::Error> {
    let inside = namespace.name_any();
    let original = context.original.state().into_iter().next();
    let wanted = original.filter(|original| {
        namespace.labels().get(WANTED.0).is_some_and(|value| value == WANTED.1)
            && original.namespace().as_deref() != Some(&inside)
    });
    let copies = context.copies.state().into_iter().filter(|copy| copy.namespace().as_deref() == Some(&inside));
    let api = Api::<ConfigMap>::namespaced(context.client.clone(), &inside);
    let mut is_there = false;
    for copy in copies {
        let name = copy.name_any();
        match &wanted {
            Some(original) if original.name_any() == name => {
                is_there = true;
                if copy.data != original.data {
                    replace(&api, &copy, original).await?;
                }
            }
            Some(_) | None => {
                api.delete(&name, &DeleteParams::default()).await?;
                println!("- {inside}/{name}");
            }
        }
    }
    if let Some(original) = wanted.filter(|_| !is_there) {
        create(&api, &inside, &original).await?;
    }
    Ok(())
}

/// Retries after a longer delay.
pub(crate) fn on_error(_: Arc<Namespace>, _: &Unfinished, _: Arc<Context>) -> Action {
    Action::requeue(10 * SOON)
}

async fn create(api: &Api<ConfigMap>, inside: &str, original: &ConfigMap) -> Result<(), kube::Error> {
    let labels = BTreeMap::from([(COPY.0.to_owned(), COPY.1.to_owned())]);
    let metadata = ObjectMeta { name: Some(original.name_any()), labels: Some(labels), ..ObjectMeta::default() };
    let copy = ConfigMap { metadata, data: original.data.clone(), ..ConfigMap::default() };
    api.create(&PostParams::default(), &copy).await?;
    println!("+ {inside}/{}", original.name_any());
    Ok(())
}

/// Replaces the copy at the version in the store. If the copy has changed since, the server responds with a conflict
/// and no change is lost.
async fn replace(api: &Api<ConfigMap>, copy: &ConfigMap, original: &ConfigMap) -> Result<(), kube::Error> {
    let renewed = ConfigMap { data: original.data.clone(), ..copy.clone() };
    api.replace(&copy.name_any(), &PostParams::default(), &renewed).await?;
    println!("~ {}", ObjectRef::from_obj(copy));
    Ok(())
}
