//! What is logged: each request and each session, and never a body.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use informer::InitialList;
use k8s_openapi::api::core::v1::Secret;
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use crate::fixture::{SOON, Step, in_memory, is_watch, item, list, ok, until};

/// Everything that is said, one line each, at every level.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Said {
    fn add(&self, head: &str, level: Level, record: impl FnOnce(&mut Line)) {
        let mut line = Line(format!("{head} {level}"));
        record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn lines(&self, part: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("informer")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.add(span.metadata().name(), *span.metadata().level(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        self.add("recorded", Level::TRACE, |line| values.record(line));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.add("event", *event.metadata().level(), |line| event.record(line));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Answers the complaint that nobody can see what a client asks for, and the one that whole bodies, Secrets among them,
/// are logged when one does not decode.
#[tokio::test(start_paused = true)]
async fn each_request_is_logged_once_and_no_body_ever() {
    let said = Said::default();
    let guard = tracing::subscriber::set_default(said.clone());
    // With one alone, tracing asks the subscriber of whichever thread comes first whether a line is of interest, and
    // other tests have none.
    let second = Dispatch::new(said.clone());
    let secret = |key: &str| item(key, 3).replace("\"node-1\"", "[\"hunter2\"]");
    let (cluster, log) = in_memory(move |number, uri| match number {
        1 => ok([Step::Send(list(&[secret("a/a"), secret("a/b"), r#"{"metadata":"hunter2"}"#.into()], 9, "next"))]),
        2 => ok([Step::Send(format!("{{\"hunter2\":{}", secret("a/c")))]),
        3 => ok([Step::Send(list(&[secret("a/c"), secret("a/d")], 9, ""))]),
        _ if is_watch(uri) && number == 4 => {
            ok([Step::Send("{\"type\":\"ERROR\",\"object\":{\"hunter2\":1}}\n".into())])
        }
        _ => ok([Step::Hang]),
    });
    let secrets = cluster.informer::<Secret>().initial_list(InitialList::Paged).start().unwrap();
    secrets.ready(SOON).await.unwrap();
    until("the watch", || log.uris().len() >= 5).await;
    for entry in secrets.store().snapshot().iter() {
        entry.decode().unwrap_err();
    }
    let requests: Vec<String> = said.lines("requesting");
    assert_eq!(requests.len(), log.uris().len(), "{requests:#?}");
    for (line, uri) in requests.iter().zip(log.uris()) {
        assert!(line.starts_with("event DEBUG") && line.ends_with(&format!("request=GET {uri}")), "{line}");
    }
    let sessions = said.lines("session ");
    assert_eq!(sessions.len(), requests.len());
    assert!(sessions[0].starts_with("session INFO resource=\"secrets\" request=GET /api/v1/secrets?"), "{sessions:?}");
    assert!(said.lines("hunter2").is_empty(), "{:#?}", said.lines("hunter2"));
    drop((guard, second));
}
