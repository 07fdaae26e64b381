//! Questions about the newest state of a type: its revision, and whether the stream is complete there.

use std::{cmp, time::Duration};

use futures::StreamExt as _;
use informer::raw::{Builder, Event, Events};
use informer_core::{ListSemantic, Objects, Read, Request, Resource};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use watch_cache::Entry;

use super::followed::{FollowedType, no_number};
use crate::{registry::ResourceType, storage::SourceError};

/// The part of a list that is read.
#[derive(Deserialize)]
struct ListHead {
    metadata: ListMetadata,
    /// Null for a custom resource without objects.
    items: Option<Vec<ListedObject>>,
}

#[derive(Deserialize)]
struct ListedObject {
    metadata: ListedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedMetadata {
    name: String,
    #[serde(default)]
    namespace: String,
    uid: String,
    resource_version: String,
}

/// A list without bodies.
pub(super) struct ListedVersions {
    /// The newest revision of the cluster.
    pub(super) revision: u64,
    /// `None` if the list was cut.
    objects: Option<Vec<ListedMetadata>>,
}

impl ListedVersions {
    /// True if the list has exactly these objects in these versions.
    pub(super) fn is_state(&self, objects: &Objects<Entry>) -> bool {
        let Some(listed) = &self.objects else { return false };
        let is_cached = |object: &ListedMetadata| {
            let ListedMetadata { name, namespace, uid, resource_version } = object;
            let key = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
            let cached = objects.get(&key);
            cached
                .is_some_and(|cached| cached.uid() == uid && resource_version.parse() == Ok(cached.resource_version()))
        };
        listed.len() == objects.len() && listed.iter().all(is_cached)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

/// Lists the type's objects without their bodies, at most `limit`, as they are now.
pub(super) async fn list(
    clients: &[kube::Client],
    ty: &ResourceType,
    scope: Option<&str>,
    limit: usize,
) -> Result<ListedVersions, SourceError> {
    let root = if ty.group.is_empty() { "/api" } else { "/apis" };
    let resource = Resource {
        group_version_path: format!("{root}/{}", ty.api_version()),
        plural: ty.plural.clone(),
        namespace: None,
        labels: String::new(),
        fields: scope.unwrap_or_default().to_owned(),
    };
    let read = Read::List { semantic: ListSemantic::MostRecent, limit: u32::try_from(limit).ok() };
    let uri = Request::new(&resource, &read).uri();
    let list = timeout(PROBE_WAIT, answered(clients, &uri)).await;
    let list = list.map_err(|_| SourceError::Unavailable("no answer in time".to_owned()))??;
    let revision = list.metadata.resource_version.parse().map_err(|_| no_number())?;
    let objects = list.items.into_iter().flatten().map(|object| object.metadata).collect();
    Ok(ListedVersions { revision, objects: list.metadata.next.is_empty().then_some(objects) })
}

/// Sends a list to the first address that can be reached. Only a 404 is tried again, because a type that was just defined
/// is not served at once: an API server that is overloaded must not be asked again for each read.
async fn answered(clients: &[kube::Client], uri: &str) -> Result<ListHead, SourceError> {
    loop {
        let mut last = None;
        for client in clients {
            let request = http::Request::get(uri).header(http::header::ACCEPT, ONLY_METADATA).body(Vec::new());
            let request = request.map_err(|error| SourceError::Unavailable(error.to_string()))?;
            // Decoded here: kube would log a body that it cannot decode.
            match client.request_text(request).await {
                Ok(text) => return serde_json::from_str(&text).map_err(|error| unreadable(&error)),
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(kube::Error::Api(status)) if status.code == 404 => sleep(MISSING_PAUSE).await,
            Some(kube::Error::Api(status)) if [401, 403].contains(&status.code) => {
                return Err(SourceError::Forbidden(status.message));
            }
            Some(error) => return Err(SourceError::Unavailable(error.to_string())),
            None => return Err(SourceError::Unavailable("no address".to_owned())),
        }
    }
}

fn unreadable(error: &serde_json::Error) -> SourceError {
    SourceError::Unavailable(format!("unreadable list at line {} column {}", error.line(), error.column()))
}

/// Opens a second watch from the stream's position until a bookmark at or above `newest`, and adds what that proves.
/// Returns early if the stream gets there by itself, and false if the watch ends without such a bookmark.
pub(super) async fn prove(raw: Builder, followed: &FollowedType, newest: u64) -> Result<bool, SourceError> {
    let position = followed.position();
    if newest <= position {
        return Ok(true);
    }
    if position == 0 {
        return Err(SourceError::Unavailable("no state yet".to_owned()));
    }
    let raw = raw.resume_from(position.into()).config(|config| {
        config.watch_timeout_seconds = WATCH_SECONDS..=WATCH_SECONDS;
        config.headers_timeout = PROBE_WAIT;
    });
    let events = raw.start().map_err(|error| SourceError::Unsupported(error.to_string()))?;
    Ok(tokio::select! {
        () = followed.passed(newest) => true,
        is_told = second_watch(events, followed, newest) => is_told,
    })
}

/// Returns false if the watch is accepted and does not tell a position that high in time. Otherwise the position was
/// proved or will be passed, or the stream will find out itself why not.
async fn second_watch(mut events: Events, followed: &FollowedType, newest: u64) -> bool {
    let deadline = Instant::now() + PROBE_WAIT;
    let (mut newest_change, mut is_accepted) = (followed.position(), false);
    while let Ok(Some(event)) = timeout_at(deadline, events.next()).await {
        is_accepted = true;
        match event {
            Ok(Event::Apply(object) | Event::Delete(object)) => {
                let Ok(revision) = object.resource_version().parse() else { return true };
                newest_change = cmp::max(newest_change, revision);
                if newest <= revision {
                    // The stream will get this change as well.
                    return true;
                }
            }
            Ok(Event::Bookmark(bookmark)) => {
                if let Some(complete) = bookmark.as_u64().filter(|&complete| newest <= complete) {
                    followed.prove(newest_change, complete);
                    return true;
                }
            }
            // The position is lost, or the server is away.
            Ok(Event::Init | Event::InitApply(_) | Event::InitDone(_) | Event::InitAbandoned) | Err(_) => return true,
        }
    }
    !is_accepted
}

/// kube-apiserver sends a bookmark two seconds before the end of a watch: the shortest time with one.
const WATCH_SECONDS: u32 = 3;

/// Longest wait for the answer to a probe. Reads wait as long.
const PROBE_WAIT: Duration = Duration::from_secs(3);

/// Pause before a list of a type that is not served yet is sent again.
const MISSING_PAUSE: Duration = Duration::from_millis(200);

const ONLY_METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
