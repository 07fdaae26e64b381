//! One copy for a whole program: the running copies, the declarations they answer, and copies derived from others.

mod copies;
mod derive;
mod question;

use std::time::Duration;

pub(crate) use self::{
    copies::{CopyFeed, CopyOrigin, CopyTable, CopyUse, Decoders, SharedCopies, SharedCopy},
    derive::DerivedCopy,
    question::{CopyQuestion, StoredForm},
};

/// Default time for which a shared copy runs on after its last user has dropped it.
pub const SHARED_GRACE: Duration = Duration::from_secs(30);
