//! Questions about the newest revision, and the streams that get there.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::super::{Held, Kind, Scene, ensure};

/// Goal: the current revision covers each acknowledged write, and every stream of a type gets there, although no object of
/// the type changes. Method: writes of another type, and one question for all streams of a source.
pub(crate) async fn progress_reaches_the_current_revision(scene: Arc<Scene>) -> Held {
    scene.write(Kind::Maps, "quiet", Some(0)).await?;
    let mut streams = scene.follow(Kind::Maps).await?;
    streams.reach(scene.history.newest(Kind::Maps)).await?;
    let source = Arc::clone(&streams.source);
    let mut last = 0;
    for number in 0..QUESTIONS {
        let written = scene.write(Kind::Secrets, "busy", Some(number)).await?;
        let current = streams.ask(source.current(&Kind::Maps.ty())).await??;
        ensure!(written <= current, "the current revision is {current} after a write at {written}");
        ensure!(last <= current, "the current revision is {current}, and was {last}");
        last = current;
        streams.reach(current).await?;
    }
    streams.check(&scene.history)
}

/// Goal: at a confirmed revision a stream has everything that was acknowledged before the question. Method: creations,
/// changes, deletions and writes of another type, each followed by a question; streams are read up to the answer.
pub(crate) async fn a_confirmed_revision_covers_acknowledged_writes(scene: Arc<Scene>) -> Held {
    let kind = Kind::Maps;
    let mut streams = scene.follow(kind).await?;
    streams.reach(0).await?;
    let source = Arc::clone(&streams.source);
    for number in 0..CONFIRMATIONS {
        let (of, name) = match number % 5 {
            4 => (Kind::Secrets, "other".to_owned()),
            _ => (kind, format!("o{}", number / 5)),
        };
        let deletes = number % 5 == 3;
        scene.write(of, &name, (!deletes).then_some(number)).await?;
        let sent = Instant::now();
        let confirmed = if number % 2 == 0 {
            streams.ask(source.confirmed(&kind.ty())).await??
        } else {
            let answer = streams.ask(source.recently_confirmed(&kind.ty(), Duration::ZERO)).await??;
            ensure!(sent <= answer.sent, "an answer to an earlier question");
            answer.revision
        };
        streams.reach(confirmed).await?;
        let expected = scene.history.state_at(kind, u64::MAX);
        for follower in &streams.followers {
            let at = follower.position();
            ensure!(*follower.state() == expected, "the state confirmed at {confirmed} lacks a write, at {at}");
        }
    }
    streams.check(&scene.history)
}

const QUESTIONS: u64 = 5;

const CONFIRMATIONS: u64 = 15;
