//! Rights of open watches: one for equal callers and reads, and their withdrawal.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    task::{Context, Wake, Waker},
    time::Duration,
};

use informer_serving::{
    query::Query,
    status::{Status, StatusExt as _},
};

use super::*;
use crate::term::WatchTerm;

fn right(user: &str, path: &str) -> (Arc<Caller>, Arc<RequestInfo>) {
    let caller = Caller::without_credentials(User::authenticated(user, []));
    (caller, Arc::new(RequestInfo::new("GET", path, &Query::default())))
}

#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn equal_rights_are_held_once_and_only_while_a_watch_needs_them() {
    let leases = Arc::new(WatchLeases::default());
    let open = |user, path| {
        let (caller, info) = right(user, path);
        leases.open(&caller, &info, None, false)
    };
    let pods = [open("a", "/api/v1/pods"), open("a", "/api/v1/pods")];
    let others = [open("b", "/api/v1/pods"), open("a", "/api/v1/nodes")];
    assert_eq!(leases.in_turn().len(), 3);
    let [first, second] = pods;
    drop(first);
    assert_eq!(leases.in_turn().len(), 3);
    drop((second, others));
    assert_eq!(leases.in_turn().len(), 0);
}

#[test]
fn a_withdrawal_wakes_the_watches_of_its_right_only() {
    let leases = Arc::new(WatchLeases::default());
    let (caller, info) = right("a", "/api/v1/pods");
    let (lease, twin) = (leases.open(&caller, &info, None, false), leases.open(&caller, &info, None, false));
    let (caller, info) = right("b", "/api/v1/pods");
    let other = leases.open(&caller, &info, None, false);
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    let cx = Context::from_waker(&waker);
    for lease in [&lease, &twin, &other] {
        assert!(lease.poll_withdrawn(&cx).is_pending());
    }
    lease.right.withdraw();
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
    assert!(lease.poll_withdrawn(&cx).is_ready() && twin.poll_withdrawn(&cx).is_ready());
    assert!(other.poll_withdrawn(&cx).is_pending());
}

/// Goal: a refusal ends a watch in time, another error of the authorizer does not. Method: each Status for one pass.
#[tokio::test(start_paused = true)]
async fn only_refusals_withdraw_a_right() {
    for (answer, withdrawn) in [
        (Ok(()), false),
        (Err(Status::unauthorized()), true),
        (Err(Status::forbidden("", "pods", "", "no")), true),
        (Err(Status::unavailable("away")), false),
        (Err(Status::too_many_requests("later", 1)), false),
    ] {
        let leases = Arc::new(WatchLeases::default());
        let (caller, info) = right("a", "/api/v1/pods");
        let lease = leases.open(&caller, &info, None, false);
        let term = WatchTerm::new(Instant::now() + Duration::from_secs(3_600), Some(lease.withdrawal()));
        let given = answer.clone();
        let checking = keep_checking(Arc::downgrade(&leases), None, move |_| std::future::ready(given.clone()));
        let checking = tokio::spawn(checking);
        let began = Instant::now();
        let is_over = tokio::time::timeout(crate::limits::WITHDRAWAL_WAIT, term.over()).await.is_ok();
        assert_eq!(is_over, withdrawn, "{answer:?} after {:?}", began.elapsed());
        checking.abort();
    }
}

/// Goal: a user with many rights does not prolong the right of another one. Method: 20,000 rights, whose checks take 16 s
/// in all, and one right that is withdrawn meanwhile.
#[tokio::test(start_paused = true)]
async fn a_user_with_many_rights_delays_no_other_user() {
    let leases = Arc::new(WatchLeases::default());
    let open = |user: &str, path: &str| {
        let (caller, info) = right(user, path);
        leases.open(&caller, &info, None, false)
    };
    let greedy: Vec<_> =
        (0..20_000).map(|number| open("greedy", &format!("/api/v1/namespaces/n{number}/pods"))).collect();
    let modest = open("modest", "/api/v1/pods");
    let is_refused = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&is_refused);
    let checking = tokio::spawn(keep_checking(Arc::downgrade(&leases), None, move |right| {
        let refused = Arc::clone(&refused);
        async move {
            sleep(Duration::from_millis(50)).await;
            let is_refused = right.caller.user.name == "modest" && refused.load(Ordering::Relaxed);
            if is_refused { Err(Status::unauthorized()) } else { Ok(()) }
        }
    }));
    // The checks of the greedy user have begun.
    sleep(RECHECK_EVERY + Duration::from_secs(1)).await;
    is_refused.store(true, Ordering::Relaxed);
    let began = Instant::now();
    modest.right.withdrawal.withdrawn().await;
    let took = began.elapsed();
    assert!(took <= RECHECK_EVERY + Duration::from_millis(500), "{took:?}");
    sleep(Duration::from_secs(60)).await;
    let oldest = greedy.iter().map(|lease| lease.right.checked.lock().elapsed()).max().unwrap_or_default();
    assert!(oldest < Duration::from_secs(20), "each right is checked in its turn: {oldest:?}");
    checking.abort();
}

/// Goal: a change of the policies acts at once. Method: a notice, long before the next regular check.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_policies_is_acted_upon_at_once() {
    let leases = Arc::new(WatchLeases::default());
    let (caller, info) = right("a", "/api/v1/pods");
    let lease = leases.open(&caller, &info, None, false);
    let (policies, changes) = watch::channel(0);
    let refuse = |_| std::future::ready(Err(Status::forbidden("", "pods", "", "no")));
    let checking = tokio::spawn(keep_checking(Arc::downgrade(&leases), Some(changes), refuse));
    tokio::task::yield_now().await;
    let began = Instant::now();
    policies.send_replace(1);
    lease.right.withdrawal.withdrawn().await;
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    drop(leases);
    drop(lease);
    checking.await.expect("ends with the server");
}
