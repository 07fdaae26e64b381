//! Outcomes of writes, and lists.

use std::sync::Arc;

use cache_server::storage::{Expect, Txn, WriteCause, WriteError, WriteResult};
use futures::future::{join, join_all};
use tokio::time::timeout;

use super::{
    super::{Breach, Held, Kind, ObjectWrite, Scene, ensure, follower, history::ObjectChange, scene::joined},
    WRITERS, WRITES,
};

/// Goal: a write happens if its expectation holds, and else reports why not and leaves no trace. Method: each expectation
/// with each state of an object, by each client; then the stream, the list and the entries of the answers are compared.
pub(crate) async fn writes_have_the_outcomes_of_their_expectations(scene: Arc<Scene>) -> Held {
    let (kind, store) = (Kind::Maps, scene.store());
    let mut streams = scene.follow(kind).await?;
    for writer in 0..scene.writers() {
        let name = format!("o{writer}");
        let refused = async |expect, content| {
            let outcome = scene.write_by(writer, kind, &name, expect, content).await?;
            outcome.err().ok_or_else(|| Breach(format!("{expect:?} does not hold, and {content:?} is written")))
        };
        let missing = [(Expect::At(3), Some(1)), (Expect::At(3), None)];
        for (expect, content) in missing {
            let error = refused(expect, content).await?;
            ensure!(matches!(error, WriteError::NotFound), "{expect:?} of a missing object: {error:?}");
        }
        let first = scene.write(kind, &name, Some(1)).await?;
        let second = scene.write(kind, &name, Some(2)).await?;
        let error = refused(Expect::Absent, Some(3)).await?;
        ensure!(matches!(error, WriteError::Exists), "a creation of an object that exists: {error:?}");
        for (at, content) in [(first, Some(3)), (first, None), (second + 1, Some(3)), (second + 1, None)] {
            let error = refused(Expect::At(at), content).await?;
            let is_right = matches!(error, WriteError::Conflict { current } if current == second);
            ensure!(is_right, "a write of {at} in place of {second}: {error:?}");
        }
        scene.write(kind, &name, None).await?;
        let error = refused(Expect::At(second), Some(3)).await?;
        ensure!(matches!(error, WriteError::NotFound), "a write of a deleted object: {error:?}");
        scene.write(kind, &name, Some(4)).await?;
    }
    entries_are_those_of_the_writes(&scene).await?;
    let newest = scene.history.newest(kind);
    streams.reach(newest).await?;
    streams.check(&scene.history)?;
    let (revision, state) = scene.list(&*store, kind).await?;
    ensure!(newest <= revision, "a list at {revision} after a write at {newest}");
    scene.history.check_state(kind, revision, &state)
}

/// Asserts that the answers to writes hold the object as stored, or the last one for a deletion.
async fn entries_are_those_of_the_writes(scene: &Scene) -> Held {
    let (kind, store, name) = (Kind::Maps, scene.store(), "entry");
    let mut last = None;
    for content in [Some(1), Some(2), None] {
        let expect = scene.expectation(kind, name);
        let write = ObjectWrite { kind, namespace: scene.namespace.clone(), name: name.to_owned(), expect, content };
        let written = store.write(write.txn()).await?;
        let revision = written.resource_version;
        scene.history.record(kind, ObjectChange { revision, name: name.to_owned(), content })?;
        let found = follower::read(&written.entry, &scene.namespace)?.map(|(_, version)| version);
        let expected = scene.history.current(kind, name).or(last);
        ensure!(found == expected, "the answer to a write at {revision} holds {found:?}, not {expected:?}");
        last = found;
    }
    Ok(())
}

