//! Creates the generator's objects through a running server's API, so that the result is what `serve --populate` makes.
//!
//! INVARIANT: a namespace is there before what lives in it, and at most [`CLIENT_CONNECTIONS`] requests are open.
//!
//! The server decides over uid, time of creation and generation, so those are its own.

use bytes::Bytes;
use futures::{StreamExt as _, stream::FuturesUnordered};
use informer_core::object::Meta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Ask, ClientError, Connection, ServerUrl, collection};
use crate::{
    limits::CLIENT_CONNECTIONS,
    populate::{Object, Spec, objects},
};

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Objects that are new.
    pub(crate) created: u64,
    /// Objects whose name was taken; they are as they were.
    pub(crate) existed: u64,
}

impl Counts {
    /// Objects that are there now.
    pub(crate) const fn total(self) -> u64 {
        self.created + self.existed
    }
}

/// An object that could not be created: one line.
#[derive(Debug, thiserror::Error)]
#[error("cannot create {resource} {key}: {source}")]
pub(crate) struct PopulateError {
    /// `pods`, `deployments.apps`.
    resource: String,
    /// Namespace and name.
    key: String,
    source: ClientError,
}

/// Creates the objects of `spec` and tells `progress` after each.
///
/// # Errors
/// The first object that cannot be created; those before it stay, and so do a few after it.
pub(crate) async fn populate(
    server: &ServerUrl,
    spec: &Spec,
    progress: impl FnMut(Counts),
) -> Result<Counts, PopulateError> {
    let idle = (0..CLIENT_CONNECTIONS).map(|_| Connection::new(server.clone())).collect();
    let mut populating = Populating { idle, counts: Counts::default(), progress };
    // Namespaces come first, and are all there before anything else is sent.
    let namespaces = usize::try_from(spec.namespaces).unwrap_or(usize::MAX);
    populating.create_all(objects(spec).take(namespaces)).await?;
    populating.create_all(objects(spec).skip(namespaces)).await?;
    Ok(populating.counts)
}

struct Populating<P> {
    idle: Vec<Connection>,
    counts: Counts,
    progress: P,
}

/// What became of one object, and the connection that is free again.
type Done = (Connection, Result<bool, PopulateError>);

impl<P: FnMut(Counts)> Populating<P> {
    async fn create_all(&mut self, objects: impl Iterator<Item = Object>) -> Result<(), PopulateError> {
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

    fn settle(&mut self, (connection, created): Done) -> Result<(), PopulateError> {
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

async fn create(mut connection: Connection, object: Object) -> Done {
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
            Err(PopulateError { resource, key, source })
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
    let wanted = status(&object)?;
    if wanted.is_null() || status(&answer)? == wanted {
        return Ok(());
    }
    // A create leaves the status of most types to the subresource.
    let patch = json!({ "status": wanted }).to_string();
    connection.send(&Ask::merge(format!("{collection}/{name}/status"), patch)).await.map(|_| ())
}

/// The status of an object; null when there is none.
fn status(object: &[u8]) -> Result<Value, ClientError> {
    #[derive(Deserialize)]
    struct WithStatus {
        #[serde(default)]
        status: Value,
    }
    let read: Result<WithStatus, serde_json::Error> = serde_json::from_slice(object);
    read.map(|object| object.status).map_err(|_| ClientError::Unreadable)
}
