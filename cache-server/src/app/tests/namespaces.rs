//! Namespaces terminate regardless of who marked them and of storage failures. The tests of the server cover what
//! clients see of it.

use std::{sync::Arc, time::Duration};

use futures::TryStreamExt as _;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use watch_cache::Draft;

use crate::{
    app::App,
    config::Config,
    registry::ResourceType,
    storage::{
        Expect, Store, Txn,
        faulty::{Fault, Faulty, Verb},
    },
};

/// Pause between two looks at the storage.
const PAUSE: Duration = Duration::from_millis(200);

async fn put(storage: &dyn Store, ty: &Arc<ResourceType>, object: &Value, expect: Expect) -> u64 {
    let draft = Draft::new(&ty.schema, object.to_string().as_bytes()).expect("an object");
    let txn = Txn { ty: Arc::clone(ty), key: draft.key().to_owned(), expect, put: Some(draft), cause: None };
    storage.write(txn).await.expect("is written").resource_version
}

async fn names(storage: &dyn Store, ty: &Arc<ResourceType>) -> Vec<String> {
    let entries: Vec<_> = storage.list(ty).await.expect("a list").entries.try_collect().await.expect("objects");
    entries.iter().map(|entry| entry.name().to_owned()).collect()
}

fn namespace(name: &str, is_marked: bool) -> Value {
    let mut object = json!({"metadata": {"name": name, "uid": name}});
    if is_marked {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    object
}

fn object(name: &str, uid: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "uid": uid}})
}

/// A server over a storage with the marked namespace `n`, which has a ConfigMap, and an unmarked namespace.
async fn world(rule: impl Fn(usize, Verb, &str) -> Fault + Send + 'static) -> (App, Arc<Faulty>) {
    let storage = Faulty::new(rule);
    let app = App::with_storage(Config::default(), Arc::clone(&storage) as Arc<dyn Store>);
    let [namespaces, configmaps] = types(&app, ["namespaces", "configmaps"]);
    put(&storage.inner, &configmaps, &object("a", "a"), Expect::Absent).await;
    put(&storage.inner, &namespaces, &namespace("n", true), Expect::Absent).await;
    put(&storage.inner, &namespaces, &namespace("stays", false), Expect::Absent).await;
    (app, storage)
}

fn types<const N: usize>(app: &App, ids: [&str; N]) -> [Arc<ResourceType>; N] {
    ids.map(|id| app.registry.now().by_id(id).expect("a type"))
}

