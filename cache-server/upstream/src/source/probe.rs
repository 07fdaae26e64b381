//! Questions about the newest state of a type: its revision, and whether the stream is complete there.

use std::{cmp, time::Duration};

use bytes::Bytes;
use futures::StreamExt as _;
use http::StatusCode;
use http_body_util::{BodyExt as _, Limited};
use informer::raw::{Builder, Event, Events};
use informer_core::{ListSemantic, Objects, Read, Request, Resource, text::Chain};
use informer_serving::status::Status;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use watch_cache::Entry;

use super::followed::{FollowedType, no_number};
use crate::{limits::MESSAGE_BYTES_MAX, registry::ResourceType, storage::SourceError};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

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

/// A list without bodies, or a page of one.
pub(super) struct ListedVersions {
    /// The newest revision of the cluster; that of the first page for later ones.
    pub(super) revision: u64,
    objects: Vec<ListedMetadata>,
    /// Token of the next page; empty if there is none.
    next: String,
}

impl ListedVersions {
    /// True if the list has exactly these objects in these versions.
    pub(super) fn is_state(&self, objects: &Objects<Entry>) -> bool {
        self.next.is_empty() && self.count_in(objects) == Some(objects.len())
    }

    /// Returns the number of listed objects; `None` if one of them is not among `objects` in its version.
    pub(super) fn count_in(&self, objects: &Objects<Entry>) -> Option<usize> {
        let is_cached = |object: &ListedMetadata| {
            let ListedMetadata { name, namespace, uid, resource_version } = object;
            let key = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
            let cached = objects.get(&key);
            cached
                .is_some_and(|cached| cached.uid() == uid && resource_version.parse() == Ok(cached.resource_version()))
        };
        self.objects.iter().all(is_cached).then_some(self.objects.len())
    }

