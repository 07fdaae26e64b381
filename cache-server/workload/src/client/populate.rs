//! Creates the generator's objects through a running server's API, with the same result as `serve --populate`.
//!
//! INVARIANT: all namespaces exist before any other object is sent, and all service accounts before any pod. At most
//! [`CLIENT_CONNECTIONS`] requests are in flight.
//!
//! The server assigns uid, creationTimestamp and generation, so those differ from the generator's.

use bytes::Bytes;
use futures::{StreamExt as _, stream::FuturesUnordered};
use informer_core::object::Meta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Ask, ClientError, Connection, ServerUrl, collection};
use crate::{
    config::PopulateSpec,
    limits::CLIENT_CONNECTIONS,
    populate::{GeneratedObject, objects},
};

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects created.
    pub created: u64,
    /// Objects that existed already; they are unchanged.
    pub existed: u64,
}

impl Counts {
    /// Objects handled so far.
    pub const fn total(self) -> u64 {
        self.created + self.existed
    }
}

/// The error for an object that could not be created: one line.
#[derive(Debug, thiserror::Error)]
#[error("cannot create {resource} {key}: {source}")]
pub struct CreateError {
    /// Resource with its group, such as `pods` or `deployments.apps`.
    resource: String,
    /// Namespace and name, or the name alone.
    key: String,
    source: ClientError,
}

/// Creates the objects of `spec` and calls `progress` after each.
///
/// # Errors
/// The first object that cannot be created. Objects created before it stay; creates in flight may succeed too.
pub async fn populate(
    server: &ServerUrl,
    spec: &PopulateSpec,
    progress: impl FnMut(Counts),
) -> Result<Counts, CreateError> {
    let idle = (0..CLIENT_CONNECTIONS).map(|_| Connection::new(server.clone())).collect();
    let mut populating = PopulateRun { idle, counts: Counts::default(), progress };
    // The generator yields namespaces first; wait for all of them before sending other objects.
    let namespaces = usize::try_from(spec.namespaces).unwrap_or(usize::MAX);
    populating.create_all(objects(spec).take(namespaces)).await?;
    // API servers look up the service account of each new pod.
    let is_account = |object: &GeneratedObject| object.plural == "serviceaccounts";
    populating.create_all(objects(spec).filter(is_account)).await?;
    populating.create_all(objects(spec).skip(namespaces).filter(|object| !is_account(object))).await?;
    Ok(populating.counts)
}

struct PopulateRun<P> {
    idle: Vec<Connection>,
    counts: Counts,
    progress: P,
}

/// The freed connection, and true if the object was created, false if it existed.
type CreateResult = (Connection, Result<bool, CreateError>);

impl<P: FnMut(Counts)> PopulateRun<P> {
    async fn create_all(&mut self, objects: impl Iterator<Item = GeneratedObject>) -> Result<(), CreateError> {
        let mut creating = FuturesUnordered::new();
        for object in objects {
            if self.idle.is_empty() {
                let done = creating.next().await.expect("what is not idle is at work");
                self.settle(done)?;
            }
            let connection = self.idle.pop().expect("one is idle, or was just given back");
            creating.push(create(connection, object));
        }
        while let Some(done) = creating.next().await {
            self.settle(done)?;
        }
        Ok(())
    }

    fn settle(&mut self, (connection, created): CreateResult) -> Result<(), CreateError> {
        self.idle.push(connection);
        if created? {
            self.counts.created += 1;
        } else {
            self.counts.existed += 1;
        }
        (self.progress)(self.counts);
        Ok(())
    }
}

async fn create(mut connection: Connection, object: GeneratedObject) -> CreateResult {
    let (namespace, name) = match Meta::read(&object.json) {
        Ok(meta) => (meta.namespace.into_owned(), meta.name.into_owned()),
        Err(_) => unreachable!("the generator makes objects"),
    };
    let resource = object.resource();
    let collection = collection(object.group, object.version, object.plural, &namespace);
    let created = match create_at(&mut connection, &collection, &name, object.json.into()).await {
        Ok(()) => Ok(true),
        Err(error) if error.already_exists() => Ok(false),
        Err(source) => {
            let key = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
            Err(CreateError { resource, key, source })
        }
    };
    (connection, created)
}

async fn create_at(
    connection: &mut Connection,
    collection: &str,
    name: &str,
    object: Bytes,
) -> Result<(), ClientError> {
    let answer = connection.send(&Ask::post(collection.to_owned(), object.clone())).await?;
    let expected = status(&object)?;
    if expected.is_null() || status(&answer)? == expected {
        return Ok(());
    }
    // For most types a create ignores the status; write it through the subresource.
    let patch = json!({ "status": expected }).to_string();
    connection.send(&Ask::merge(format!("{collection}/{name}/status"), patch)).await.map(|_| ())
}

/// The status of an object; null if it has none.
fn status(object: &[u8]) -> Result<Value, ClientError> {
    #[derive(Deserialize)]
    struct WithStatus {
        #[serde(default)]
        status: Value,
    }
    let read: Result<WithStatus, serde_json::Error> = serde_json::from_slice(object);
    read.map(|object| object.status).map_err(|_| ClientError::Unreadable)
}
