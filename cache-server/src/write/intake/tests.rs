//! Goal: a body costs its length, and stalled bodies block no others. Method: bodies fed by hand, in paused time.

use std::convert::Infallible;

use futures::{StreamExt as _, channel::mpsc, future::join_all};
use http_body_util::{Full, StreamBody};

use super::*;
use crate::{
    budget::Room,
    limits::{BODIES_BYTES_MAX, CONNECTION_BODIES_BYTES_MAX, ROOM_WAIT, SMALL_BODIES_BYTES_MAX},
};

type Piece = Result<Frame<Bytes>, Infallible>;
type Pieces = mpsc::UnboundedSender<Piece>;

/// Returns a body of unknown length, and the sender that feeds it.
fn chunked() -> (Pieces, StreamBody<mpsc::UnboundedReceiver<Piece>>) {
    let (pieces, body) = mpsc::unbounded();
    (pieces, StreamBody::new(body))
}

fn send(pieces: &Pieces, bytes: usize) {
    pieces.unbounded_send(Ok(Frame::data(Bytes::from(vec![b'x'; bytes])))).expect("is read");
}

async fn read_from<B>(body: B, server: &Room, connection: Option<&Room>) -> Result<Whole, (u16, String)>
where
    B: http_body::Body<Error = Infallible>,
{
    let read = read(std::pin::pin!(body), Rooms { server, connection }).await;
    read.map_err(|status| (status.code, status.message))
}

fn full(bytes: usize) -> Full<Bytes> {
    Full::new(Bytes::from(vec![b'x'; bytes]))
}

const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_body_costs_its_bytes_and_gives_them_back() {
    let server = Room::of_server();
    let (pieces, body) = chunked();
    (0..MIB).for_each(|_| send(&pieces, 1));
    drop(pieces);
    let whole = read_from(body, &server, None).await.expect("arrives");
    assert_eq!((whole.bytes.len(), BODIES_BYTES_MAX - server.pool(true).free()), (MIB, MIB));
    drop(whole);
    let whole = read_from(full(3 * MIB), &server, None).await.expect("arrives");
    assert_eq!(BODIES_BYTES_MAX - server.pool(true).free(), 3 * MIB);
    assert_eq!(server.pool(false).free(), SMALL_BODIES_BYTES_MAX, "a large body has none of the small ones' room");
    drop(whole);
    assert_eq!(server.pool(true).free(), BODIES_BYTES_MAX);
    assert!(read_from(full(0), &server, None).await.expect("an empty one").bytes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_is_refused_and_costs_nothing() {
    let server = Room::of_server();
    let refused = Err((413, "Request entity too large: limit is 3145728".to_owned()));
    assert_eq!(read_from(full(3 * MIB + 1), &server, None).await.map(drop), refused);
    let (pieces, body) = chunked();
    (0..4).for_each(|_| send(&pieces, MIB));
    assert_eq!(read_from(body, &server, None).await.map(drop), refused);
    assert_eq!(server.pool(true).free(), BODIES_BYTES_MAX);
}

/// Goal: one connection cannot take more than its budget. Method: enough streams to fill it twice.
#[tokio::test(start_paused = true)]
async fn the_bodies_of_one_connection_leave_room_to_others() {
    let (server, connection) = (Room::of_server(), Room::of_connection());
    let streams = 2 * CONNECTION_BODIES_BYTES_MAX / REQUEST_BODY_BYTES_MAX;
    let read = join_all((0..streams).map(|_| read_from(full(3 * MIB), &server, Some(&connection))));
    let (held, refused): (Vec<_>, Vec<_>) = read.await.into_iter().partition(Result::is_ok);
    assert_eq!(held.len(), CONNECTION_BODIES_BYTES_MAX / REQUEST_BODY_BYTES_MAX);
    assert!(refused.iter().all(|read| matches!(read, Err((429, _)))), "{} are told to come again", refused.len());
    assert!(server.pool(true).free() > BODIES_BYTES_MAX / 2);
    read_from(full(3 * MIB), &server, Some(&Room::of_connection())).await.expect("another connection has room");
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_held_back_keep_nobody_out() {
    let server = Room::of_server();
    let began = Instant::now();
    // Send all but the last byte of as many bodies as the budget admits.
    let held: Vec<_> = (0..BODIES_BYTES_MAX / (3 * MIB))
        .map(|_| {
            let (pieces, body) = chunked();
            send(&pieces, 3 * MIB - 1);
            let server = server.clone();
            (pieces, tokio::spawn(async move { read_from(body, &server, None).await.map(drop) }))
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(server.pool(true).free() < 3 * MIB);
    read_from(full(3 * MIB), &server, None).await.expect("has room once others are late");
    assert!(began.elapsed() >= BODY_RATE_AFTER && began.elapsed() < ROOM_WAIT, "{:?}", began.elapsed());
    for (_pieces, body) in held {
        let late = body.await.expect("no panic").expect_err("is late");
        assert_eq!(late.0, 504);
    }
    // While no other body needs its budget, a stalled body may wait for as long as a request.
    let (_pieces, body) = chunked();
    let began = Instant::now();
    assert_eq!(read_from(body, &server, None).await.map(drop).expect_err("never comes").0, 504);
    assert_eq!(began.elapsed(), BODY_WAIT);
}

/// Goal: stalled bodies never delay a small write. Method: all budgets are taken, for small bodies too.
#[tokio::test(start_paused = true)]
async fn a_small_body_waits_for_none_that_is_held_back() {
    let server = Room::of_server();
    let hold = |bytes: usize| {
        let (pieces, body) = chunked();
        send(&pieces, bytes);
        let server = server.clone();
        (pieces, tokio::spawn(async move { read_from(body, &server, None).await.map(drop) }))
    };
    let _large: Vec<_> = (0..BODIES_BYTES_MAX / (3 * MIB) + 1).map(|_| hold(3 * MIB - 1)).collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    let (pieces, body) = chunked();
    send(&pieces, 1_000);
    drop(pieces);
    read_from(body, &server, None).await.expect("large bodies have another room");
    assert_eq!(began.elapsed(), Duration::ZERO);
    let _small: Vec<_> =
        (0..SMALL_BODIES_BYTES_MAX / BODY_PIECEMEAL_BYTES).map(|_| hold(BODY_PIECEMEAL_BYTES)).collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(server.pool(false).free(), 0);
    let began = Instant::now();
    read_from(full(BODY_PIECEMEAL_BYTES), &server, None).await.expect("is complete already");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Goal: partially received bodies do not deadlock. Method: three times as many bodies as the budget admits at once,
/// each read when it gets its budget.
#[tokio::test(start_paused = true)]
async fn more_bodies_than_fit_are_read_in_turn() {
    let server = Room::of_server();
    let bodies = (0..3 * BODIES_BYTES_MAX / REQUEST_BODY_BYTES_MAX).map(|_| {
        let pieces = futures::stream::iter((0..12).map(|_| Bytes::from(vec![b'x'; 256 << 10])));
        let pieces = pieces.then(async |piece| {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok::<_, Infallible>(Frame::data(piece))
        });
        let server = server.clone();
        async move { read_from(StreamBody::new(Box::pin(pieces)), &server, None).await.map(|whole| whole.bytes.len()) }
    });
    assert!(join_all(bodies).await.into_iter().all(|read| read == Ok(3 * MIB)));
}
