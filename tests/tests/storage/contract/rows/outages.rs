//! Processes that end, and storages that are away for a while.

use std::{sync::Arc, time::Duration};

use cache_server::storage::{Expect, SourceError, WriteError};
use tokio::time::timeout;

use super::super::{
    Breach, Held, Kind, Lasting, Scene, ensure,
    follower::{Follower, Progressed},
    history::ObjectChange,
};

const KIND: Kind = Kind::Maps;

/// Goal: the next process has all acknowledged writes, gives no revision twice, and continues streams or refuses their
/// positions; a storage that does not last accepts no position of before. Method: a storage is closed and opened again
/// under a cache, twice.
pub(crate) async fn a_new_process_has_what_lasts_and_refuses_the_rest(scene: Arc<Scene>) -> Held {
    for round in 0..2 {
        for number in 0..10 {
            scene.write(KIND, &format!("o{}", number % 4), (number % 5 != 4).then_some(number)).await?;
        }
        let first = scene.history.changes(KIND).first().map_or(0, |change| change.revision);
        let source = scene.source();
        let mut before = Follower::open(&scene, &*source, KIND).await?;
        before.reach(scene.history.newest(KIND)).await?;
        before.check(&scene.history)?;
        let position = before.position();
        drop(source);
        before.close();
        scene.reopen().await;
        let source = scene.source();
        let resumed = before.resume(&*source).await?;
        if scene.features.lasts == Lasting::Nothing {
            ensure!(resumed.is_err(), "{position} of an earlier process is accepted by another history");
            let mut after = Follower::open(&scene, &*source, KIND).await?;
            after.reach(0).await?;
            ensure!(after.state().is_empty(), "another history has objects of before");
            ensure!(position < after.begun(), "{} may have been given out before {position}", after.begun());
            return Ok(());
        }
        let mut after = Follower::open(&scene, &*source, KIND).await?;
        after.reach(scene.history.newest(KIND)).await?;
        after.check(&scene.history)?;
        if scene.features.lasts == Lasting::ObjectsAndHistory && round == 0 {
            ensure!(after.begun() < first, "the history begins at {}, not before {first}", after.begun());
        }
        let written = scene.write(KIND, "new", Some(round)).await?;
        ensure!(position < written, "{written} is not above {position}, which was given out before");
        match resumed {
            Ok(()) => {
                before.reach(written).await?;
                before.check(&scene.history)?;
            }
            Err(SourceError::Compacted { .. }) => ensure!(!scene.features.resumes, "{position} was lost"),
            Err(other) => return Err(other.into()),
        }
        after.reach(written).await?;
        after.check(&scene.history)?;
    }
    Ok(())
}

/// Goal: while a storage is away, questions fail or cover all writes, and writes have no outcome that is wrong; afterwards
/// streams go on with each change once. Method: the storage is parted from the cache and its writer, twice, while another
/// client writes.
pub(crate) async fn an_outage_loses_and_repeats_nothing(scene: Arc<Scene>) -> Held {
    if !scene.features.parts {
        return Ok(());
    }
    let source = scene.source();
    let mut follower = Follower::open(&scene, &*source, KIND).await?;
    follower.reach(0).await?;
    let behind = scene.writers() - 1;
    for round in 0..2 {
        scene.write(KIND, "before", Some(round)).await?;
        follower.reach(scene.history.newest(KIND)).await?;
        scene.part(true);
        let undecided = away(&scene, behind, round).await?;
        let newest = scene.history.newest(KIND);
        // The reader notices, or a storage that hides it has its changes later.
        let noticing = async {
            while follower.troubles == 0 {
                if follower.next().await? == Progressed::Ended {
                    break;
                }
            }
            Ok::<_, Breach>(())
        };
        if let Ok(noticed) = timeout(NOTICED_WITHIN, noticing).await {
            noticed?;
        }
        follower.troubles = 0;
        let asked = timeout(scene.features.patience, async {
            tokio::select! {
                answer = source.current(&KIND.ty()) => Ok(answer),
                breach = follower.read_on() => Err(breach),
            }
        });
        if let Ok(answer) = asked.await
            && let Ok(current) = answer?
        {
            ensure!(newest <= current, "the current revision is {current} after a write at {newest}");
        }
        scene.part(false);
        scene.write_by(behind, KIND, "after", scene.expectation(KIND, "after"), Some(round)).await?.map_or_else(
            |error| Err(error.into()),
            |revision| {
                let change = ObjectChange { revision, name: "after".to_owned(), content: Some(round) };
                scene.history.record(KIND, change)
            },
        )?;
        follower.reach_through_faults(&*source, scene.history.newest(KIND)).await?;
        for name in undecided {
            let shown = follower.state().get(&name);
            if let Some(version) = shown {
                let change = ObjectChange { revision: version.revision, name, content: Some(version.content) };
                scene.history.record(KIND, change)?;
            }
        }
        follower.check(&scene.history)?;
    }
    Ok(())
}

/// Writes while the storage is away. Returns the names of objects that may have been created.
async fn away(scene: &Scene, behind: usize, round: u64) -> Result<Vec<String>, Breach> {
    let mut undecided = Vec::new();
    for number in 0..AWAY_WRITES {
        let name = format!("behind-{number}");
        let content = (number % 2 == round).then_some(number);
        let expect = scene.expectation(KIND, &name);
        if content.is_some() || expect != Expect::Absent {
            let revision = scene.write_by(behind, KIND, &name, expect, content).await??;
            scene.history.record(KIND, ObjectChange { revision, name, content })?;
        }
        if behind == 0 {
            continue;
        }
        let name = format!("away-{round}-{number}");
        match scene.write_by(0, KIND, &name, Expect::Absent, Some(number)).await {
            Ok(Ok(revision)) => scene.history.record(KIND, ObjectChange { revision, name, content: Some(number) })?,
            Ok(Err(WriteError::Source(SourceError::Undecided(_)))) => undecided.push(name),
            // It was not done, and that is what a client is told.
            Ok(Err(_)) => {}
            Err(no_outcome) => return Err(no_outcome),
        }
    }
    Ok(undecided)
}

const AWAY_WRITES: u64 = 4;

const NOTICED_WITHIN: Duration = Duration::from_secs(2);
