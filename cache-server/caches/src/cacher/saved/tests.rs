//! Saved states come back whole, or not at all; and servers resume from them.

pub(in crate::cacher) mod fixture;

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::SystemTime,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use informer_core::{
    KeyedObject as _,
    selector::{field, label},
};
use informer_log::DiskLog;
use watch_cache::{Budget, Change, CursorStart, Draft, Filter, Limits, Slices, Step};

use self::fixture::{World, load, log, objects, origin, pod, pods};
use super::{log::WholeState, *};
use crate::{
    cacher::Caches,
    storage::{FollowFrom, Source, SourceError, SourceRecord, Update, Updates},
};

fn file(folder: &Path) -> PathBuf {
    folder.join("pods.state")
}

/// Goal: a process that was killed leaves a state of the history, and the next one goes on saving behind it. Method: a
/// file that ends with each of its commits; `informer-log` tests the bytes between them.
#[test]
fn a_file_that_ends_with_any_commit_is_loaded_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new();
    let mut log = log(folder.path(), &origin());
    let state = |world: &World| WholeState::of(&world.reader, fixture::NOW).unwrap();
    log.replace(&state(&world), SystemTime::now()).unwrap();
    let written = || fs::read(file(folder.path())).unwrap().len();
    let mut commits = vec![(written(), world.writer.applied())];
    for _ in 0..7 {
        log.append(&world.steps(2), SystemTime::now()).unwrap();
        commits.push((written(), world.writer.applied()));
    }
    let (whole, rest) = (fs::read(file(folder.path())).unwrap(), state(&world));
    for (end, applied) in commits {
        fs::write(file(folder.path()), &whole[..end]).unwrap();
        let (mut log, found) = world.loaded(folder.path()).unwrap().expect("a file");
        assert_eq!(found, applied);
        log.append(&rest.changes(), SystemTime::now()).unwrap();
        assert_eq!(world.loaded(folder.path()).unwrap().unwrap().1, world.writer.applied());
    }
}

/// Goal: a change that no cache could have written ends the state before it, which is not continued. Method: a complete
/// log whose last batch has an object that is none.
#[test]
fn a_change_that_is_none_ends_the_state_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new();
    let mut log = log(folder.path(), &origin());
    log.replace(&WholeState::of(&world.reader, fixture::NOW).unwrap(), SystemTime::now()).unwrap();
    log.append(&world.steps(4), SystemTime::now()).unwrap();
    let applied = world.writer.applied();
    let owner = StateOwner::new(&Arc::new(RwLock::new(origin())), &pods()).text();
    let mut raw = DiskLog::new(files::files_of(folder.path(), "pods").unwrap(), 0);
    raw.resume(raw.find(&owner).unwrap().unwrap());
    let number = (applied + 9).to_le_bytes();
    raw.append(|batch| {
        batch.push(2, &[&number, b"no object"])?;
        batch.commit(&[&number, &number])
    })
    .unwrap();
    let (log, reader, loaded) = load(folder.path()).unwrap();
    assert_eq!((reader.applied(), loaded.is_some(), log.can_append()), (applied, true, false));
}

#[test]
fn the_state_of_another_server_scope_or_format_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new();
    log(folder.path(), &origin())
        .replace(&WholeState::of(&world.reader, fixture::NOW).unwrap(), SystemTime::now())
        .unwrap();
    let scoped = StateOrigin { scopes: [("pods".to_owned(), "spec.nodeName=n".to_owned())].into(), ..origin() };
    let other = StateOrigin { server: "https://b".to_owned(), ..origin() };
    let cluster = StateOrigin { cluster: Some("uid".to_owned()), ..origin() };
    for origin in [scoped, other, cluster] {
        let (mut writer, _, _) = watch_cache::cache(Arc::clone(&pods().schema), Limits::default());
        let refused = log(folder.path(), &origin).load(&pods().schema, &mut writer, fixture::NOW).unwrap_err();
        assert_eq!(refused.to_string(), r#"it belongs to another: "pods\nv1\nPod\nhttps://a\n""#);
    }
    for (bytes, reason) in
        [(&b"informer\x02\0\0\0"[..], "its format 2 is not known"), (b"k8scache\x01\0\0\0", "the file is no log")]
    {
        fs::write(file(folder.path()), bytes).unwrap();
        assert_eq!(load(folder.path()).err().map(|reason| reason.to_string()).as_deref(), Some(reason));
    }
}

