//! The values of log fields that belong to no type of the public API. They are spelled as in metrics.

use informer_core::reflector::Ending;

/// A failed session is named by the class of its failure.
pub(crate) const fn ending_text(ending: Ending) -> &'static str {
    match ending {
        Ending::Failed(class) => class.as_str(),
        Ending::Closed => "closed",
        Ending::Unanswered => "unanswered",
        Ending::WentBack => "went_back",
        Ending::Unusable => "unusable",
        Ending::Endless => "endless",
        Ending::Unproven => "unproven",
        Ending::WatchForbidden => "watch_forbidden",
    }
}
