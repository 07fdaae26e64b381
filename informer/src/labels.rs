//! The values of metric labels and log fields, spelled alike in both.

use informer_core::reflector::{Class, Ending, FallBack, RelistCause};

pub(crate) const fn cause_text(cause: RelistCause) -> &'static str {
    match cause {
        RelistCause::Start => "start",
        RelistCause::Expired => "expired",
        RelistCause::TooLarge => "too_large",
        RelistCause::PageExpired => "page_expired",
        RelistCause::Interrupted => "interrupted",
        RelistCause::FellBack => "fell_back",
        RelistCause::NotResumable => "not_resumable",
        RelistCause::WatchForbidden => "watch_forbidden",
        RelistCause::Unproven => "unproven",
        RelistCause::Foreign => "foreign",
        RelistCause::HistoryReset => "history_reset",
        RelistCause::Refused => "refused",
        RelistCause::WentBack => "went_back",
    }
}

pub(crate) const fn fall_back_text(cause: FallBack) -> &'static str {
    match cause {
        FallBack::Refused => "refused",
        FallBack::Forbidden => "forbidden",
        FallBack::Stalled => "stalled",
        FallBack::Failures => "failures",
    }
}

pub(crate) const fn class_text(class: Class) -> &'static str {
    match class {
        Class::Expired => "expired",
        Class::TooLarge => "too_large",
        Class::Refused => "refused",
        Class::Forbidden => "forbidden",
        Class::TooMany => "too_many",
        Class::Connection => "connection",
        Class::Server => "server",
        Class::Malformed => "malformed",
    }
}

/// A failed session is named by the class of its failure.
pub(crate) const fn ending_text(ending: Ending) -> &'static str {
    match ending {
        Ending::Failed(class) => class_text(class),
        Ending::Closed => "closed",
        Ending::Unanswered => "unanswered",
        Ending::WentBack => "went_back",
        Ending::Unusable => "unusable",
        Ending::Endless => "endless",
        Ending::Unproven => "unproven",
        Ending::WatchForbidden => "watch_forbidden",
    }
}
