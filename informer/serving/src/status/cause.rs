//! Causes with the texts of field validation, and their collection up to a limit.

use informer_core::wire::status::{CauseReason, StatusCause};

use crate::{
    go::quote,
    limits::{CAUSES_BYTES_MAX, CAUSES_MAX},
};

/// Causes with the texts of kube-apiserver's field validation.
///
/// A trait, because [`StatusCause`] belongs to `informer-core`, whose clients only read causes.
pub trait CauseExt: From<StatusCause> {
    /// Creates a cause with `text` about `field`; the Status's message shows it as `field: text`.
    #[must_use]
    fn new(reason: CauseReason, field: &str, text: &str) -> Self {
        StatusCause { reason, message: text.into(), field: field.into() }.into()
    }

    /// `Forbidden: why`.
    #[must_use]
    fn forbidden(field: &str, why: &str) -> Self {
        Self::new(CauseReason::FieldValueForbidden, field, &format!("Forbidden: {why}"))
    }

    /// `Required value: why`, or only `Required value`.
    #[must_use]
    fn required(field: &str, why: &str) -> Self {
        Self::new(CauseReason::FieldValueRequired, field, &with_detail("Required value", why))
    }

    /// `Invalid value: value: why`. `value` is printed unchanged: quote texts with [`quote`].
    #[must_use]
    fn invalid(field: &str, value: &str, why: &str) -> Self {
        Self::new(CauseReason::FieldValueInvalid, field, &with_detail(&format!("Invalid value: {value}"), why))
    }

    /// `Duplicate value: value`. `value` is printed unchanged.
    #[must_use]
    fn duplicate(field: &str, value: &str) -> Self {
        Self::new(CauseReason::FieldValueDuplicate, field, &format!("Duplicate value: {value}"))
    }

    /// `Too many: count: must have at most max items`, or `… 1 item`.
    #[must_use]
    fn too_many(field: &str, count: usize, max: usize) -> Self {
        let text = format!("Too many: {count}: must have at most {max} item{}", if max == 1 { "" } else { "s" });
        Self::new(CauseReason::FieldValueTooMany, field, &text)
    }

    /// `Unsupported value: "value": supported values: "a", "b"`.
    #[must_use]
    fn not_supported(field: &str, value: &str, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|value| quote(value)).collect::<Vec<_>>().join(", ");
        let text =
            with_detail(&format!("Unsupported value: {}", quote(value)), &format!("supported values: {supported}"));
        Self::new(CauseReason::FieldValueNotSupported, field, &text)
    }
}

impl CauseExt for StatusCause {}

/// Collects causes: the first [`CAUSES_MAX`], fewer if they are long, and a count of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    first: Vec<StatusCause>,
    /// Bytes of the first ones.
    bytes: usize,
    more: usize,
}

impl Causes {
    /// Adds a cause, or counts it.
    pub fn push(&mut self, cause: StatusCause) {
        self.push_with(|| cause);
    }

    /// Adds the cause returned by `make`, or counts it without calling `make`. For loops over a client's values: causes
    /// beyond the limit cost no text.
    pub fn push_with(&mut self, make: impl FnOnce() -> StatusCause) {
        if self.first.len() < CAUSES_MAX && self.bytes < CAUSES_BYTES_MAX {
            let cause = make();
            self.bytes += cause.field.len() + cause.message.len();
            self.first.push(cause);
        } else {
            self.more += 1;
        }
    }

    /// Adds a cause `times` over, or counts it. Cost: for those that are listed only.
    pub fn push_times(&mut self, times: usize, make: impl Fn() -> StatusCause) {
        let counted = self.first.len() + self.more + times;
        for _ in 0..times.min(CAUSES_MAX) {
            self.push_with(&make);
        }
        self.more = counted - self.first.len();
    }

    /// Adds the causes of another collection, or counts them.
    pub fn append(&mut self, other: Self) {
        self.extend(other.first);
        self.more += other.more;
    }

    /// Returns true if there is no cause.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Returns true if a cause collected has a property; those only counted are not asked.
    #[must_use]
    pub fn any(&self, has: impl FnMut(&StatusCause) -> bool) -> bool {
        self.first.iter().any(has)
    }

    /// Returns the causes collected, and the number of those only counted.
    #[must_use]
    pub fn into_parts(self) -> (Vec<StatusCause>, usize) {
        (self.first, self.more)
    }
}

impl Extend<StatusCause> for Causes {
    fn extend<I: IntoIterator<Item = StatusCause>>(&mut self, causes: I) {
        causes.into_iter().for_each(|cause| self.push(cause));
    }
}

impl From<Vec<StatusCause>> for Causes {
    fn from(causes: Vec<StatusCause>) -> Self {
        let mut collected = Self::default();
        collected.extend(causes);
        collected
    }
}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}
