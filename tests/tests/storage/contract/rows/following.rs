//! States, changes and positions of streams.

use std::sync::Arc;

use cache_server::storage::SourceError;
use futures::future::try_join_all;
use tokio::time::timeout;

use super::{
    super::{
        Breach, Held, Kind, Scene, ensure,
        follower::{Follower, Progressed},
        scene::joined,
    },
    WRITERS, WRITES,
};

/// Goal: streams yield each change once, in the order of the writes, also streams that were opened between them. Method:
/// one client at a time creates, changes and deletes a few objects of two types.
pub(crate) async fn changes_arrive_in_commit_order(scene: Arc<Scene>) -> Held {
    let mut streams = Vec::new();
    let mut rng = fastrand::Rng::with_seed(14);
    for number in 0..WRITES_IN_ORDER {
        if number % STREAM_EVERY == 0 {
            for kind in Kind::ALL {
                streams.push((kind, scene.follow(kind).await?));
            }
        }
        let (kind, name) = (Kind::ALL[rng.usize(0..2)], format!("o{}", rng.u8(0..5)));
        let deletes = scene.history.current(kind, &name).is_some() && rng.u8(0..3) == 0;
        scene.write(kind, &name, (!deletes).then_some(number)).await?;
    }
    for (kind, streams) in &mut streams {
        streams.reach(scene.history.newest(*kind)).await?;
        streams.check(&scene.history)?;
    }
    Ok(())
}

/// Goal: a state is complete at its revision, however many writes come in meanwhile; no revision has two meanings. Method:
/// 64 clients write objects of two types, while streams are opened, each of which is compared with all writes.
pub(crate) async fn a_state_under_writes_is_the_one_of_its_revision(scene: Arc<Scene>) -> Held {
    let mut streams = Vec::new();
    for prefix in CROWDS {
        let crowd = scene.crowd(prefix, WRITERS, WRITES);
        for kind in Kind::ALL {
            let mut opened = scene.follow(kind).await?;
            opened.reach(0).await?;
            streams.push((kind, opened));
        }
        joined(crowd).await?;
        for (kind, streams) in &mut streams {
            streams.reach(scene.history.newest(*kind)).await?;
        }
    }
    streams.iter().try_for_each(|(_, streams)| streams.check(&scene.history))
}

/// Goal: a cache resumes where it was and gets each later change once; a storage without history refuses the position,
/// and the cache lists again. Method: a stream is opened again after each of its positions.
pub(crate) async fn a_stream_resumes_without_gap_or_repeat(scene: Arc<Scene>) -> Held {
    let kind = Kind::Maps;
    scene.write(kind, "first", Some(0)).await?;
    let source = scene.source();
    let mut follower = Follower::open(&scene, &*source, kind).await?;
    follower.reach(scene.history.newest(kind)).await?;
    for number in 0..RESUMES {
        // Some of them are pending when the stream is opened, some come after that.
        let name = format!("o{}", number % 3);
        scene.write(kind, &name, Some(number)).await?;
        scene.write(Kind::Secrets, "other", Some(number)).await?;
        scene.write(kind, &name, (number % 2 == 0).then_some(number + 1)).await?;
        match follower.resume(&*source).await? {
            Ok(()) => ensure!(scene.features.resumes, "a storage without history accepts a position"),
            Err(SourceError::Compacted { after }) => {
                ensure!(!scene.features.resumes, "{after} is not available, and nothing was compacted");
                ensure!(after == follower.position(), "{after} was not requested");
                follower = Follower::open(&scene, &*source, kind).await?;
            }
            Err(other) => return Err(other.into()),
        }
        scene.write(kind, "last", Some(number)).await?;
        follower.reach(scene.history.newest(kind)).await?;
        follower.check(&scene.history)?;
    }
    Ok(())
}

/// Goal: a position that this history never reached is refused, or leads to a state; it never leads to silence. Method:
/// positions far ahead, and a write that the reader must get.
pub(crate) async fn an_unknown_position_is_refused(scene: Arc<Scene>) -> Held {
    let kind = Kind::Maps;
    scene.write(kind, "first", Some(0)).await?;
    let newest = scene.history.newest(kind);
    try_join_all([1_000, 1 << 40].map(|ahead| refused(&scene, newest, ahead))).await.map(drop)
}

/// Asserts that a position is refused that is ahead of the newest revision.
async fn refused(scene: &Scene, newest: u64, ahead: u64) -> Held {
    let source = scene.source();
    let mut follower = Follower::open(scene, &*source, Kind::Maps).await?;
    follower.reach(newest).await?;
    match follower.resume_at(&*source, newest + ahead).await? {
        Err(SourceError::Compacted { .. }) => return Ok(()),
        Err(other) => return Err(other.into()),
        Ok(()) => {}
    }
    // The stream then lists before it shows anything else.
    let reading = async {
        loop {
            match follower.next().await? {
                Progressed::Ended | Progressed::Lost => return Ok::<_, Breach>(true),
                Progressed::Troubled => {}
                Progressed::Updated => return Ok(follower.is_listing()),
            }
        }
    };
    let refused = timeout(scene.features.patience, reading).await;
    ensure!(matches!(refused, Ok(Ok(true))), "a position {ahead} ahead is accepted: {refused:?}");
    Ok(())
}

const WRITES_IN_ORDER: u64 = 48;

/// Writes between two streams.
const STREAM_EVERY: u64 = 16;

/// Prefixes of the names that each crowd of writers uses.
const CROWDS: [&str; 3] = ["a", "b", "c"];

const RESUMES: u64 = 6;