/// Goal: the states of another cluster are gone before anything is loaded, and the cluster's own stay, whatever the address.
/// Method: a folder with states of one cluster, settled for it and for another one; and a command that drops them.
#[tokio::test]
async fn states_of_another_cluster_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let of = |cluster: &str| StateOrigin { cluster: Some(cluster.to_owned()), ..origin() };
    let world = World::new();
    let mut log = log(folder.path(), &of("one"));
    log.replace(&WholeState::of(&world.reader, fixture::NOW).unwrap(), SystemTime::now()).unwrap();
    let settle = async |server: &str, cluster: &str| {
        let origin = StateOrigin { server: server.to_owned(), ..StateOrigin::default() };
        let opened = SavedStates::open(folder.path(), origin, false).unwrap().awaiting_cluster();
        let (writer, _, _) = watch_cache::cache(Arc::clone(&pods().schema), Limits::default());
        let (ty, started) = (pods(), Instant::now());
        let mut loading = std::pin::pin!(opened.load(&ty, started, writer));
        assert!(futures::poll!(&mut loading).is_pending(), "nothing is loaded before");
        assert_eq!(opened.has_others(cluster), cluster != "one", "before anything is removed");
        opened.settle(Some(cluster));
        assert!(!opened.has_others(cluster));
        loading.await.expect("the type is saved").loaded.is_some()
    };
    assert!(settle("https://elsewhere", "one").await);
    let in_use = SavedStates::open(folder.path(), origin(), false).unwrap();
    drop_states(folder.path(), None).unwrap_err();
    drop(in_use);
    assert!(!settle("https://a", "two").await);
    assert!(!file(folder.path()).exists());
    fs::write(file(folder.path()), "any").unwrap();
    assert_eq!(drop_states(folder.path(), Some("nodes")).unwrap(), 0);
    assert_eq!(drop_states(folder.path(), Some("pods")).unwrap(), 1);
    assert!(!file(folder.path()).exists());
}

#[test]
fn a_folder_has_one_server_and_no_secrets_unless_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let one = SavedStates::open(&path, origin(), true).unwrap();
    let refused = SavedStates::open(&path, origin(), true).unwrap_err().to_string();
    assert_eq!(refused, format!("{}: another server uses it", path.display()));
    fs::write(path.join("secrets.state"), "of an earlier run").unwrap();
    drop(one);
    drop(SavedStates::open(&path, origin(), false).unwrap());
    assert!(!path.join("secrets.state").exists());
    let in_the_way = folder.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    SavedStates::open(&in_the_way, origin(), false).unwrap_err();
}

/// Goal: a state that is handed over fills the next cache at once, with its window, and is saved once the folder is left.
/// Method: a folder in use; the state for the owner, and for another one.
#[tokio::test]
async fn a_handed_state_is_loaded_at_once_and_saved_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new();
    world.steps(30);
    let before = SavedStates::open(folder.path(), origin(), false).unwrap();
    let handed = || -> HandedStates {
        let state = before.hand_over(&pods(), &world.reader, world.now(), false).unwrap().expect("it has a state");
        [("pods".to_owned(), state)].into_iter().collect()
    };
    let (ours, others) = (handed(), handed());
    let load = async |states: &SavedStates| {
        let (writer, _, reader) = watch_cache::cache(Arc::clone(&pods().schema), Limits::default());
        (reader, states.load(&pods(), Instant::now(), writer).await.expect("there is one"))
    };
    let next = Arc::new(SavedStates::taken_over(folder.path(), origin(), false, ours));
    let (reader, loaded) = load(&next).await;
    let (oldest, applied) = (world.reader.oldest(), world.writer.applied());
    assert_eq!((reader.oldest(), reader.applied()), (oldest, applied));
    for at in [oldest, applied] {
        assert_eq!(objects(&reader, at).as_ref(), world.states.get(&at), "at {at}");
    }
    assert!(next.waits_for_folder() && !file(folder.path()).exists(), "the process before has the folder");
    // A server that ends now has nothing to wait for.
    next.idle().await;
    drop(before);
    SavedStates::follow_folder(Arc::downgrade(&next)).await;
    drop(loaded);
    next.idle().await;
    assert_eq!(world.loaded(folder.path()).unwrap().expect("saved").1, applied);
    let elsewhere = StateOrigin { server: "https://b".to_owned(), ..StateOrigin::default() };
    let (reader, loaded) = load(&SavedStates::in_memory(elsewhere, others)).await;
    assert_eq!((reader.applied(), loaded.loaded.is_some()), (0, false));
}