async fn ended(app: &App, storage: &Faulty) {
    let [namespaces] = types(app, ["namespaces"]);
    let ended = async {
        while names(&storage.inner, &namespaces).await.len() > 1 {
            app.local().expect("writes are local").namespaces.settle().await;
            sleep(PAUSE).await;
        }
    };
    timeout(Duration::from_secs(60), ended).await.expect("the namespace ends");
    assert_eq!(names(&storage.inner, &namespaces).await, ["stays"]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_ends_without_a_cache_of_what_nobody_has() {
    let (app, storage) = world(|_, _, _| Fault::None).await;
    app.local().expect("writes are local").namespaces.settle().await;
    ended(&app, &storage).await;
    let started: Vec<String> = app.caches.stats().into_iter().map(|(id, _)| id).collect();
    assert_eq!(started, ["configmaps", "namespaces"]);
}

/// Goal: a type whose cache cannot be listed holds no namespace. Method: request a cache whose listing always fails, of
/// a type without objects.
#[tokio::test(start_paused = true)]
async fn a_type_whose_cache_is_not_listed_keeps_no_namespace() {
    let fails = |_, verb, id: &str| {
        if verb == Verb::Follow && id == "secrets" { Fault::Fails } else { Fault::None }
    };
    let (app, storage) = world(fails).await;
    let [secrets] = types(&app, ["secrets"]);
    assert!(app.caches.reader(&secrets).await.is_err());
    ended(&app, &storage).await;
}

/// Goal: a type that cannot be listed keeps all terminating namespaces, since it may have objects in any of them; their
/// other objects are deleted. Method: a type whose listings stall for a while.
#[tokio::test(start_paused = true)]
async fn a_type_that_nobody_can_list_keeps_the_namespace_and_nothing_else() {
    let (app, storage) = world(|_, _, id| if id == "secrets" { Fault::Stalls } else { Fault::None }).await;
    let [namespaces, configmaps] = types(&app, ["namespaces", "configmaps"]);
    for _ in 0..3 {
        app.local().expect("writes are local").namespaces.settle().await;
    }
    assert_eq!(names(&storage.inner, &configmaps).await, Vec::<String>::new());
    assert_eq!(names(&storage.inner, &namespaces).await, ["n", "stays"]);
    storage.heal();
    ended(&app, &storage).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_ends_though_any_one_call_to_the_storage_fails() {
    let mut failing = 0;
    loop {
        let (app, storage) =
            world(move |number, _, _| if number == failing { Fault::Fails } else { Fault::None }).await;
        ended(&app, &storage).await;
        if storage.calls() <= failing {
            break;
        }
        failing += 1;
    }
    assert!(failing > 10, "{failing} calls");
}

/// Goal: namespaces that do not terminate cost nothing while others change. Method: 5,000 namespaces, 20 with a long
/// text that resembles a mark, and repeated changes of one other namespace before it is marked.
#[tokio::test]
async fn a_pass_costs_the_namespaces_that_changed() {
    let app = App::new(Config::default());
    let [namespaces] = types(&app, ["namespaces"]);
    for number in 0..5_000 {
        put(
            &**app.local().expect("writes are local").store,
            &namespaces,
            &namespace(&format!("n{number}"), false),
            Expect::Absent,
        )
        .await;
    }
    for number in 0..20 {
        let mut long = namespace(&format!("long{number}"), false);
        long["metadata"]["annotations"] = json!({"deletionTimestamp": "x".repeat(500_000)});
        put(&**app.local().expect("writes are local").store, &namespaces, &long, Expect::Absent).await;
    }
    app.local().expect("writes are local").namespaces.settle().await;
    let begun = std::time::Instant::now();
    let mut at =
        put(&**app.local().expect("writes are local").store, &namespaces, &namespace("last", false), Expect::Absent)
            .await;
    for _ in 0..300 {
        at = put(
            &**app.local().expect("writes are local").store,
            &namespaces,
            &namespace("last", false),
            Expect::At(at),
        )
        .await;
        app.local().expect("writes are local").namespaces.settle().await;
    }
    assert!(!app.local().expect("writes are local").namespaces.is_ending("long1"));
    put(&**app.local().expect("writes are local").store, &namespaces, &namespace("last", true), Expect::At(at)).await;
    app.local().expect("writes are local").namespaces.settle().await;
    assert!(!names(&**app.local().expect("writes are local").store, &namespaces).await.contains(&"last".to_owned()));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// Goal: who saw that a namespace is gone may use its name at once. Method: the last pass still knows it as terminating.
#[tokio::test]
async fn a_namespace_that_is_gone_does_not_terminate() {
    let app = App::new(Config::default());
    let [ty] = types(&app, ["namespaces"]);
    let local = app.local().expect("writes are local");
    let mut held = namespace("held", true);
    held["spec"] = json!({"finalizers": ["kubernetes"]});
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    put(&**local.store, &ty, &held, Expect::Absent).await;
    local.namespaces.settle().await;
    local.namespaces.assume_ending("gone");
    assert!(local.namespaces.is_ending("held"));
    assert!(!local.namespaces.is_ending("gone"));
}

/// Goal: held objects are marked once. Method: an object with a finalizer, whose version must not change during further
/// passes.
#[tokio::test]
async fn what_is_held_is_told_once_and_let_go_with_its_finalizer() {
    let app = App::new(Config::default());
    let [namespaces, configmaps] = types(&app, ["namespaces", "configmaps"]);
    let mut held = object("held", "h");
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    put(&**app.local().expect("writes are local").store, &configmaps, &held, Expect::Absent).await;
    put(&**app.local().expect("writes are local").store, &namespaces, &namespace("n", true), Expect::Absent).await;
    app.local().expect("writes are local").namespaces.settle().await;
    let reader = app.caches.fresh(&configmaps).await.expect("a reader");
    let marked = reader.get("n/held").expect("is held");
    assert!(String::from_utf8_lossy(&marked.object()).contains("deletionTimestamp"));
    put(&**app.local().expect("writes are local").store, &configmaps, &object("late", "l"), Expect::Absent).await;
    let mut at =
        put(&**app.local().expect("writes are local").store, &namespaces, &namespace("other", false), Expect::Absent)
            .await;
    for _ in 0..5 {
        at = put(
            &**app.local().expect("writes are local").store,
            &namespaces,
            &namespace("other", false),
            Expect::At(at),
        )
        .await;
        app.local().expect("writes are local").namespaces.settle().await;
    }
    let reader = app.caches.fresh(&configmaps).await.expect("a reader");
    assert_eq!(reader.get("n/held").map(|entry| entry.resource_version()), Some(marked.resource_version()));
    assert!(reader.get("n/late").is_none(), "what came late goes all the same");
    let (ty, key, expect) = (configmaps, "n/held".to_owned(), Expect::At(marked.resource_version()));
    app.local()
        .expect("writes are local")
        .store
        .write(Txn { ty, key, expect, put: None, cause: None })
        .await
        .expect("goes");
    let gone = async {
        while names(&**app.local().expect("writes are local").store, &namespaces).await != ["other"] {
            sleep(PAUSE).await;
        }
    };
    timeout(Duration::from_secs(30), gone).await.expect("the namespace goes");
}