/// Goal: a write with a cause happens only if the cause is still at its version, also in one batch with a change of it.
/// Method: creates, updates and deletes with a cause that is missing, older or right; then deletions of many objects while
/// their cause changes.
pub(crate) async fn a_write_depends_on_its_cause(scene: Arc<Scene>) -> Held {
    let (kind, store) = (Kind::Maps, scene.store());
    let write = async |name: &str, content, at| {
        let expect = scene.expectation(kind, name);
        let write = ObjectWrite { kind, namespace: scene.namespace.clone(), name: name.to_owned(), expect, content };
        let cause = ObjectWrite { kind: Kind::Secrets, name: "cause".to_owned(), ..write.clone() }.txn();
        let cause = WriteCause { ty: cause.ty, key: cause.key, revision: at };
        let written = store.write(Txn { cause: Some(cause), ..write.txn() }).await;
        if let Ok(WriteResult { resource_version: revision, .. }) = written {
            scene.history.record(kind, ObjectChange { revision, name: name.to_owned(), content })?;
        }
        Ok::<_, Breach>(written.map(|written| written.resource_version))
    };
    let refused = async |name: &str, content, at| {
        let written = write(name, content, at).await?;
        let is_right = matches!(written, Err(WriteError::CauseChanged));
        ensure!(is_right, "a write of {name} though its cause is not at {at}: {written:?}");
        Ok(())
    };
    let mut streams = scene.follow(kind).await?;
    let kept = scene.write(kind, "kept", Some(0)).await?;
    refused("kept", None, kept).await?;
    let first = scene.write(Kind::Secrets, "cause", Some(0)).await?;
    let second = scene.write(Kind::Secrets, "cause", Some(1)).await?;
    for (name, content) in [("new", Some(1)), ("kept", Some(1)), ("kept", None)] {
        refused(name, content, first).await?;
        refused(name, content, second + 1).await?;
        write(name, content, second).await??;
    }
    for number in 0..WRITERS {
        scene.write(kind, &format!("o{number}"), Some(0)).await?;
    }
    let deletions = join_all((0..WRITERS).map(async |number| write(&format!("o{number}"), None, second).await));
    let (changed, deletions) = join(scene.write(Kind::Secrets, "cause", Some(2)), deletions).await;
    let changed = changed?;
    for deletion in deletions {
        match deletion? {
            Ok(revision) => ensure!(revision < changed, "deleted at {revision}, its cause changed at {changed}"),
            Err(WriteError::CauseChanged) => {}
            Err(other) => return Err(other.into()),
        }
    }
    streams.reach(scene.history.newest(kind)).await?;
    streams.check(&scene.history)?;
    let (revision, state) = scene.list(&*store, kind).await?;
    scene.history.check_state(kind, revision, &state)
}

/// Goal: of many writes with the same expectation one is done, also if they are in one batch. Method: clients create,
/// change and delete one object at the same time.
pub(crate) async fn one_of_many_equal_writes_is_done(scene: Arc<Scene>) -> Held {
    let kind = Kind::Maps;
    let mut streams = scene.follow(kind).await?;
    for (name, content) in [("a", Some(0)), ("a", Some(1)), ("b", Some(0)), ("a", None), ("b", None), ("a", Some(2))] {
        let expect = scene.expectation(kind, name);
        // Equal but for the content, so that the one that was done is known.
        let contents: Vec<_> =
            (0..WRITERS as u64).map(|writer| content.map(|content| content * 1_000 + writer)).collect();
        let racing = contents.iter().map(|content| scene.attempt(kind, name, expect, *content));
        let mut done = Vec::new();
        for (outcome, content) in join_all(racing).await.into_iter().zip(&contents) {
            match outcome? {
                Ok(revision) => done.push(ObjectChange { revision, name: name.to_owned(), content: *content }),
                Err(
                    WriteError::Exists | WriteError::NotFound | WriteError::Conflict { .. } | WriteError::CauseChanged,
                ) => {}
                Err(other @ WriteError::Source(_)) => return Err(other.into()),
            }
        }
        ensure!(done.len() == 1, "{} of {WRITERS} writes of {name} that expect {expect:?} are done", done.len());
        done.into_iter().try_for_each(|change| scene.history.record(kind, change))?;
    }
    streams.reach(scene.history.newest(kind)).await?;
    streams.check(&scene.history)
}

/// Goal: a list is the state at its revision, however many writes come in meanwhile, and has all that was acknowledged
/// before it. Method: lists while 64 clients write; each is compared with all writes.
pub(crate) async fn a_list_under_writes_is_the_state_of_its_revision(scene: Arc<Scene>) -> Held {
    let (kind, store) = (Kind::Maps, scene.store());
    let mut lists = Vec::new();
    let mut crowd = scene.crowd("w", WRITERS, WRITES);
    while !crowd.is_empty() {
        let acknowledged = scene.history.newest(kind);
        let (revision, state) = scene.list(&*store, kind).await?;
        ensure!(acknowledged <= revision, "a list at {revision} after a write at {acknowledged}");
        lists.push((revision, state));
        // Writes of this thread come between two lists.
        if let Ok(Some(ended)) = timeout(LIST_EVERY, crowd.join_next()).await {
            ended.map_err(|error| Breach(error.to_string()))??;
        }
    }
    joined(crowd).await?;
    lists.push(scene.list(&*store, kind).await?);
    lists.iter().try_for_each(|(revision, state)| scene.history.check_state(kind, *revision, state))
}

const LIST_EVERY: std::time::Duration = std::time::Duration::from_millis(5);
