//! The rows: each is one promise of `cache_server::storage`.

mod cancelling;
mod following;
mod outages;
mod progress;
mod readers;
mod writing;

pub(crate) use cancelling::a_cancelled_write_happens_once_or_never;
pub(crate) use following::{
    a_state_under_writes_is_the_one_of_its_revision, a_stream_resumes_without_gap_or_repeat,
    an_unknown_position_is_refused, changes_arrive_in_commit_order,
};
pub(crate) use outages::{a_new_process_has_what_lasts_and_refuses_the_rest, an_outage_loses_and_repeats_nothing};
pub(crate) use progress::{a_confirmed_revision_covers_acknowledged_writes, progress_reaches_the_current_revision};
pub(crate) use readers::{a_reader_that_stops_holds_up_no_other_type, dropped_streams_leave_nothing_behind};
pub(crate) use writing::{
    a_list_under_writes_is_the_state_of_its_revision, a_write_depends_on_its_cause, one_of_many_equal_writes_is_done,
    writes_have_the_outcomes_of_their_expectations,
};

/// Clients that write at the same time.
const WRITERS: usize = 64;

/// Writes of each of them. Each fourth one deletes, and the last one does not.
const WRITES: u64 = 7;
