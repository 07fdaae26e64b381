//! Conditions for [`Informer::wait_until`](crate::Informer::wait_until), read from the JSON of one object, without
//! decoding it.
//!
//! ```no_run
//! # use informer::{EndReason, Informer, conditions};
//! # use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
//! # async fn doc(definitions: &Informer<CustomResourceDefinition>) -> Result<(), EndReason> {
//! definitions.wait_until(conditions::established("widgets.example.dev")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Those that read `status.conditions`, and `rolled_out`, ignore a status of an older spec: `observedGeneration`, of the
//! condition or else of the status, must be absent or not older than `metadata.generation`. For a deadline, use tokio's
//! `timeout`.
//!
//! Current is what the copy holds: after a write, [`wait_for`](crate::Informer::wait_for) its resourceVersion first, or
//! the condition may hold of the object before it.

use informer_core::{object, wire::json};

use crate::{object::Object, store::Snapshot};

/// True while the object exists.
pub fn exists<K>(key: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    let key = key.into();
    move |now| now.get(&key).is_some()
}

/// True once the object with this uid was deleted or left the informer's selection, whether or not another one has its
/// key. False before the first sync.
pub fn deleted<K>(key: impl Into<String>, uid: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    let (key, uid) = (key.into(), uid.into());
    move |now| now.is_synced() && now.get(&key).is_none_or(|object| object.uid() != uid)
}

/// True while the scalar at a dotted path has this value: `field_is("a/web-0", "status.phase", "Running")`.
pub fn field_is<K>(
    key: impl Into<String>,
    path: impl Into<String>,
    value: impl Into<String>,
) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    let (key, path, value) = (key.into(), path.into(), value.into());
    move |now| now.get(&key).is_some_and(|object| object.field(&path).as_deref() == Some(&*value))
}

/// True while the condition of this type in `status.conditions` has the status `True`: `Initialized` of a Pod,
/// `DiskPressure` of a Node.
pub fn is_true<K>(
    key: impl Into<String>,
    condition: impl Into<String>,
) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    let (key, condition) = (key.into(), condition.into());
    move |now| now.get(&key).is_some_and(|object| has_true(&object, &condition))
}

/// True while a `CustomResourceDefinition` is established: its objects can be read and written.
pub fn established<K>(name: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    is_true(name, "Established")
}

/// True while a Pod or Node is ready.
pub fn ready<K>(key: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    is_true(key, "Ready")
}

/// True while a Deployment has its minimum of available replicas, of any revision; see [`rolled_out`].
pub fn available<K>(key: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    is_true(key, "Available")
}

/// True once a Job has succeeded. Stays false if it fails: see [`finished`].
pub fn complete<K>(key: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    is_true(key, "Complete")
}

/// True once a Job has failed, after all of its retries.
pub fn failed<K>(key: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    is_true(key, "Failed")
}

/// True once a Job has succeeded or failed. [`failed`] tells them apart, on the snapshot that the wait returns.
pub fn finished<K>(key: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    let key = key.into();
    let (complete, failed) = (complete(key.clone()), failed(key));
    move |now| complete(now) || failed(now)
}

/// True while a Namespace takes new objects: it exists, and is not being deleted.
pub fn active<K>(name: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    field_is(name, "status.phase", "Active")
}

/// True while the load balancer of a Service or Ingress has an address.
pub fn load_balanced<K>(key: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    let key = key.into();
    move |now| {
        let Some(object) = now.get(&key) else { return false };
        let text = object.json();
        let addresses = object::value_at(&text, "status.loadBalancer.ingress").map_or(&[][..], |at| &text[at]);
        json::elements(addresses)
            .any(|found| ["ip", "hostname"].iter().any(|name| object::field(found, name).is_some()))
    }
}

/// True while a Deployment has all of its replicas, updated and available, and no others, as `kubectl rollout status`
/// waits for.
pub fn rolled_out<K>(key: impl Into<String>) -> impl Fn(&Snapshot<K>) -> bool + Send + 'static {
    let key = key.into();
    move |now| {
        let Some(object) = now.get(&key) else { return false };
        let count = |path: &str, absent: u64| object.field(path).map_or(Some(absent), |text| text.parse().ok());
        let replicas =
            ["status.updatedReplicas", "status.replicas", "status.availableReplicas"].map(|path| count(path, 0));
        let expected = count("spec.replicas", 1);
        // Its controller has not seen a Deployment without it.
        let is_observed = object.field("status.observedGeneration").is_some() && is_current(&object, None);
        expected.is_some() && replicas.iter().all(|found| *found == expected) && is_observed
    }
}

fn has_true<K>(object: &Object<K>, condition: &str) -> bool {
    let text = object.json();
    let conditions = object::value_at(&text, "status.conditions").map_or(&[][..], |at| &text[at]);
    let is_it = |found: &&[u8]| object::field(found, "type").as_deref() == Some(condition);
    json::elements(conditions).find(is_it).is_some_and(|found| {
        let observed = object::field(found, "observedGeneration").and_then(|text| text.parse().ok());
        object::field(found, "status").as_deref() == Some("True") && is_current(object, observed)
    })
}

/// True unless the status is of an older spec. `observed` is the generation of a condition, if it has one.
fn is_current<K>(object: &Object<K>, observed: Option<u64>) -> bool {
    let number = |path: &str| object.field(path).and_then(|text| text.parse::<u64>().ok());
    let observed = observed.or_else(|| number("status.observedGeneration"));
    observed.is_none_or(|observed| number("metadata.generation").is_none_or(|current| current <= observed))
}
