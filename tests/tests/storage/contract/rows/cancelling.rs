//! Writes whose caller leaves.

use std::{future::poll_fn, sync::Arc, task::Poll};

use cache_server::storage::{Expect, Store, WriteError, WriteResult};
use futures::future::BoxFuture;
use tokio::time::timeout;

use super::super::{Breach, Held, Kind, ObjectWrite, Scene, Version, ensure, history::ObjectChange, scene::Streams};

const KIND: Kind = Kind::Maps;

/// Goal: a write whose caller leaves happened or not; if it did, every stream has it once; and nothing waits for it.
/// Method: creations, changes and deletions that are dropped after each number of polls, until they end by themselves; a
/// write of the same object after each, and a crowd of others meanwhile.
pub(crate) async fn a_cancelled_write_happens_once_or_never(scene: Arc<Scene>) -> Held {
    let store = scene.store();
    let mut streams = scene.follow(KIND).await?;
    for polls in 1..=POLLS_MAX {
        let mut crowd = scene.crowd(CROWDS[polls % CROWDS.len()], 4, 4);
        let mut completed = 0;
        for (operation, content) in [("created", Some(1)), ("changed", Some(2)), ("deleted", None)] {
            for repeat in 0..REPEATS {
                let name = format!("{operation}-{polls}-{repeat}");
                if operation != "created" {
                    scene.write(KIND, &name, Some(0)).await?;
                }
                completed += usize::from(cancelled(&scene, &*store, &mut streams, &name, content, polls).await?);
            }
        }
        while let Some(ended) = crowd.join_next().await {
            ended.map_err(|error| Breach(error.to_string()))??;
        }
        if completed == 3 * REPEATS {
            break;
        }
    }
    streams.reach(scene.history.newest(KIND)).await?;
    streams.check(&scene.history)
}

/// Drops a write after some polls, and finds out whether it happened. Returns true if it ended before.
async fn cancelled(
    scene: &Scene,
    store: &dyn Store,
    streams: &mut Streams,
    name: &str,
    content: Option<u64>,
    polls: usize,
) -> Result<bool, Breach> {
    let expect = scene.expectation(KIND, name);
    let write = ObjectWrite { kind: KIND, namespace: scene.namespace.clone(), name: name.to_owned(), expect, content };
    let polled = timeout(scene.features.patience, polled(store.write(write.txn()), polls)).await;
    let polled = polled.map_err(|_| Breach(format!("{name} has no outcome in time")))?;
    let completed = polled.is_some();
    if let Some(written) = polled {
        let revision = written?.resource_version;
        scene.history.record(KIND, ObjectChange { revision, name: name.to_owned(), content })?;
    }
    settle(scene, store, streams, name).await?;
    Ok(completed)
}

/// Polls a write some times, and drops it then.
async fn polled(
    mut write: BoxFuture<'_, Result<WriteResult, WriteError>>,
    most: usize,
) -> Option<Result<WriteResult, WriteError>> {
    let mut polls = 0;
    poll_fn(move |context| match write.as_mut().poll(context) {
        Poll::Ready(written) => Poll::Ready(Some(written)),
        Poll::Pending => {
            polls += 1;
            if polls < most { Poll::Pending } else { Poll::Ready(None) }
        }
    })
    .await
}

/// Writes the object once more. After that a dropped write of it has happened, or its expectation can hold no more.
async fn settle(scene: &Scene, store: &dyn Store, streams: &mut Streams, name: &str) -> Held {
    let known = scene.history.current(KIND, name);
    for _ in 0..SETTLES_MAX {
        let (_, state) = scene.list(store, KIND).await?;
        let found = state.get(name).copied();
        let expect = found.map_or(Expect::Absent, |version| Expect::At(version.revision));
        let content = Some(SETTLED);
        match scene.attempt(KIND, name, expect, content).await? {
            Ok(revision) => {
                // Read up to here, so that no later change hides how often a dropped one is there.
                streams.reach(revision).await?;
                if found != known {
                    let change = dropped_change(streams, name, found, known)?;
                    scene.history.record(KIND, change)?;
                }
                return scene.history.record(KIND, ObjectChange { revision, name: name.to_owned(), content });
            }
            // It happens right now.
            Err(WriteError::Exists | WriteError::NotFound | WriteError::Conflict { .. } | WriteError::CauseChanged) => {
            }
            Err(other @ WriteError::Source(_)) => return Err(other.into()),
        }
    }
    Err(Breach(format!("{name} changes all the time after its write was dropped")))
}

/// Returns the change that a dropped write made.
fn dropped_change(
    streams: &Streams,
    name: &str,
    found: Option<Version>,
    known: Option<Version>,
) -> Result<ObjectChange, Breach> {
    if let Some(Version { revision, content }) = found {
        return Ok(ObjectChange { revision, name: name.to_owned(), content: Some(content) });
    }
    // The list does not have the revision of a deletion.
    let after = known.map_or(0, |version| version.revision);
    let of = |change: &&ObjectChange| change.name == name && after < change.revision && change.content.is_none();
    let shown = streams.followers[0].changes().iter().find(of).cloned();
    ensure!(shown.is_some(), "{name} was deleted, and no stream has that");
    shown.ok_or_else(|| Breach(String::new()))
}

/// Polls after which a write has ended by itself.
const POLLS_MAX: usize = 24;

/// Writes of each kind for each number of polls.
const REPEATS: usize = 2;

/// Prefixes of the names that the crowds of other writers use in turn.
const CROWDS: [&str; 3] = ["x", "y", "z"];

const SETTLES_MAX: usize = 100;

/// Content of an object after its dropped write.
const SETTLED: u64 = 77;
