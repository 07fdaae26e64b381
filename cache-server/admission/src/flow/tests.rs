//! Waits, cancellations, parked bodies and changed levels, with a paused clock.

use futures::FutureExt as _;
use informer_serving::query::Query;
use tokio::time::advance;

use super::*;
use crate::{
    limits::SEAT_WAIT,
    testing::{OTHER_SEATS, objects},
};

/// Flow control whose users, but for masters, share a level of `seats` seats, with one queue of `length` requests.
fn limited(seats: u32, length: u32) -> Arc<FlowControl> {
    let flow = Arc::new(FlowControl::new(seats + OTHER_SEATS));
    flow.configure(objects(seats, length));
    flow
}

fn arrive(flow: &Arc<FlowControl>) -> FlowAdmission {
    arrive_with(flow, RequestCost::One)
}

fn arrive_with(flow: &Arc<FlowControl>, cost: RequestCost) -> FlowAdmission {
    let info = RequestInfo::new("GET", "/api/v1/pods", &Query::default());
    flow.arrive(&User::authenticated("a", []), &info, || cost)
}

fn seated(admission: FlowAdmission) -> Seat {
    let FlowAdmission::Seated(seat) = admission else { panic!("a seat is free") };
    seat
}

fn waits(admission: FlowAdmission) -> SeatWait {
    let FlowAdmission::Waits(wait) = admission else { panic!("no seat is free") };
    wait
}

