//! Every setting of an informer as data, with its unit, its default and who pays for it.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use informer_core::{InitialList, ListSemantic, limits};

use crate::error::ConfigError;

/// Settings of one informer. `Default` is what production should use; the builder's methods set single fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How fresh the first read has to be. Default [`ListSemantic::Any`], as client-go's first LIST; relists ask for
    /// "not older than seen". `MostRecent` costs servers before 1.31 a read of all of etcd's prefix.
    pub list_semantic: ListSemantic,
    /// How initial state is fetched. Default [`InitialList::Auto`]: as a stream, in pages where that is refused or
    /// stands still. What each request costs which kube-apiserver is in `docs/requests.md`.
    pub initial_list: InitialList,
    /// Objects a page. Default 500, as client-go. Larger pages cost the server memory, smaller ones requests. Relists are not
    /// paged, since kube-apiserver before 1.34 would read them from etcd, unless the server has paged `resourceVersion=0`.
    pub page_size: u32,
    /// Dotted paths that are cut out of every object while it is received, before anything is decoded. Default
    /// `metadata.managedFields`, often half of an object.
    pub drop_paths: Vec<String>,
    /// The largest object accepted, in bytes as sent. A larger one is skipped, counted and logged by its key
    /// ([`Stats::skipped`](crate::Stats::skipped)), and its older state leaves the store, so that nobody takes it for the
    /// newest. Objects nested deeper than 512 levels are treated alike. Default 16 MiB. Memory: one such buffer at most
    /// while an object of that size is received.
    pub object_bytes_max: usize,
    /// Whether a stream of initial state that breaks goes on where it broke, at servers that can: cache-server does, and
    /// others ignore the header that asks for it. Default yes. What was gathered is then kept while the next attempt
    /// waits; state that is shown is whole and of one version, as without. The protocol is `docs/resuming.md`.
    pub resume_initial: bool,
    /// A session that lived this long is healthy, and the next request follows at once. Default 10 s. Shorter lets a
    /// server that closes watches early be asked more often.
    pub healthy_after: Duration,
    /// How long an answer may stay silent before it is given up and resumed. Default 150 s: the API server aims at one
    /// bookmark a minute, so two may go missing. Shorter finds dead connections sooner and costs one request each time.
    /// A healthy server that says nothing at all, not even bookmarks, is asked at most 25 times an hour: from the second
    /// silent answer on the patience doubles, up to the lifetime of a watch, and after every five minutes one object is
    /// read, which tells a quiet server from one that was exchanged.
    pub idle_timeout: Duration,
    /// How long an accepted stream may send nothing of its initial state before that is complete; then it is given up for
    /// pages. Default 10 s. Objects that are newer than all before them may have been created meanwhile: those prolong
    /// it only while they come without a pause, and to twice the time at most. Headers that do not come are no stall:
    /// see [`headers_timeout`](Self::headers_timeout). A list that brings no object for so long goes on, but gives its
    /// turn of the [relist budget](crate::ClusterBuilder::relists_at_once) back. Shorter turns a slow server's clients to
    /// pages, which cost it more.
    pub initial_events_stall: Duration,
    /// `timeoutSeconds` of a watch, drawn from this range. Default 300 to 599, as client-go. Shorter costs requests; one
    /// value for all lets clients that were started together come back together.
    pub watch_timeout_seconds: RangeInclusive<u32>,
    /// Whether watches ask for bookmarks, as all should. Default yes. Without, a type of which little is watched is
    /// listed again after every longer break. Streams of initial state ask for them anyway.
    pub bookmarks: bool,
    /// How long an answer's headers may take. Default 65 s: kube-apiserver ends ordinary requests after 60, and lets them
    /// queue for 15 when it has too much to do. The same request follows, after a growing delay.
    pub headers_timeout: Duration,
    /// The first request waits a random part of this, so that clients started together do not ask together. Default
    /// zero. Costs readiness, on average half of it.
    pub spread: Duration,
    /// A directory in which the state is kept over restarts. Default none. The state is saved at most every 2 s, when
    /// something has changed, and once more at the end, which [`stop`](crate::Informer::stop) waits for. A restart
    /// reads it, proves with one request that the server's history is still the same, and resumes from there. What went
    /// while nobody was there is told, as [`Deleted`](crate::Event::Deleted), also when the server no longer remembers
    /// when.
    ///
    /// Cost: what changes is written, once for each save; 100 changes of 3 kB a second are 300 kB/s, and as much again
    /// at most, because the file is written anew whenever it is twice as large as its objects and 1 MiB. On disk that
    /// much, and the objects once more while it is written anew. Reading takes a key and a number an object beside the
    /// store. Nothing is synced but files written anew: a process that is killed loses nothing that was saved, a machine
    /// that goes down comes back with a state of some seconds before.
    ///
    /// The directory is created with mode 0700, its files with 0600. Several informers may share it; each has a file,
    /// named after its type and what tells it from others: cluster, selectors, dropped paths, the form in which objects
    /// are kept. One whose settings changed leaves its old file there. Objects that went through transforms or types of
    /// the program are of use to the same build of it alone. A checkpoint that cannot be used is ignored and logged. One
    /// that another informer holds, as the old pod of a rolling update does, is taken over once that has ended, and its
    /// contents are replaced. Failures to open or to write are counted
    /// ([`Stats::checkpoint_failures`](crate::Stats::checkpoint_failures)) and tried again, at last every 5 min. They
    /// stop nothing. Objects that [`linger`](crate::InformerBuilder::linger) are not saved.
    pub checkpoint: Option<PathBuf>,
    /// Whether Secrets may be written to [`checkpoint`](Self::checkpoint), in plain text. Default no: an error.
    pub checkpoint_secrets: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            list_semantic: ListSemantic::default(),
            initial_list: InitialList::default(),
            page_size: limits::PAGE_SIZE,
            drop_paths: vec![MANAGED_FIELDS.to_owned()],
            object_bytes_max: limits::OBJECT_BYTES_MAX,
            resume_initial: true,
            healthy_after: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(150),
            initial_events_stall: Duration::from_secs(10),
            watch_timeout_seconds: 300..=599,
            bookmarks: true,
            headers_timeout: Duration::from_secs(65),
            spread: Duration::ZERO,
            checkpoint: None,
            checkpoint_secrets: false,
        }
    }
}

