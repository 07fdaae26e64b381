//! Floods of connections, bodies and tables, over each way to the server.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use http_body_util::Full;
use hyper::body::{Body, Frame};
use tokio::{
    io::AsyncWriteExt as _,
    time::{sleep, sleep_until, timeout},
};

use super::{Size, types, victim::Victim};

const MIB: usize = 1 << 20;

/// Time of each flood.
const FLOOD_TIME: Duration = Duration::from_secs(6);

/// Opens connections that begin a request and go on by one byte a second. They come evenly within the first half.
pub(crate) async fn slowloris(victim: &Victim, size: Size) {
    let count = size.of(1_000, 40);
    let begun = tokio::time::Instant::now();
    let time = if size == Size::Full { FLOOD_TIME } else { Duration::from_millis(100) };
    let opening = (0..count).map(|index| {
        async move {
            sleep_until(begun + (time / 2).mul_f64(index as f64 / count as f64)).await;
            let mut stream = victim.connect().await?;
            // A head of HTTP/2 with 200 bytes, of which few come.
            let head: &[u8] = if victim.way.http2 {
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\xc8\x01\x05\0\0\0\x01"
            } else {
                b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nX-"
            };
            stream.write_all(head).await.ok()?;
            for _ in 0..time.as_secs() / 2 {
                sleep(Duration::from_secs(1)).await;
                stream.write_all(b"a").await.ok()?;
            }
            Some(())
        }
    });
    let held = join_all(opening).await;
    assert!(held.iter().flatten().count() > count / 2, "too few connections were possible");
}

/// A body of `left` bytes, made as it is sent.
struct Spaces {
    left: usize,
}

impl Body for Spaces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static PIECE: [u8; 64 << 10] = [b' '; 64 << 10];
        let bytes = self.left.min(PIECE.len());
        self.left -= bytes;
        Poll::Ready((bytes > 0).then(|| Ok(Frame::data(Bytes::from_static(&PIECE[..bytes])))))
    }
}

/// Sends bodies of 1 GB as fast as the server reads them, half of them with a declared length. They come evenly within
/// the first half.
pub(crate) async fn endless_bodies(victim: &Victim, size: Size) {
    let count = size.of(64, 4);
    let time = if size == Size::Full { FLOOD_TIME } else { Duration::from_millis(100) };
    let begun = tokio::time::Instant::now();
    let sending = (0..count).map(|index| async move {
        sleep_until(begun + (time / 2).mul_f64(index as f64 / count as f64)).await;
        let mut headers = vec![("content-type", "application/json")];
        if index % 2 == 0 {
            headers.push(("content-length", "1000000000"));
        }
        let body = Spaces { left: 1_000_000_000 };
        let sent = victim.ask(Method::POST, "/api/v1/namespaces/default/configmaps", &headers, body);
        timeout(Duration::from_secs(30), sent).await.expect("refused in time")
    });
    for code in join_all(sending).await {
        assert!(matches!(code, None | Some(413 | 429)), "{code:?}");
    }
}

/// Posts objects of 3 MiB, all at once: half of them long texts, half of them many small values, which are refused.
pub(crate) async fn large_bodies(victim: &Victim, size: Size) {
    let text = format!("{:?}", "x".repeat(1_000));
    let body = |item: &str| {
        let items = vec![item; size.of(3 * MIB - 200, 400_000) / (item.len() + 1)].join(",");
        let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"large-"},"x":["#;
        Bytes::from(format!("{head}{items}]}}"))
    };
    let bodies = [body(&text), body(r#"{"a":"b","c":[1,2,3]}"#)];
    let posting = (0..size.of(32, 4)).map(|index| {
        let headers = [("content-type", "application/json")];
        let body = Full::new(bodies[index % 2].clone());
        async move { victim.ask(Method::POST, "/api/v1/namespaces/default/configmaps", &headers, body).await }
    });
    for code in join_all(posting).await {
        assert!(matches!(code, None | Some(201 | 413 | 429)), "{code:?}");
    }
}

/// Requests tables whose cells each search a whole object, all at once.
pub(crate) async fn tables(victim: &Victim, size: Size) {
    let asking = (0..size.of(100, 4)).map(|_| {
        let headers = [("accept", types::AS_TABLE)];
        async move { victim.ask(Method::GET, "/apis/example.com/v1/wides", &headers, Full::new(Bytes::new())).await }
    });
    for code in join_all(asking).await {
        assert!(matches!(code, Some(200 | 429 | 503)), "{code:?}");
    }
}
