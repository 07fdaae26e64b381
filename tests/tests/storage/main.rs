//! One contract for all storages. Each row of `contract/rows` is written once and holds for each storage of `storages`.
//!
//! `broken` proves that the rows notice: each of them fails for storages that break the contract.
//! `listing` holds servers as processes to one more row: many objects listed under writes, in bounded memory.
//!
//! To add a storage: a file in `storages` that opens it, a module of tests below, and a server in `listing`.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod broken;
mod contract;
mod listing;
mod storages;

use contract::{hold, rows};

/// The server binary of all cases.
const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Defines a test for each row.
macro_rules! tests_of {
    ($open:path; $($row:ident),* $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $row() {
            if let Some(storage) = $open().await {
                super::hold(storage, super::rows::$row).await;
            }
        }
    )* };
}

/// The rows of a source: all that a cache relies on.
macro_rules! source_rows {
    ($then:ident!($($first:tt)*)) => { $then! { $($first)*
        changes_arrive_in_commit_order,
        a_state_under_writes_is_the_one_of_its_revision,
        a_stream_resumes_without_gap_or_repeat,
        an_unknown_position_is_refused,
        progress_reaches_the_current_revision,
        a_confirmed_revision_covers_acknowledged_writes,
        a_reader_that_stops_holds_up_no_other_type,
        a_new_process_has_what_lasts_and_refuses_the_rest,
        an_outage_loses_and_repeats_nothing,
    } };
}

/// The rows of a store beside those of a source.
macro_rules! store_rows {
    ($then:ident!($($first:tt)*)) => { $then! { $($first)*
        writes_have_the_outcomes_of_their_expectations,
        a_write_depends_on_its_cause,
        one_of_many_equal_writes_is_done,
        a_list_under_writes_is_the_state_of_its_revision,
        a_cancelled_write_happens_once_or_never,
        dropped_streams_leave_nothing_behind,
    } };
}

/// All rows by name, for storages that cannot start anew for each.
macro_rules! table {
    ($(#[$docs:meta])* $name:ident; $($row:ident),* $(,)?) => {
        $(#[$docs])*
        const $name: &[(&str, contract::Row)] = &[$((stringify!($row), |scene| Box::pin(rows::$row(scene)))),*];
    };
}

source_rows!(table!(
    /// The rows of a source.
    SOURCE_ROWS;
));
store_rows!(table!(
    /// The rows of a store beside those of a source.
    STORE_ROWS;
));

mod memory {
    source_rows!(tests_of!(super::storages::memory;));
    store_rows!(tests_of!(super::storages::memory;));
}

mod redb {
    source_rows!(tests_of!(super::storages::durable;));
    store_rows!(tests_of!(super::storages::durable;));
}

/// An API server: another process of this server, and a stock kube-apiserver if it was built.
mod upstream {
    use std::sync::Arc;

    use tests::genuine::Genuine;

    use super::{
        SOURCE_ROWS,
        contract::{Breach, Scene},
        storages::ApiServer,
    };

    source_rows!(tests_of!(super::storages::upstream;));

    /// Goal: see the rows. Method: all of them at one kube-apiserver, as each start takes ten seconds.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_stock_kube_apiserver_holds_to_all_rows() {
        let Some(genuine) = Genuine::start("storage contract").await else { return };
        for (at, (name, row)) in SOURCE_ROWS.iter().enumerate() {
            let namespace = format!("row{at}");
            let server = ApiServer::genuine(&genuine, &namespace).await;
            let scene = Arc::new(Scene::new(Box::new(server), namespace));
            row(scene).await.unwrap_or_else(|Breach(breach)| panic!("{name}: {breach}"));
        }
    }
}

/// A server of two on one etcd.
mod etcd {
    source_rows!(tests_of!(super::storages::etcd;));
    store_rows!(tests_of!(super::storages::etcd;));
}