/// What writers did to which field: of use to server-side apply, and to hardly any reader.
pub(crate) const MANAGED_FIELDS: &str = "metadata.managedFields";

/// Members without which an object has no key and no position, and their parents.
const IDENTITY: [&str; 6] =
    ["kind", "apiVersion", "metadata", "metadata.name", "metadata.namespace", "metadata.resourceVersion"];

impl Config {
    /// Whether the server may leave out what nobody here will see.
    pub(crate) fn drops_managed_fields(&self) -> bool {
        self.drop_paths.iter().any(|path| path == MANAGED_FIELDS)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (is_zero, name) in [
            (self.page_size == 0, "page_size"),
            (*self.watch_timeout_seconds.start() == 0, "watch_timeout_seconds"),
            (self.object_bytes_max == 0, "object_bytes_max"),
            (self.healthy_after.is_zero(), "healthy_after"),
            (self.idle_timeout.is_zero(), "idle_timeout"),
            (self.initial_events_stall.is_zero(), "initial_events_stall"),
            (self.headers_timeout.is_zero(), "headers_timeout"),
        ] {
            if is_zero {
                return Err(ConfigError::Zero(name));
            }
        }
        if let Some(path) = self.drop_paths.iter().find(|path| !may_drop(path)) {
            return Err(ConfigError::DropPath(path.clone()));
        }
        if matches!((&self.list_semantic, self.initial_list), (ListSemantic::Exact(_), InitialList::Stream)) {
            return Err(ConfigError::ExactStream);
        }
        Ok(())
    }
}

/// Cutting the uid would hide that an object was replaced by another of its name; it may not be cut either.
fn may_drop(path: &str) -> bool {
    path.split('.').all(|member| !member.is_empty()) && !IDENTITY.contains(&path) && path != "metadata.uid"
}
