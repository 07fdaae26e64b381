//! In place of the webhooks, in a build without the feature `assets`: there are none.

/// The webhooks of a server.
#[derive(Default)]
pub(crate) struct Webhooks(());

/// One request on its way through the webhooks.
pub(crate) enum RequestAdmission {}