/// An API server with one history, which outlives the servers in front of it.
#[derive(Default)]
struct Upstream {
    /// Every change from the first on.
    history: watch::Sender<Vec<Change>>,
    /// Changes at or below it are not known any more.
    compacted: AtomicUsize,
    listed: AtomicUsize,
    resumed: Mutex<Vec<u64>>,
    /// True if a resumed stream begins with its position, as the SDK's does.
    confirms: AtomicBool,
}

fn revision(change: &Change) -> u64 {
    match change {
        Change::Put(entry) => entry.resource_version(),
        Change::Deleted { resource_version, .. } => *resource_version,
        Change::Progress(revision) => *revision,
    }
}

/// As JSON that the cacher decodes.
fn update(change: &Change) -> Update {
    match change.clone() {
        Change::Put(entry) => {
            Update::Put(SourceRecord::Json { json: entry.object(), revision: entry.resource_version() })
        }
        Change::Deleted { key, resource_version } => Update::Deleted { key, revision: resource_version },
        Change::Progress(revision) => Update::Progress(revision),
    }
}

impl Upstream {
    fn commits(&self, changes: &[Change]) {
        self.history.send_modify(|history| history.extend_from_slice(changes));
    }

    /// The state now, as updates.
    fn state(&self) -> Vec<Update> {
        let history = self.history.borrow();
        let mut objects = std::collections::BTreeMap::new();
        for change in &*history {
            match change {
                Change::Put(entry) => drop(objects.insert(entry.key().to_owned(), update(change))),
                Change::Deleted { key, .. } => drop(objects.remove(key)),
                Change::Progress(_) => {}
            }
        }
        let object = |update| {
            let Update::Put(record) = update else { unreachable!("only puts are kept") };
            Update::Object(record)
        };
        let end = Update::StateComplete(history.last().map_or(1, revision));
        std::iter::once(Update::StateBegins).chain(objects.into_values().map(object)).chain([end]).collect()
    }
}

