//! Readers that stop reading, and readers that leave.

use std::{sync::Arc, time::Duration};

use cache_server::storage::{FollowFrom, Update};
use futures::StreamExt as _;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use watch_cache::Limits;

use super::{
    super::{Breach, Held, Kind, ObjectWrite, Scene, follower::Follower, history::ObjectChange, scene::joined},
    WRITERS,
};

/// Goal: a reader that stops reading delays writes of its type at most, until it leaves or reads on; it gets everything
/// then. Method: streams that are not read, more writes than a queue holds, and writes of another type meanwhile.
pub(crate) async fn a_reader_that_stops_holds_up_no_other_type(scene: Arc<Scene>) -> Held {
    let kind = Kind::Maps;
    for (prefix, leaves) in [("l", true), ("r", false)] {
        let source = scene.source();
        let mut stalled = Follower::open(&scene, &*source, kind).await?;
        stalled.reach(0).await?;
        let crowd = flood(&scene, prefix);
        for number in 0..OTHER_WRITES {
            scene.write(Kind::Secrets, "other", Some(number)).await.map_err(|breach| breach.at("another type"))?;
            // The queue of the stalled reader fills meanwhile.
            sleep(OTHER_WRITE_EVERY).await;
        }
        if leaves {
            drop(stalled);
            joined(crowd).await?;
        } else {
            let mut crowd = crowd;
            loop {
                tokio::select! {
                    ended = crowd.join_next() => match ended {
                        Some(ended) => ended.map_err(|error| Breach(error.to_string()))??,
                        None => break,
                    },
                    stepped = stalled.step() => stepped?,
                }
            }
            stalled.reach(scene.history.newest(kind)).await?;
            stalled.check(&scene.history)?;
        }
    }
    let mut streams = scene.follow(kind).await?;
    streams.reach(scene.history.newest(kind)).await?;
    streams.check(&scene.history)
}

/// Goal: a stream that was dropped keeps no object alive and delays no write. Method: streams dropped before, in and after
/// their state; then more writes than a queue holds, and weak references to versions that were replaced.
pub(crate) async fn dropped_streams_leave_nothing_behind(scene: Arc<Scene>) -> Held {
    let (kind, store) = (Kind::Maps, scene.store());
    for number in 0..STATE_UPDATES - 2 {
        scene.write(kind, &format!("o{number}"), Some(0)).await?;
    }
    for number in 0..DROPPED_STREAMS {
        let (_, _, cache) = watch_cache::cache(Arc::clone(&kind.ty().schema), Limits::default());
        let opening = timeout(scene.features.patience, store.follow(&kind.ty(), FollowFrom::Start, cache));
        let updates = opening.await.map_err(|_| Breach("no stream in time".to_owned()))??;
        // A whole state is one update in place of those.
        let is_part = |update: &Result<_, _>| std::future::ready(!matches!(update, Ok(Update::State { .. })));
        let read = updates.take(number % STATE_UPDATES).take_while(is_part).for_each(|_| std::future::ready(()));
        timeout(scene.features.patience, read).await.map_err(|_| Breach("no state in time".to_owned()))?;
    }
    joined(flood(&scene, "d")).await?;
    let mut replaced = Vec::new();
    for number in 0..REPLACED {
        let (name, content) = ("replaced", Some(number));
        let expect = scene.expectation(kind, name);
        let write = ObjectWrite { kind, namespace: scene.namespace.clone(), name: name.to_owned(), expect, content };
        let written = timeout(scene.features.patience, store.write(write.txn())).await;
        let written = written.map_err(|_| Breach("a dropped stream delays writes".to_owned()))??;
        let change = ObjectChange { revision: written.resource_version, name: name.to_owned(), content };
        scene.history.record(kind, change)?;
        replaced.push(Arc::downgrade(&written.entry));
    }
    let alive = || replaced.iter().filter(|entry| entry.upgrade().is_some()).count();
    let freed = timeout(scene.features.patience, async {
        // A thread of the storage may hold the last one until it has written it.
        while 1 < alive() {
            sleep(FREED_CHECK).await;
        }
    });
    freed.await.map_err(|_| Breach(format!("{} versions of one object are alive", alive())))
}

/// More writes than a queue holds, by many clients.
fn flood(scene: &Arc<Scene>, prefix: &'static str) -> JoinSet<Held> {
    let mut crowd = JoinSet::new();
    for writer in 0..WRITERS {
        let scene = Arc::clone(scene);
        crowd.spawn(async move {
            let writes = scene.features.flood / WRITERS as u64;
            for number in 0..writes {
                scene.write(Kind::Maps, &format!("{prefix}{writer}"), Some(number)).await?;
            }
            Ok(())
        });
    }
    crowd
}

const OTHER_WRITES: u64 = 10;
const OTHER_WRITE_EVERY: Duration = Duration::from_millis(20);

const DROPPED_STREAMS: usize = 100;

/// Updates of the state: its objects, its begin and its end.
const STATE_UPDATES: usize = 22;

const REPLACED: u64 = 10;

const FREED_CHECK: Duration = Duration::from_millis(10);
