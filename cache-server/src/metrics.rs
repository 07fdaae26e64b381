//! What operators see at `/metrics`: counters that handlers bump, and gauges read from their owners at scrape, so that
//! they cannot drift.

/// All metrics of one server.
#[derive(Debug, Default)]
pub struct Metrics {}

impl Metrics {
    /// Everything at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one answered request. `verb` is Kubernetes' own, in capitals: `GET`, `LIST`, `WATCH`, `POST`; `resource`
    /// is the type's id (`pods`, `deployments.apps`), empty for paths that are none.
    pub fn request(&self, verb: &str, resource: &str, code: u16) {
        let _ = (self, verb, resource, code);
    }

    /// Counts one open watch of `resource` until the guard is dropped.
    #[must_use]
    pub fn watch(&self, resource: &str) -> Watching {
        let _ = (self, resource);
        Watching {}
    }

    /// The exposition text, with gauges read now.
    #[must_use]
    pub fn text(&self, app: &crate::app::App) -> String {
        let _ = app;
        String::new()
    }
}

/// One open watch. Dropping it ends the count.
#[derive(Debug)]
pub struct Watching {}

impl Watching {
    /// Counts events written to this watch, bookmarks not included. Cheap: one atomic addition.
    pub fn sent(&self, events: u64) {
        let _ = (self, events);
    }
}