fn metric(flow: &FlowControl, name: &str) -> String {
    let mut registry = MetricsRegistry::default();
    flow.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let prefix = format!("apiserver_flowcontrol_{name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("{name} in\n{text}")).to_owned()
}

const ALL: &str = r#"{priority_level="all",flow_schema="all"}"#;

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_another_gives_its_seat_back() {
    let flow = limited(1, 5);
    let first = seated(arrive(&flow));
    assert_eq!(first.headers().schema.unwrap(), "schema-uid");
    assert_eq!(first.headers().level.unwrap(), "level-uid");
    let second = waits(arrive(&flow));
    assert_eq!(metric(&flow, &format!("current_inqueue_requests{ALL}")), "1");
    advance(Duration::from_millis(300)).await;
    drop(first);
    let second = second.seated(Duration::from_secs(1)).await.expect("the seat is free");
    assert_eq!(metric(&flow, &format!("current_executing_seats{ALL}")), "1");
    let waited = r#"request_wait_duration_seconds_sum{priority_level="all",flow_schema="all",execute="true"}"#;
    assert_eq!(metric(&flow, waited), "0.3");
    drop(second);
    assert_eq!(metric(&flow, &format!("dispatched_requests_total{ALL}")), "2");
    assert_eq!(metric(&flow, &format!("current_executing_requests{ALL}")), "0");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_too_long_or_finds_no_place_is_refused() {
    let flow = limited(1, 1);
    let seat = seated(arrive(&flow));
    let wait = waits(arrive(&flow));
    let FlowAdmission::Refused(refused) = arrive(&flow) else { panic!("the queue is full") };
    assert_eq!(flow.refuse(&refused.0, refused.1).retry_after, 1);
    let began = Instant::now();
    let refusal = wait.seated(Duration::from_secs(15)).await.err().expect("too long");
    assert_eq!((began.elapsed(), refusal.retry_after), (Duration::from_secs(15), 1));
    assert_eq!(refusal.headers.level.unwrap(), "level-uid");
    for (reason, count) in [("queue-full", "1"), ("time-out", "1"), ("concurrency-limit", "0")] {
        let name = format!(r#"rejected_requests_total{{priority_level="all",flow_schema="all",reason="{reason}"}}"#);
        assert_eq!(metric(&flow, &name), count, "{reason}");
    }
    // Its place is free again.
    let wait = waits(arrive(&flow));
    drop(seat);
    assert!(wait.seated(Duration::from_secs(1)).await.is_ok());
}

/// Goal: no seat is lost if a client leaves. Method: waits that are dropped before and after they got the seat.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_gives_seat_and_place_back() {
    let flow = limited(1, 5);
    let seat = seated(arrive(&flow));
    let (gone, granted, last) = (waits(arrive(&flow)), waits(arrive(&flow)), waits(arrive(&flow)));
    drop(gone);
    drop(seat);
    // It has the seat now, but did not take it from the channel.
    drop(granted);
    let last = last.seated(Duration::ZERO).await.expect("the seat");
    drop(last);
    assert_eq!(metric(&flow, &format!("current_inqueue_requests{ALL}")), "0");
    assert_eq!(metric(&flow, &format!("current_executing_seats{ALL}")), "0");
    drop(seated(arrive(&flow)));
}

#[tokio::test(start_paused = true)]
async fn exempt_callers_never_wait() {
    let flow = limited(1, 1);
    let info = RequestInfo::new("GET", "/api/v1/pods", &Query::default());
    let arrive = || flow.arrive(&User::unsecured(), &info, || panic!("the cost does not matter"));
    let seats: Vec<_> = (0..1_000).map(|_| seated(arrive())).collect();
    assert!(seats.iter().all(Seat::is_exempt));
    let exempt = r#"current_executing_requests{priority_level="exempt",flow_schema="exempt"}"#;
    assert_eq!(metric(&flow, exempt), "1000");
    flow.check();
    drop(seats);
    assert_eq!(metric(&flow, exempt), "0");
    drop(seated(tests::arrive(&flow)));
}

#[tokio::test(start_paused = true)]
async fn a_wide_list_has_several_seats() {
    let flow = limited(10, 5);
    let list = |objects| RequestCost::Collection { objects, limit: None, selects: false };
    // A level with one queue of one card lets a request have 15 % of its seats.
    let seats = [seated(arrive_with(&flow, list(1_000))), seated(arrive_with(&flow, list(50)))];
    assert_eq!(metric(&flow, &format!("current_executing_seats{ALL}")), "3");
    drop(seats);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_keep_their_places_when_their_level_is_gone() {
    let flow = limited(1, 5);
    let seat = seated(arrive(&flow));
    let wait = waits(arrive(&flow));
    flow.configure([]);
    drop(seated(arrive(&flow)));
    drop(seat);
    drop(wait.seated(Duration::from_secs(1)).await.expect("the seat of the level that is gone"));
    let known = flow.measures_text();
    assert!(!known.contains(r#"flow_schema="all""#), "{known}");
    advance(Duration::from_secs(11)).await;
    flow.check();
    let known = flow.measures_text();
    assert!(!known.contains(r#"priority_level="all""#), "{known}");
    flow.configure(objects(1, 5));
    assert!(seated(arrive(&flow)).headers().schema.is_some());
}

/// Goal: no series outlives its schema for long. Method: a wait that begins before the schema is deleted, and fails after it.
#[tokio::test(start_paused = true)]
async fn refusals_after_the_end_of_a_schema_leave_no_series() {
    let flow = limited(1, 5);
    let seat = seated(arrive(&flow));
    let wait = waits(arrive(&flow));
    flow.configure([]);
    assert!(wait.seated(Duration::from_secs(15)).await.is_err(), "the seat is in use");
    drop(seat);
    flow.configure([]);
    let known = flow.measures_text();
    assert!(!known.contains(r#"flow_schema="all""#), "{known}");
}

impl FlowControl {
    fn measures_text(&self) -> String {
        let mut registry = MetricsRegistry::default();
        self.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }
}

/// Goal: a client that does not read blocks no others. Method: a body without progress, beside one with some.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_read_gives_its_seats_back() {
    let flow = limited(2, 5);
    let (parked, read) = (SeatHold::new(seated(arrive(&flow))), SeatHold::new(seated(arrive(&flow))));
    let wait = waits(arrive(&flow));
    for _ in 0..5 {
        advance(SEAT_PARKED / 4).await;
        read.on_progress();
        flow.check();
    }
    let seat = wait.seated(Duration::ZERO).await.expect("the seat of the parked body");
    assert_eq!(metric(&flow, &format!("current_executing_seats{ALL}")), "2", "one of both, and the one that waited");
    drop((parked, seat));
    assert_eq!(metric(&flow, &format!("current_executing_seats{ALL}")), "1");
    drop(read);
    assert_eq!(metric(&flow, &format!("current_executing_seats{ALL}")), "0");
    assert!(flow.held.is_empty());
}

/// Waits until the body may make its next part.
fn goes_on(body: &mut SeatHold) -> impl Future<Output = Result<(), FlowRefusal>> {
    std::future::poll_fn(|cx| body.poll_seats(cx))
}

/// Goal: a body that its client reads again works with its seats only, and waits for them for a bounded time. Method: a
/// body that was not read, beside requests with the only seat and the only place.
#[tokio::test(start_paused = true)]
async fn a_body_that_goes_on_waits_for_its_seats() {
    let flow = limited(1, 1);
    let seats = || metric(&flow, &format!("current_executing_seats{ALL}"));
    let park = async || {
        advance(2 * SEAT_PARKED).await;
        flow.check();
    };
    let mut body = SeatHold::new(seated(arrive(&flow)));
    park().await;
    let other = seated(arrive(&flow));
    assert!(goes_on(&mut body).now_or_never().is_none());
    assert_eq!(metric(&flow, &format!("current_inqueue_requests{ALL}")), "1", "as any request");
    drop(other);
    goes_on(&mut body).await.expect("the seat is free");
    park().await;
    assert_eq!(seats(), "1", "it works: its client is not to blame");
    body.on_progress();
    park().await;
    assert_eq!(seats(), "0");

    let (other, began) = (seated(arrive(&flow)), Instant::now());
    goes_on(&mut body).await.expect_err("the seat never becomes free");
    assert_eq!(began.elapsed(), SEAT_WAIT);
    let wait = waits(arrive(&flow));
    let began = Instant::now();
    goes_on(&mut body).await.expect_err("the queue is full");
    assert_eq!(began.elapsed(), SEAT_WAIT);
    let leaving = async {
        sleep(Duration::from_secs(1)).await;
        drop((wait, other));
    };
    let (again, ()) = futures::join!(goes_on(&mut body), leaving);
    again.expect("it tries full queues again");

    body.on_progress();
    park().await;
    let other = seated(arrive(&flow));
    assert!(goes_on(&mut body).now_or_never().is_none());
    drop(body);
    assert_eq!(metric(&flow, &format!("current_inqueue_requests{ALL}")), "0", "its client left");
    drop(other);
    assert!(seats() == "0" && flow.held.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_level_is_removed_goes_on_without_seats() {
    let flow = limited(1, 1);
    let mut body = SeatHold::new(seated(arrive(&flow)));
    advance(2 * SEAT_PARKED).await;
    flow.check();
    flow.configure([]);
    goes_on(&mut body).await.expect("it needs none");
}