impl Source for Upstream {
    fn follow(
        &self,
        _: &Arc<ResourceType>,
        from: FollowFrom,
        _: Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>> {
        let (before, after) = match from {
            FollowFrom::Start => {
                self.listed.fetch_add(1, Ordering::SeqCst);
                (self.state(), self.history.borrow().last().map_or(1, revision))
            }
            FollowFrom::After(after) => {
                self.resumed.lock().push(after);
                if after < self.compacted.load(Ordering::SeqCst) as u64 {
                    return std::future::ready(Err(SourceError::Compacted { after })).boxed();
                }
                let confirmed = self.confirms.load(Ordering::SeqCst).then_some(Update::Progress(after));
                (confirmed.into_iter().collect(), after)
            }
        };
        let changes = stream::unfold((self.history.subscribe(), after), |(mut history, after)| async move {
            let is_next = |history: &Vec<Change>| history.iter().any(|change| after < revision(change));
            let next = history.wait_for(is_next).await.ok()?.iter().find(|change| after < revision(change)).cloned()?;
            Some((Ok(update(&next)), (history, revision(&next))))
        });
        std::future::ready(Ok(stream::iter(before.into_iter().map(Ok)).chain(changes).boxed())).boxed()
    }

    fn current(&self, _: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        std::future::ready(Ok(self.history.borrow().last().map_or(1, revision))).boxed()
    }
}

/// Opens the folder once the server before has left it.
async fn server(upstream: &Arc<Upstream>, folder: &Path) -> Caches {
    let wait = async {
        loop {
            match SavedStates::open(folder, origin(), false) {
                Ok(folder) => return folder,
                Err(FolderError::InUse(_)) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    let folder = timeout(Duration::from_secs(10), wait).await.expect("the server before has ended");
    Caches::new(upstream.clone(), Limits::default()).saved_in(folder)
}

async fn stop(caches: Caches) {
    caches.shut_down();
    caches.saved().await;
}

/// The events after a position that a watch with a label selector gets, as type, name and revision.
fn events(reader: &Reader, after: u64, selector: &str) -> Option<Vec<String>> {
    let (labels, fields) = (label::Selector::parse(selector).unwrap(), field::Selector::parse("").unwrap());
    let filter = Filter::new(&pods().schema, true, None, labels, &fields).unwrap();
    let mut cursor = reader.cursor(CursorStart::After(after), filter).ok()?;
    let mut out = Slices::new();
    while cursor.step(Budget { slices: 1024, bytes: 1 << 20 }, &mut out, None) == Step::Sent {}
    let text: Vec<u8> = out.iter().flat_map(|slice| slice.to_vec()).collect();
    let line = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let metadata = &event["object"]["metadata"];
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", text(&event["type"]), text(&metadata["name"]), text(&metadata["resourceVersion"]))
    };
    Some(String::from_utf8(text).unwrap().lines().map(line).collect())
}

fn deleted(name: &str, revision: u64) -> Change {
    Change::Deleted { key: format!("n/{name}"), resource_version: revision }
}

/// Goal: a restart costs the API server no list and no client its position. Method: three servers in a row over one
/// folder, changes before, between and after, and a client whose position is older than all of them.
#[tokio::test]
async fn a_restarted_server_resumes_and_so_do_its_clients() {
    let (folder, upstream, pods) = (tempfile::tempdir().unwrap(), Arc::<Upstream>::default(), pods());
    let put = fixture::put;
    upstream.commits(&[put("a", "x", 5), put("b", "x", 7), Change::Progress(10)]);
    let first = server(&upstream, folder.path()).await;
    assert_eq!(first.reader(&pods).await.unwrap().applied(), 10);
    upstream.commits(&[put("a", "y", 11), put("c", "x", 12), deleted("b", 14), Change::Progress(15)]);
    first.at_least(&pods, 15).await.unwrap();
    stop(first).await;
    upstream.commits(&[put("c", "y", 20), deleted("a", 21)]);
    let second = server(&upstream, folder.path()).await;
    let reader = second.at_least(&pods, 21).await.unwrap();
    assert_eq!((upstream.listed.load(Ordering::SeqCst), &*upstream.resumed.lock()), (1, &vec![15]));
    assert_eq!(second.down(), [], "the source is heard of again");
    let all = ["MODIFIED a 11", "ADDED c 12", "DELETED b 14", "MODIFIED c 20", "DELETED a 21"];
    assert_eq!(events(&reader, 10, "").unwrap(), all);
    assert_eq!(events(&reader, 12, "").unwrap(), all[2..]);
    let selected = ["DELETED a 11", "ADDED c 12", "DELETED b 14", "DELETED c 20"];
    assert_eq!(events(&reader, 10, "app=x").unwrap(), selected, "which needs the objects before");
    assert_eq!(events(&reader, 9, ""), None, "older than the first state");
    stop(second).await;
    let third = server(&upstream, folder.path()).await;
    let reader = third.reader(&pods).await.unwrap();
    assert_eq!(
        (events(&reader, 10, "").unwrap(), upstream.listed.load(Ordering::SeqCst)),
        (all.map(str::to_owned).to_vec(), 1)
    );
    assert_eq!(objects(&reader, 21).unwrap(), objects(&reader, 20).unwrap()[1..]);
    stop(third).await;
}

/// Goal: a position that the API server has forgotten ends the saved history, on disk as well. Method: a compaction
/// between two servers; the third one must not know the first history.
#[tokio::test]
async fn a_forgotten_position_is_listed_again_and_saved_anew() {
    let (folder, upstream, pods) = (tempfile::tempdir().unwrap(), Arc::<Upstream>::default(), pods());
    upstream.commits(&[fixture::put("a", "x", 5), fixture::put("b", "x", 6)]);
    let first = server(&upstream, folder.path()).await;
    first.reader(&pods).await.unwrap();
    stop(first).await;
    upstream.commits(&[fixture::put("a", "y", 8), deleted("b", 9), Change::Progress(30)]);
    upstream.compacted.store(20, Ordering::SeqCst);
    let second = server(&upstream, folder.path()).await;
    let reader = second.at_least(&pods, 30).await.unwrap();
    assert_eq!((events(&reader, 6, ""), events(&reader, 30, "")), (None, Some(vec![])));
    assert_eq!((upstream.listed.load(Ordering::SeqCst), upstream.resumed.lock().clone()), (2, vec![6]));
    stop(second).await;
    let third = server(&upstream, folder.path()).await;
    let reader = third.reader(&pods).await.unwrap();
    assert_eq!((reader.applied(), events(&reader, 6, "")), (30, None));
    assert_eq!(upstream.listed.load(Ordering::SeqCst), 2);
    stop(third).await;
}

/// Goal: a loaded state is not taken for a new one. Method: a server whose source is silent after the restart.
#[tokio::test]
async fn a_loaded_state_counts_as_old_until_the_source_is_heard_of() {
    let (folder, upstream, pods) = (tempfile::tempdir().unwrap(), Arc::<Upstream>::default(), pods());
    upstream.commits(&[fixture::put("a", "x", 5)]);
    let first = server(&upstream, folder.path()).await;
    first.reader(&pods).await.unwrap();
    stop(first).await;
    let second = server(&upstream, folder.path()).await;
    second.reader(&pods).await.unwrap();
    let down = second.down();
    assert!(down.len() == 1 && down[0].is_filled && down[0].since < Duration::from_secs(60), "{down:?}");
    upstream.commits(&[Change::Progress(6)]);
    second.at_least(&pods, 6).await.unwrap();
    assert_eq!(second.down(), []);
    stop(second).await;
}

/// Goal: a source that accepts the position of a loaded state makes it current at once. Method: a state whose newest
/// revision may have further changes, so that the source continues below it.
#[tokio::test]
async fn a_loaded_state_is_current_once_its_position_is_accepted() {
    let (folder, upstream, pods) = (tempfile::tempdir().unwrap(), Arc::<Upstream>::default(), pods());
    upstream.confirms.store(true, Ordering::SeqCst);
    upstream.commits(&[fixture::put("a", "x", 5)]);
    let first = server(&upstream, folder.path()).await;
    first.reader(&pods).await.unwrap();
    upstream.commits(&[fixture::put("b", "x", 7)]);
    first.at_least(&pods, 7).await.unwrap();
    stop(first).await;
    let second = server(&upstream, folder.path()).await;
    let reader = second.reader(&pods).await.unwrap();
    let heard = async {
        while !second.down().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), heard).await.expect("the source was heard of");
    upstream.commits(&[fixture::put("c", "x", 8)]);
    second.at_least(&pods, 8).await.unwrap();
    assert_eq!((upstream.listed.load(Ordering::SeqCst), &*upstream.resumed.lock()), (1, &vec![6]));
    assert_eq!((reader.stats().epochs, objects(&reader, 8).unwrap().len()), (1, 3));
    stop(second).await;
}

#[tokio::test]
async fn secrets_are_cached_and_not_saved() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), Arc::<Upstream>::default());
    let secrets = crate::registry::Registry::builtin().find("", "v1", "secrets").unwrap();
    let secret = Draft::new(&secrets.schema, pod("s", "x", 1).as_bytes()).unwrap().commit(5);
    upstream.commits(&[Change::Put(secret)]);
    let caches = server(&upstream, folder.path()).await;
    assert_eq!(caches.reader(&secrets).await.unwrap().snapshot().objects.len(), 1);
    stop(caches).await;
    let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<Vec<_>>(), ["lock"]);
}
