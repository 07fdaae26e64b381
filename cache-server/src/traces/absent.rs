//! In place of the spans, in a build without the feature `traces`: compiled to nothing.

use http::{StatusCode, request::Parts};
use tokio::time::Instant;

use crate::{access::RequestContext, config::Config};

/// Makes no spans.
#[derive(Default)]
pub(crate) struct Traces(());

impl Traces {
    pub(crate) const fn open(_: &Config) -> Result<Self, String> {
        Ok(Self(()))
    }

    pub(crate) const fn begin(&self, _: &mut Parts) -> RequestSpan {
        RequestSpan(())
    }

    pub(crate) async fn shut_down(&self, _: Instant) {}
}

/// In place of a span.
#[derive(Default)]
pub(crate) struct RequestSpan(());

impl RequestSpan {
    pub(crate) const fn describe(&mut self, _: &'static str, _: &str, _: &Parts, _: &RequestContext) {}

    pub(crate) const fn answered(&mut self, _: StatusCode) {}

    pub(crate) const fn sent(&mut self, _: u64) {}

    pub(crate) const fn ended(&mut self, _: &'static str) {}
}
