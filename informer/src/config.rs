//! Settings of an informer, each with its unit, default and cost.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use informer_core::{InitialList, ListSemantic, backoff, limits, reflector};

use crate::error::ConfigError;

/// Settings of one informer. `Default` is meant for production; the builder's methods set single fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Freshness required of the first read. Default [`ListSemantic::Any`], as client-go's first LIST; relists request
    /// "not older than seen". `MostRecent` makes servers before 1.31 read the whole prefix from etcd.
    pub list_semantic: ListSemantic,
    /// Way in which initial state is read. Default [`InitialList::Auto`]: as a stream, and in pages if the server
    /// refuses the stream or lets it stall. The repository's `docs/requests.md` has the cost of each request at each
    /// kube-apiserver.
    pub initial_list: InitialList,
    /// Objects per page. Default 500, as client-go. Larger pages cost the server memory, smaller ones requests. Relists
    /// are not paged, because kube-apiserver before 1.34 would read the pages from etcd, unless the server has paged a
    /// read at `resourceVersion=0`.
    pub page_size: u32,
    /// Dotted paths that are cut out of every object while it is received, before decoding. Default
    /// `metadata.managedFields`, often half of an object.
    pub drop_paths: Vec<String>,
    /// Largest object accepted, in bytes as sent. A larger object is skipped, counted and logged by its key
    /// ([`Stats::skipped`](crate::Stats::skipped)), and its older state leaves the store, so that readers do not take
    /// it for current. The same happens to objects nested deeper than 512 levels. Default 16 MiB. Memory: at most one
    /// buffer of this size, while such an object is received.
    pub object_bytes_max: usize,
    /// True if a broken stream of initial state resumes where it broke, at servers that support it: cache-server does,
    /// and others ignore the header that requests it. Default true. The objects received so far stay in memory during
    /// the backoff. Published state is complete and of one version, as without resuming. The protocol is in the
    /// repository's `docs/resuming.md`.
    pub resume_initial: bool,
    /// Time after which a session counts as healthy, so that the next request follows without backoff. Default 10 s. A
    /// shorter time sends more requests to a server that closes watches early.
    pub healthy_after: Duration,
    /// Longest silence of a response before the client closes it and resumes. Default 150 s: the API server aims at one
    /// bookmark a minute, so two may get lost. A shorter time finds dead connections sooner and costs one request each
    /// time. A healthy server that sends neither events nor bookmarks receives at most 25 requests an hour: from the
    /// second silent response on, the timeout doubles up to the lifetime of a watch, and after two silent responses
    /// from one position (five minutes at first) the client reads one object, to tell a quiet server from a replaced or
    /// restored one.
    pub idle_timeout: Duration,
    /// Longest time an accepted stream may make no progress in its initial state; then the client falls back to pages.
    /// Default 10 s. Objects newer than all before them may be live events: they extend the time only while they arrive
    /// without a pause, and at most to twice the time. Missing headers are no stall; see
    /// [`headers_timeout`](Self::headers_timeout). A LIST without a new object for this long continues, but releases
    /// its permit of the [relist budget](crate::ClusterBuilder::relists_at_once). A shorter time moves clients of a
    /// slow server to pages, which cost it more.
    pub initial_events_stall: Duration,
    /// Range from which the `timeoutSeconds` of each watch is drawn. Default 300 to 599, as client-go. Shorter
    /// lifetimes cost requests; a single value makes clients that started together reconnect together.
    pub watch_timeout_seconds: RangeInclusive<u32>,
    /// True if watches request bookmarks, as all should. Default true. Without bookmarks, a type with few matching
    /// changes is relisted after every longer interruption. Streams of initial state always request bookmarks.
    pub bookmarks: bool,
    /// Longest wait for response headers. Default 65 s: kube-apiserver ends ordinary requests after 60 s, and under
    /// overload queues them for up to 15 s. The client then repeats the request with backoff.
    pub headers_timeout: Duration,
    /// Bounds of the delays between requests after failures, each with its default. Shorter delays load a server that
    /// fails; [`delays`](crate::InformerBuilder::delays) replaces them by a policy of your own.
    pub backoff: backoff::Config,
    /// Interval of the lists by which an informer keeps its copy if the server forbids watches
    /// ([`Ready::Polling`](crate::Ready::Polling)). Default 5 minutes, plus up to 20 % jitter. A shorter interval makes
    /// the copy younger, and costs the server one whole list each time.
    pub poll_interval: Duration,
    /// True if lists and pages may be compressed by gzip, for slow links. Default false. Watches and streams of initial
    /// state never are, so set [`initial_list`](Self::initial_list) too: [`InitialList::Unpaged`] or
    /// [`InitialList::Paged`]. kube-apiserver and cache-server compress bodies above 128 KiB. A list of pods shrinks to
    /// a tenth at kube-apiserver, and to half at cache-server, which compresses each object on its own. Cost: CPU time on
    /// both sides, and 112 KiB of memory while a list is read. A broken stream is a retryable error with
    /// [`GzipError`](crate::GzipError) as its source. All limits hold for the decompressed bytes, which
    /// [`Stats::bytes_received`](crate::Stats::bytes_received) counts. Feature `gzip`.
    #[cfg(feature = "gzip")]
    pub gzip_lists: bool,
    /// Upper bound of a random delay before the first request, so that clients started together do not send together.
    /// Default zero. Delays readiness by half of it on average.
    pub spread: Duration,
    /// Directory in which the state survives restarts. Default none. The informer saves at most every 2 s, if something
    /// changed, and once more at the end, which [`stop`](crate::Informer::stop) waits for. After a restart it loads the
    /// state, proves with one request that the server still has the same history, and resumes. Objects deleted while
    /// the program was down are reported as [`Deleted`](crate::Event::Deleted), even if the server's history window no
    /// longer contains the deletions.
    ///
    /// Cost: each save writes what changed since the save before. 100 changes of 3 kB a second are 300 kB/s, and
    /// compaction adds at most as much: it rewrites the file once it is larger than twice its objects plus 1 MiB. Disk
    /// usage is that size, plus the objects once more during a rewrite. Loading needs memory for one key and one number
    /// per object beside the store. Only rewritten files are fsynced: a killed process loses no saved state; a machine
    /// that crashes may come back with a state that is seconds older.
    ///
    /// The directory is created with mode 0700, its files with 0600. Several informers may share it: each has its own
    /// file, named after its type and a digest of its cluster, selectors, dropped paths and stored form. An informer
    /// whose settings changed leaves its old file in the directory. Only the same build of a program can load objects
    /// that went through its transforms or types. A checkpoint that cannot be used is ignored and logged. A checkpoint
    /// locked by another informer, such as the old pod of a rolling update, is taken over when that informer ends, and
    /// its contents are replaced. Failures to open or to write are counted
    /// ([`Stats::checkpoint_failures`](crate::Stats::checkpoint_failures)) and retried with backoff of at most 5 min;
    /// they never stop the informer. Objects that [`linger`](crate::InformerBuilder::linger) are not saved.
    pub checkpoint: Option<PathBuf>,
    /// True if Secrets may be written to [`checkpoint`](Self::checkpoint), in plain text. Default false: starting such
    /// an informer is an error.
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
            backoff: backoff::Config::default(),
            poll_interval: reflector::Config::default().poll_interval,
            #[cfg(feature = "gzip")]
            gzip_lists: false,
            spread: Duration::ZERO,
            checkpoint: None,
            checkpoint_secrets: false,
        }
    }
}

