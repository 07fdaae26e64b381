//! Saved state on disk, so that a restart resumes.
//!
//! INVARIANT: whatever is on disk, and wherever writing it was broken off, opening gives one state that was committed,
//! or none and the reason.
//!
//! An informer has one log in the directory, named after its type and its identity, so several may share a directory.
//! Each save appends what changed and a commit; only what has its commit counts. A log that has become more than twice
//! as large as its objects is written anew beside and renamed. See `docs/adr/0011-a-checkpoint-is-a-log.md`.
//!
//! Cost: bytes written are those of the objects that changed, once for each save in which they did, and as much again
//! for writing anew. On disk: at most twice the objects, [`SLACK_BYTES`](writer::SLACK_BYTES), and what one save appends; the objects once
//! more while they are written anew.

mod identity;
mod place;
mod record;
mod replay;
mod writer;

use std::{fs::File, io, path::Path, time::SystemTime};

use informer_core::{ResourceVersion, store::Store};

pub(crate) use self::{
    identity::{Identity, KeptAs, digest},
    writer::Writer,
};
use self::{place::Place, replay::Replay};

/// What was found in a directory.
pub(crate) struct Opened {
    /// The last state saved; `None` when there is none that can be used.
    pub(crate) saved: Option<Saved>,
    /// Why what is there is not used.
    pub(crate) ignored: Option<Ignored>,
    /// What saves from now on; `None` when nothing may be written here, which `ignored` explains.
    pub(crate) writer: Option<Writer>,
}

/// A state on disk.
pub(crate) struct Saved {
    /// Its position.
    pub(crate) position: ResourceVersion,
    /// When the server last confirmed it. By the clock of then: may lie in the future of a clock that was set back.
    pub(crate) confirmed_at: SystemTime,
    /// Bytes behind the last commit, which do not count: a save that was broken off, or damage.
    pub(crate) cut_bytes: u64,
    file: File,
    replay: Replay,
}

/// Why a checkpoint is not used. The informer reads its initial state, as without one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ignored {
    /// Another informer, perhaps of another process, uses the same file. Nothing is written by this one until that ends.
    #[error("another informer uses it")]
    Locked,
    /// The file system does not let it be used.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// What came of it.
        #[source]
        source: io::Error,
    },
    /// The file is no checkpoint. It is replaced at the first save.
    #[error("the file is no checkpoint")]
    NotACheckpoint,
    /// It was written by another version of this library. It is replaced at the first save.
    #[error("format {found} is not known")]
    Version {
        /// The format's number.
        found: u32,
    },
    /// It is the state of something else: the file was renamed or copied. It is replaced at the first save.
    #[error("it is the state of another informer: {found:?}")]
    Foreign {
        /// The identity found.
        found: String,
    },
    /// It has no state that is whole. It is replaced at the first save.
    #[error("it is damaged")]
    Damaged,
}

impl Ignored {
    fn because(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

/// Looks for the checkpoint of `identity` in `dir`, which is created when it is missing, for this user alone. One that
/// is there stays as it is.
///
/// Blocks; cost: reads the file once. Memory: a key and a number an object.
pub(crate) fn open(dir: &Path, identity: &Identity) -> Opened {
    let place = match Place::take(dir, &identity.file_stem()) {
        Ok(place) => place,
        Err(ignored) => return Opened { saved: None, ignored: Some(ignored), writer: None },
    };
    let identity = identity.to_string();
    let found = find(&place, &identity);
    let mut writer = Writer::new(place, identity);
    match found {
        Ok(None) => Opened { saved: None, ignored: None, writer: Some(writer) },
        Ok(Some((saved, file))) => {
            writer.continues(file, &saved.replay);
            Opened { saved: Some(saved), ignored: None, writer: Some(writer) }
        }
        Err(ignored) => Opened { saved: None, ignored: Some(ignored), writer: Some(writer) },
    }
}

/// The state that is there, and the file once more, for the one that writes.
fn find(place: &Place, identity: &str) -> Result<Option<(Saved, File)>, Ignored> {
    let Some(file) = place.open().map_err(Ignored::because("open the file"))? else { return Ok(None) };
    let replay = Replay::read(&file, identity)?;
    let bytes = file.metadata().map_err(Ignored::because("read"))?.len();
    let again = file.try_clone().map_err(Ignored::because("open the file"))?;
    let (position, confirmed_at) = (replay.position.clone(), replay.confirmed_at);
    Ok(Some((Saved { position, confirmed_at, cut_bytes: bytes.saturating_sub(replay.end), file, replay }, again)))
}

impl Saved {
    /// Puts it into a store that has no state yet. One object is in memory at a time. Then tell the writer:
    /// [`Writer::restored`].
    ///
    /// Blocks; cost: reads the file a second time, and what the store does to keep an object.
    ///
    /// # Errors
    /// [`Ignored`] when the file cannot be read again. The store has some of the objects then, and no position: that is
    /// still good for telling a relist what was there before.
    pub(crate) fn restore(self, store: &mut Store) -> Result<(), Ignored> {
        self.replay.each(&self.file, |object| {
            let labels = Some(object.labels.as_bytes()).filter(|labels| !labels.is_empty());
            store.restore_object(&object.meta(), object.json, labels);
        })?;
        store.restore([], Some(self.position));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
