//! Attacks by requests that any program may send: lists, watches, roles and connections, only too many of them.

use std::{net::Ipv4Addr, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
use tests::http::{Client, with_query};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep, timeout_at},
};

use super::{Size, victim::Victim};

const ALL_PODS: &str = "/api/v1/pods";

/// Time for which a full attack repeats itself.
fn lasts(size: Size) -> Duration {
    Duration::from_millis(size.of(8_000, 1_000) as u64)
}

/// Posts roles of a few hundred bytes that multiply to many combinations, which their author lacks, all at once.
pub(crate) async fn multiplied_roles(victim: &Victim, size: Size) {
    let role = |parts: usize| {
        let values = |kind: &str| (0..parts).map(|index| format!("{kind}{index}")).collect::<Vec<_>>();
        let rule = json!({"apiGroups": values("g"), "resources": values("r"), "verbs": values("v"),
            "resourceNames": values("n")});
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"generateName": "multiplied-", "namespace": "owned"}, "rules": [rule]})
    };
    let client = victim.client();
    let post = |role: Value| async move {
        client.post("/apis/rbac.authorization.k8s.io/v1/namespaces/owned/roles", &role).await
    };
    for _ in 0..size.of(50, 2) {
        for answer in join_all([20, 20, 21, 30, 300].map(|parts| post(role(parts)))).await {
            assert!(answer.code == 403 || answer.code == 422, "{}", answer.code);
            assert!(answer.body.len() < 32 << 10, "{} bytes", answer.body.len());
        }
    }
}

/// Opens watches that have nothing to send: of a namespace without objects. All are accepted.
pub(crate) async fn empty_watches(victim: &Victim, size: Size) {
    let client = victim.client();
    let path = "/api/v1/namespaces/owned/pods?watch=1&timeoutSeconds=60";
    let watches = join_all((0..size.of(600, 600)).map(|_| client.try_watch(path))).await;
    let refused = watches.iter().filter(|watch| !watch.as_ref().is_ok_and(|watch| watch.code() == 200)).count();
    assert_eq!(refused, 0, "of {} watches", watches.len());
    sleep(lasts(size)).await;
}

/// Opens watches at any version with a selector that no object has.
pub(crate) async fn unmatched_watches(victim: &Victim, size: Size) {
    let client = victim.client();
    let query = [("watch", "1"), ("timeoutSeconds", "60"), ("resourceVersion", "0"), ("labelSelector", "no=such")];
    let path = with_query(ALL_PODS, &query);
    let watches = join_all((0..size.of(1_000, 60)).map(|_| client.try_watch(&path))).await;
    sleep(lasts(size)).await;
    drop(watches);
}

/// Repeats lists of all pods from so many programs, each of the next attacker.
async fn lists(victim: &Victim, size: Size, programs: usize, path: &str, headers: &[(&str, &str)]) {
    let end = Instant::now() + lasts(size);
    let clients = victim.clients().iter().cycle().take(programs);
    let listing = clients.map(|client| async move {
        while Instant::now() < end {
            let request = Client::request(http::Method::GET, path, headers, bytes::Bytes::new());
            let _ = timeout_at(end, client.try_send(request)).await;
        }
    });
    join_all(listing).await;
}

/// Sixteen programs of one user list all pods as YAML.
pub(crate) async fn yaml_lists(victim: &Victim, size: Size) {
    lists(&victim.alone(), size, 16, ALL_PODS, &[("accept", "application/yaml")]).await;
}

/// Sixteen programs of one user list all pods in protobuf.
pub(crate) async fn protobuf_lists(victim: &Victim, size: Size) {
    lists(&victim.alone(), size, 16, ALL_PODS, &[("accept", "application/vnd.kubernetes.protobuf")]).await;
}

/// Sixteen programs of one user list all pods with indentation.
pub(crate) async fn pretty_lists(victim: &Victim, size: Size) {
    lists(&victim.alone(), size, 16, "/api/v1/pods?pretty=1", &[]).await;
}

/// 64 programs of one user list all pods.
pub(crate) async fn many_lists(victim: &Victim, size: Size) {
    lists(&victim.alone(), size, 64, ALL_PODS, &[]).await;
}

/// Programs of fifty users list all pods as YAML.
pub(crate) async fn lists_of_users(victim: &Victim, size: Size) {
    lists(victim, size, 50, ALL_PODS, &[("accept", "application/yaml")]).await;
}

/// Sixteen programs of one user list by a selector of 1,500 conditions.
pub(crate) async fn selected_lists(victim: &Victim, size: Size) {
    let conditions: Vec<_> = (0..1_500).map(|index| format!("metadata.name!=v{index}")).collect();
    let path = with_query(ALL_PODS, &[("fieldSelector", &conditions.join(","))]);
    lists(&victim.alone(), size, 16, &path, &[]).await;
}

/// Begins to read lists of all pods, and reads on by a byte a second, or not at all.
async fn slow_lists(victim: &Victim, size: Size, count: usize, reads: bool) {
    let end = Instant::now() + lasts(size);
    let reading = (0..count).map(|_| async move {
        let mut stream = open_slowly(victim, ALL_PODS).await?;
        while Instant::now() < end {
            if reads {
                stream.read_u8().await.ok()?;
            }
            sleep(Duration::from_secs(1)).await;
        }
        Some(())
    });
    join_all(reading).await;
}

/// Begins to read lists of all pods, and pauses after each batch for longer than the server keeps seats for a response.
pub(crate) async fn pausing_lists(victim: &Victim, size: Size) {
    let end = Instant::now() + lasts(size);
    let reading = (0..size.of(200, 40)).map(|_| async move {
        let mut stream = open_slowly(victim, ALL_PODS).await?;
        let mut batch = vec![0; 64 << 10];
        while let Ok(Ok(_)) = timeout_at(end, stream.read_exact(&mut batch)).await {
            sleep(Duration::from_millis(150)).await;
        }
        Some(())
    });
    join_all(reading).await;
}

/// Sends a GET on a socket that receives little.
async fn open_slowly(victim: &Victim, path: &str) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.set_recv_buffer_size(4 << 10).ok()?;
    let mut stream = socket.connect(victim.address()).await.ok()?;
    let (host, authorization) = (victim.address(), victim.authorization()?);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {authorization}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    Some(stream)
}

pub(crate) async fn unread_lists(victim: &Victim, size: Size) {
    slow_lists(victim, size, size.of(200, 40), false).await;
}

pub(crate) async fn trickling_lists(victim: &Victim, size: Size) {
    slow_lists(victim, size, size.of(1_000, 60), true).await;
}

/// Opens as many connections from one address as this machine lets it, and sends nothing.
pub(crate) async fn silent_connections(victim: &Victim, size: Size) {
    let end = Instant::now() + lasts(size) + Duration::from_secs(4);
    let mut open = Vec::new();
    for _ in 0..size.of(19_400, 400) {
        let Ok(socket) = TcpSocket::new_v4() else { break };
        // Another address than that of the honest clients.
        if socket.bind((Ipv4Addr::new(127, 0, 0, 2), 0).into()).is_err() {
            break;
        }
        if let Ok(Ok(stream)) = timeout_at(end, socket.connect(victim.address())).await {
            open.push(stream);
        }
    }
    tokio::time::sleep_until(end).await;
}