/// Field ownership for server-side apply; hardly any reader needs it.
pub(crate) const MANAGED_FIELDS: &str = "metadata.managedFields";

/// Members that give an object its key and position, and their parents.
const IDENTITY: [&str; 6] =
    ["kind", "apiVersion", "metadata", "metadata.name", "metadata.namespace", "metadata.resourceVersion"];

impl Config {
    /// Returns true if the server may leave out managedFields, because they would be cut here.
    pub(crate) fn drops_managed_fields(&self) -> bool {
        self.drop_paths.iter().any(|path| path == MANAGED_FIELDS)
    }

    /// Returns true if lists may be compressed.
    pub(crate) const fn gzip(&self) -> bool {
        #[cfg(feature = "gzip")]
        let is_enabled = self.gzip_lists;
        #[cfg(not(feature = "gzip"))]
        let is_enabled = false;
        is_enabled
    }

    /// Returns the first request setting that differs both from the cluster's `defaults` and from `first`, the settings
    /// of a shared copy. Settings that decide what the copy stores are compared by its declaration, and `spread` delays
    /// no request of a later user.
    pub(crate) fn refused_by(&self, first: &Self, defaults: &Self) -> Option<&'static str> {
        // Exhaustive: a new setting must be added to the list below, unless it needs no comparison.
        let Self {
            list_semantic: _,
            initial_list: _,
            page_size: _,
            drop_paths: _,
            object_bytes_max: _,
            resume_initial: _,
            healthy_after: _,
            idle_timeout: _,
            initial_events_stall: _,
            watch_timeout_seconds: _,
            bookmarks: _,
            headers_timeout: _,
            backoff: _,
            poll_interval: _,
            #[cfg(feature = "gzip")]
                gzip_lists: _,
            spread: _,
            checkpoint: _,
            checkpoint_secrets: _,
        } = self;
        macro_rules! changed {
            ($setting:ident) => {
                self.$setting != defaults.$setting && self.$setting != first.$setting
            };
        }
        let settings = [
            (changed!(initial_list), "initial_list"),
            (changed!(page_size), "page_size"),
            (changed!(resume_initial), "resume_initial"),
            (changed!(healthy_after), "healthy_after"),
            (changed!(idle_timeout), "idle_timeout"),
            (changed!(initial_events_stall), "initial_events_stall"),
            (changed!(watch_timeout_seconds), "watch_timeout_seconds"),
            (changed!(bookmarks), "bookmarks"),
            (changed!(headers_timeout), "headers_timeout"),
            (changed!(backoff), "backoff"),
            (changed!(poll_interval), "poll_interval"),
            (changed!(checkpoint), "checkpoint"),
            (self.gzip() != defaults.gzip() && self.gzip() != first.gzip(), "gzip_lists"),
        ];
        settings.into_iter().find_map(|(is_refused, name)| is_refused.then_some(name))
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
            (self.backoff.first_max.is_zero(), "backoff.first_max"),
            (self.backoff.base.is_zero(), "backoff.base"),
            (self.backoff.max.is_zero(), "backoff.max"),
            (self.poll_interval.is_zero(), "poll_interval"),
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

/// Returns true if `path` may be cut. Without the uid, a replaced object of the same name would go unnoticed.
fn may_drop(path: &str) -> bool {
    path.split('.').all(|member| !member.is_empty()) && !IDENTITY.contains(&path) && path != "metadata.uid"
}
