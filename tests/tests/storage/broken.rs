//! Storages that break the contract in one way each. Each row must notice some of them.

mod reference;
mod streams;

use std::sync::Arc;

use self::reference::Reference;
use crate::{
    SOURCE_ROWS, STORE_ROWS,
    contract::{Breach, Held, Row, Scene},
};

/// Way in which a storage breaks the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    // In its streams.
    DropsChanges,
    DropsDeletions,
    RepeatsChanges,
    SwapsChanges,
    SendsOldContent,
    ForgetsProgress,
    ProgressBeforeChanges,
    StateLacksObject,
    StateHasLaterRevision,
    StateRepeated,
    // In streams after a position.
    ResumesWithGap,
    ResumesWithRepeat,
    AcceptsUnknownPositions,
    AcceptsForeignPositions,
    // In its answers.
    CurrentIsOld,
    CurrentOfTypeOnly,
    ConfirmedIsOld,
    // In its writes.
    AcknowledgesUnwritten,
    IgnoresExpectations,
    IgnoresCauses,
    WrongConflict,
    WrongRefusal,
    DeletionReturnsOther,
    RevisionPerType,
    ListIsOld,
    ListMixesRevisions,
    // When a caller leaves.
    StuckAfterCancel,
    CancelledIsHidden,
    CancelledIsRepeated,
    // When readers stop or leave.
    StalledReaderBlocksAll,
    LeaksStreams,
    KeepsReplacedVersions,
    // In outages.
    DeniesWritten,
    GapAfterOutage,
    CurrentWhileAway,
    // In the next process.
    LosesObjects,
    LosesLastWrite,
}

/// The faults that each row must notice.
const NOTICED: &[(&str, &[Fault])] = &[
    (
        "changes_arrive_in_commit_order",
        &[
            Fault::DropsChanges,
            Fault::DropsDeletions,
            Fault::SwapsChanges,
            Fault::SendsOldContent,
            Fault::ProgressBeforeChanges,
            Fault::StateLacksObject,
            Fault::AcknowledgesUnwritten,
        ],
    ),
    (
        "a_state_under_writes_is_the_one_of_its_revision",
        &[Fault::RepeatsChanges, Fault::StateHasLaterRevision, Fault::RevisionPerType],
    ),
    (
        "a_stream_resumes_without_gap_or_repeat",
        &[Fault::StateRepeated, Fault::ResumesWithGap, Fault::ResumesWithRepeat],
    ),
    ("an_unknown_position_is_refused", &[Fault::AcceptsUnknownPositions]),
    ("progress_reaches_the_current_revision", &[Fault::ForgetsProgress, Fault::CurrentIsOld, Fault::CurrentOfTypeOnly]),
    ("a_confirmed_revision_covers_acknowledged_writes", &[Fault::ConfirmedIsOld]),
    ("a_reader_that_stops_holds_up_no_other_type", &[Fault::StalledReaderBlocksAll]),
    (
        "a_new_process_has_what_lasts_and_refuses_the_rest",
        &[Fault::AcceptsForeignPositions, Fault::LosesObjects, Fault::LosesLastWrite],
    ),
    ("an_outage_loses_and_repeats_nothing", &[Fault::DeniesWritten, Fault::GapAfterOutage, Fault::CurrentWhileAway]),
    (
        "writes_have_the_outcomes_of_their_expectations",
        &[Fault::WrongConflict, Fault::WrongRefusal, Fault::DeletionReturnsOther],
    ),
    ("a_write_depends_on_its_cause", &[Fault::IgnoresCauses]),
    ("one_of_many_equal_writes_is_done", &[Fault::IgnoresExpectations]),
    ("a_list_under_writes_is_the_state_of_its_revision", &[Fault::ListIsOld, Fault::ListMixesRevisions]),
    (
        "a_cancelled_write_happens_once_or_never",
        &[Fault::StuckAfterCancel, Fault::CancelledIsHidden, Fault::CancelledIsRepeated],
    ),
    ("dropped_streams_leave_nothing_behind", &[Fault::LeaksStreams, Fault::KeepsReplacedVersions]),
];

/// Runs a row on the reference storage with a fault.
async fn run(row: Row, fault: Option<Fault>) -> Held {
    let scene = Arc::new(Scene::new(Box::new(Reference::new(fault)), "n".to_owned()));
    row(scene).await
}

/// Goal: rows notice. Method: each row on a storage that keeps the contract, and on one for each fault that it must notice;
/// time is paused, so that a row that waits in vain costs none.
#[tokio::test(start_paused = true)]
async fn each_row_notices_its_faults() {
    for (name, row) in SOURCE_ROWS.iter().chain(STORE_ROWS) {
        run(*row, None).await.unwrap_or_else(|Breach(breach)| panic!("{name} fails for the reference: {breach}"));
        let faults = NOTICED.iter().find(|(noticed_by, _)| noticed_by == name);
        for fault in faults.unwrap_or_else(|| panic!("no fault is known that {name} notices")).1 {
            let Err(Breach(breach)) = run(*row, Some(*fault)).await else {
                panic!("{name} holds for a storage that {fault:?}");
            };
            println!("{name}: {fault:?}: {breach}");
        }
    }
}