    /// Returns the token of the next page.
    pub(super) fn next_page(&self) -> Option<&str> {
        Some(&*self.next).filter(|token| !token.is_empty())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

/// Lists the type's objects without their bodies, at most `limit`: as they are now, or the page after `token`.
pub(super) async fn list(
    clients: &[kube::Client],
    ty: &ResourceType,
    scope: Option<&str>,
    limit: usize,
    token: Option<&str>,
) -> Result<ListedVersions, SourceError> {
    let resource = resource_of(ty, None, scope.unwrap_or_default());
    let limit_sent = u32::try_from(limit).ok();
    let read = match token {
        None => Read::List { semantic: ListSemantic::MostRecent, limit: limit_sent },
        Some(token) => Read::Page { limit: limit_sent.unwrap_or(u32::MAX), token: token.to_owned() },
    };
    read_list(clients, &Request::new(&resource, &read), limit).await
}

/// Lists an object that need not exist, for the revision. By name, because kube-apiserver reads limited lists from etcd up
/// to 1.30, and finds the first page among all objects later.
pub(super) async fn list_none(clients: &[kube::Client], ty: &ResourceType) -> Result<ListedVersions, SourceError> {
    let namespace = ty.namespaced.then_some("default");
    let resource = resource_of(ty, namespace, "metadata.name=none");
    let read = Read::List { semantic: ListSemantic::MostRecent, limit: None };
    read_list(clients, &Request::new(&resource, &read), 1).await
}

fn resource_of(ty: &ResourceType, namespace: Option<&str>, fields: &str) -> Resource {
    let root = if ty.group.is_empty() { "/api" } else { "/apis" };
    Resource {
        group_version_path: format!("{root}/{}", ty.api_version()),
        plural: ty.plural.clone(),
        namespace: namespace.map(str::to_owned),
        labels: String::new(),
        fields: fields.to_owned(),
        shard: None,
    }
}

/// Reads a list of at most `limit` objects, within [`PROBE_WAIT`].
async fn read_list(clients: &[kube::Client], request: &Request, limit: usize) -> Result<ListedVersions, SourceError> {
    let bytes_max = limit.saturating_mul(LISTED_OBJECT_BYTES_MAX).min(LISTED_BYTES_MAX);
    let list = timeout(PROBE_WAIT, answered(clients, &request.uri(), bytes_max)).await;
    let list = list.map_err(|_| SourceError::Unavailable(NOT_IN_TIME.to_owned()))??;
    let revision = list.metadata.resource_version.parse().map_err(|_| no_number())?;
    let objects = list.items.into_iter().flatten().map(|object| object.metadata).collect();
    Ok(ListedVersions { revision, objects, next: list.metadata.next })
}

/// Sends a list to the addresses in turn until one succeeds. Only a 404 is tried again, because a type that was just
/// defined is not served at once. Repeats of other errors would multiply the load of an overloaded API server.
async fn answered(clients: &[kube::Client], uri: &str, bytes_max: usize) -> Result<ListHead, SourceError> {
    loop {
        let mut last = (StatusCode::SERVICE_UNAVAILABLE, "no address".to_owned());
        for client in clients {
            last = match send(client, uri, bytes_max).await {
                Ok((code, body)) if code.is_success() => {
                    return serde_json::from_slice(&body).map_err(|error| unreadable(&error));
                }
                Ok((code, body)) => {
                    (code, Status::read(&body).map_or_else(|| code.to_string(), |status| status.message))
                }
                // Clients get this text.
                Err(error) => (StatusCode::SERVICE_UNAVAILABLE, Chain(&*error).to_string()),
            };
        }
        match last {
            (StatusCode::NOT_FOUND, _) => sleep(MISSING_PAUSE).await,
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, error) => return Err(SourceError::Forbidden(error)),
            (StatusCode::BAD_REQUEST, error) => return Err(SourceError::Unsupported(error)),
            // Only pages have a state that can be too old.
            (StatusCode::GONE, _) => return Err(SourceError::Compacted { after: 0 }),
            (_, error) => return Err(SourceError::Unavailable(error)),
        }
    }
}

/// Sends a request, and reads its whole answer. An error is longer than [`MESSAGE_BYTES_MAX`] only if it is none of the
/// API server's.
async fn send(client: &kube::Client, uri: &str, bytes_max: usize) -> Result<(StatusCode, Bytes), BoxError> {
    let request =
        http::Request::get(uri).header(http::header::ACCEPT, ONLY_METADATA).body(kube::client::Body::empty())?;
    // Not through kube's own decoding, which has no bound, and logs a body that it cannot decode.
    let response = client.send(request).await?;
    let code = response.status();
    let bytes_max = if code.is_success() { bytes_max } else { MESSAGE_BYTES_MAX };
    let body = Limited::new(response.into_body(), bytes_max).collect().await?;
    Ok((code, body.to_bytes()))
}

fn unreadable(error: &serde_json::Error) -> SourceError {
    SourceError::Unavailable(format!("unreadable list at line {} column {}", error.line(), error.column()))
}

/// Opens a second watch from the stream's position until a bookmark at or above `newest`, and adds what that proves.
/// Returns early if the stream gets there by itself, and false if the watch ends without such a bookmark.
pub(super) async fn prove(raw: Builder, followed: &FollowedType, newest: u64) -> Result<bool, SourceError> {
    let position = followed.state().position;
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
        has_position = second_watch(events, followed, newest) => has_position,
    })
}

/// Returns false if the watch is accepted and sends no position that high in time. Otherwise the position was proved, or
/// the stream will pass it or fail by itself.
async fn second_watch(mut events: Events, followed: &FollowedType, newest: u64) -> bool {
    let deadline = Instant::now() + PROBE_WAIT;
    let (mut newest_change, mut is_accepted) = (followed.state().position, false);
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
            Ok(Event::Init | Event::InitApply(_) | Event::InitDone(_) | Event::InitAbandoned | _) | Err(_) => {
                return true;
            }
        }
    }
    !is_accepted
}

/// kube-apiserver sends a bookmark two seconds before the end of a watch: the shortest time with one.
const WATCH_SECONDS: u32 = 3;

/// Longest wait for the answer to a probe. Reads wait as long.
pub(super) const PROBE_WAIT: Duration = Duration::from_secs(3);

/// Error of a probe without an answer within [`PROBE_WAIT`].
const NOT_IN_TIME: &str = "no answer in time";

/// Bytes of one object in a list: kube-apiserver accepts no larger one.
const LISTED_OBJECT_BYTES_MAX: usize = 3 << 20;

/// Bytes of one list. That of 10,000 objects has some 50 MiB, mostly managedFields. Memory: this much for each type whose
/// state is compared, once the API server or a proxy before it sends without end.
const LISTED_BYTES_MAX: usize = 256 << 20;

/// Pause before a list of a type that is not served yet is sent again.
const MISSING_PAUSE: Duration = Duration::from_millis(200);

const ONLY_METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
