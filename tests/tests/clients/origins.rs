//! Cross-origin pages: what a browser on this machine lets them do with the server.
//!
//! Goal: they can do nothing, whatever credentials the browser adds. Method: the requests that browsers send, with the
//! headers they add, and a client certificate; then a real Chromium with such a page.

use http::Method;
use serde_json::json;
use tests::{
    http::{Answer, Client},
    process::Server,
    tls::Authority,
};

use super::{SERVER, chromium::Chromium};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(client: Client, method: Method, path: &str, headers: &[(&str, &str)], name: &str) -> Answer {
    let body = match method {
        Method::DELETE => Vec::new(),
        _ => json!({"metadata": {"name": name}}).to_string().into_bytes(),
    };
    client.send(Client::request(method, path, headers, body.into())).await
}

#[tokio::test]
async fn pages_of_other_sites_are_not_served() {
    let server = Server::start(SERVER, &[]).await;
    let object = format!("{CONFIGMAPS}/a");
    send(server.client(), Method::POST, CONFIGMAPS, &[], "a").await.with_code(201);
    for client in [server.client(), server.client().over_http2()] {
        for headers in [
            &[("origin", "https://evil.example")][..],
            &[("origin", "null")],
            &[("origin", "http://localhost:1")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site"), ("content-type", "application/json")],
            &[("origin", "https://evil.example"), ("content-type", "text/plain")],
        ] {
            for (method, path) in [
                (Method::GET, CONFIGMAPS),
                (Method::GET, "/livez"),
                (Method::OPTIONS, CONFIGMAPS),
                (Method::POST, CONFIGMAPS),
                (Method::PUT, object.as_str()),
                (Method::PATCH, object.as_str()),
                (Method::DELETE, object.as_str()),
                (Method::DELETE, CONFIGMAPS),
            ] {
                let answer = send(client, method, path, headers, "b").await.with_code(403);
                assert_eq!(answer.json()["reason"], "Forbidden");
                assert!(answer.message().contains("another origin"), "{}", answer.message());
            }
        }
    }
    assert_eq!(server.client().get(CONFIGMAPS).await.keys(), ["default/a"]);
    let metrics = server.client().get("/metrics").await;
    let refused = r#"apiserver_request_total{verb="OTHER",resource="",code="403"} 96"#;
    assert!(metrics.text().contains(refused), "refusals are counted: {}", metrics.text());
}

#[tokio::test]
async fn pages_of_the_server_itself_write_with_a_content_type() {
    let server = Server::start(SERVER, &[]).await;
    let own = format!("http://{}", server.address());
    let page = [("origin", own.as_str()), ("sec-fetch-site", "same-origin")];
    for (content_type, code) in [("", 415), (" ", 415), ("text/plain", 415), ("application/json", 201)] {
        let mut headers = page.to_vec();
        headers.extend((!content_type.is_empty()).then_some(("content-type", content_type)));
        send(server.client(), Method::POST, CONFIGMAPS, &headers, "a").await.with_code(code);
    }
    send(server.client(), Method::POST, CONFIGMAPS, &page, "b").await.with_code(415);
    send(server.client().over_http2(), Method::DELETE, &format!("{CONFIGMAPS}/a"), &page, "").await.with_code(200);
    // Programs send no Origin, and some send no content type.
    send(server.client(), Method::POST, CONFIGMAPS, &[("sec-fetch-site", "none")], "c").await.with_code(201);
}

#[tokio::test]
async fn browsers_take_no_answer_for_another_type() {
    let server = Server::start(SERVER, &[]).await;
    for path in ["/api/v1/pods", "/api/v1/namespaces/a/pods/none", "/metrics", "/livez", "/none", "/openapi/v3"] {
        assert_eq!(server.client().get(path).await.header("x-content-type-options"), "nosniff", "{path}");
    }
}

/// Goal: credentials that a browser adds by itself help no page of another site, neither to write nor to read. Method: the
/// requests that browsers send for such pages, with a client certificate that the server accepts.
#[tokio::test]
async fn a_client_certificate_serves_no_page_of_another_site() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let authority = Authority::new();
    let [files, client] = [0, 1].map(|at| authority.issue(folders[at].path()));
    let clients = folders[0].path().join("clients.crt");
    std::fs::write(&clients, authority.pem()).unwrap();
    let trusted = ["--client-ca-file", clients.to_str().unwrap()];
    let server = Server::start(SERVER, &[&files.flags()[..], &trusted].concat()).await;
    let known = server.client().over_tls(authority.trust_as(&client));
    send(known, Method::POST, CONFIGMAPS, &[], "a").await.with_code(201);
    let script = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")];
    let preflight = [("origin", "https://evil.example"), ("access-control-request-method", "DELETE")];
    for client in [known, known.over_http2()] {
        for (method, path, headers) in [
            (Method::GET, CONFIGMAPS, &script[..]),
            (Method::GET, "/api/v1/namespaces/none/secrets", &script),
            (Method::GET, "/api/v1/configmaps?watch=1", &script),
            (Method::OPTIONS, CONFIGMAPS, &preflight),
            (Method::POST, CONFIGMAPS, &[("origin", "https://evil.example"), ("content-type", "text/plain")]),
            (Method::DELETE, CONFIGMAPS, &[("sec-fetch-site", "cross-site")]),
        ] {
            let answer = send(client, method, path, headers, "b").await.with_code(403);
            let allowed = answer.headers.keys().filter(|name| name.as_str().starts_with("access-control"));
            assert_eq!(allowed.count(), 0, "{path}");
            assert!(!answer.text().contains("\"a\""), "{path}");
        }
    }
    assert_eq!(known.get(CONFIGMAPS).await.keys(), ["default/a"]);
}

/// A page's requests that need no preflight, and those that do.
const ATTACK: &str = r#"
(async target => {
    const collection = target + '/api/v1/namespaces/default/configmaps';
    const object = name => JSON.stringify({metadata: {name}});
    const bytes = name => new TextEncoder().encode(object(name));
    const load = (tag, member, url) => new Promise((loaded, refused) => {
        const element = document.createElement(tag);
        element.onload = () => loaded('loaded');
        element.onerror = () => refused('refused');
        if (tag === 'link') element.rel = 'stylesheet';
        element[member] = url;
        document.head.appendChild(element);
    });
    const attempts = {
        blob: () => fetch(collection, {method: 'POST', mode: 'no-cors', body: new Blob([object('blob')])}),
        bytes: () => fetch(collection, {method: 'POST', mode: 'no-cors', body: bytes('bytes')}),
        text: () => fetch(collection, {method: 'POST', mode: 'no-cors', body: object('text')}),
        cors: () => fetch(collection, {method: 'POST', body: new Blob([object('cors')])}),
        beacon: async () => navigator.sendBeacon(collection, bytes('beacon')),
        typed: () => fetch(collection, {method: 'POST', body: object('typed'), headers: {'content-type': 'application/json'}}),
        put: () => fetch(collection + '/there', {method: 'PUT', body: bytes('there')}),
        delete: () => fetch(collection + '/there', {method: 'DELETE'}),
        read: async () => 'read ' + (await (await fetch(collection)).text()).length,
        credentials: () => fetch(collection, {credentials: 'include'}),
        opaque: () => fetch(collection, {mode: 'no-cors', credentials: 'include'}),
        redirected: async () => fetch('data:text/html,').then(() => fetch(new Request(collection, {mode: 'no-cors', redirect: 'follow'}))),
        script: () => load('script', 'src', collection),
        style: () => load('link', 'href', collection),
        image: () => load('img', 'src', target + '/metrics'),
        module: () => import(collection),
        events: () => new Promise((opened, refused) => {
            const source = new EventSource(target + '/api/v1/configmaps?watch=1');
            source.onopen = () => opened('opened');
            source.onerror = () => { source.close(); refused('refused'); };
        }),
        frame: () => new Promise(loaded => {
            const frame = document.createElement('iframe');
            frame.onload = () => {
                let seen = 'unseen';
                try { seen = frame.contentDocument ? frame.contentDocument.body.innerText : 'unseen'; } catch (error) { }
                loaded(seen);
            };
            frame.src = collection;
            document.body.appendChild(frame);
        }),
        refresh: () => new Promise(loaded => {
            const frame = document.createElement('iframe');
            let loads = 0;
            frame.onload = () => { if (++loads == 2) loaded('loaded'); };
            frame.srcdoc = '<meta http-equiv=refresh content="0;url=' + collection + '">';
            document.body.appendChild(frame);
        }),
        socket: () => new Promise((opened, refused) => {
            const socket = new WebSocket(target.replace('http', 'ws') + '/api/v1/configmaps?watch=1');
            socket.onopen = () => opened('opened');
            socket.onerror = () => refused('refused');
        }),
    };
    for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
        attempts['form ' + enctype] = () => new Promise(loaded => {
            const frame = document.createElement('iframe');
            frame.name = enctype;
            document.body.appendChild(frame);
            const form = document.body.appendChild(document.createElement('form'));
            Object.assign(form, {action: collection, method: 'POST', enctype, target: enctype});
            // As text it reads {"metadata":{"name":"form"},"a":"="}.
            const input = form.appendChild(document.createElement('input'));
            Object.assign(input, {name: '{"metadata":{"name":"form"},"a":"', value: '"}'});
            frame.onload = () => loaded('loaded');
            form.submit();
        });
    }
    const results = {};
    for (const [name, attempt] of Object.entries(attempts)) {
        const silence = new Promise(silent => setTimeout(silent, 10000, 'silence'));
        const ended = attempt().then(result => result?.type ?? String(result), error => 'failed: ' + error);
        results[name] = await Promise.race([ended, silence]);
    }
    return results;
})
"#;

/// Requests of the server's own pages.
const OWN: &str = r#"
(async target => {
    const socket = new WebSocket(target.replace('http', 'ws') + '/api/v1/configmaps?watch=1&resourceVersion=0');
    const told = new Promise((told, failed) => {
        socket.onmessage = message => told(JSON.parse(message.data).type);
        socket.onerror = () => failed('refused');
    });
    const answer = await fetch('/api/v1/namespaces/default/configmaps', {
        method: 'POST',
        body: JSON.stringify({metadata: {name: 'own'}}),
        headers: {'content-type': 'application/json'},
    });
    return {code: answer.status, told: await told};
})
"#;

/// Goal: opening a foreign page in a browser on this machine does no harm. Method: a real browser with a page of
/// another origin (another port), and then with one of the server's own.
#[tokio::test]
async fn a_page_in_a_real_browser_writes_only_to_its_own_server() {
    let Some(mut browser) = Chromium::start().await else { return };
    let (server, other) = tokio::join!(Server::start(SERVER, &[]), Server::start(SERVER, &[]));
    send(server.client(), Method::POST, CONFIGMAPS, &[], "there").await.with_code(201);
    let target = format!("http://{}", server.address());
    let results = browser.run(&format!("http://{}/livez", other.address()), ATTACK, &target).await;
    assert_eq!(server.client().get(CONFIGMAPS).await.keys(), ["default/there"], "{results:#}");
    for (attempt, expected) in [
        // The page does not learn that the server refused these.
        ("blob", "opaque"),
        ("bytes", "opaque"),
        ("text", "opaque"),
        ("beacon", "true"),
        ("form text/plain", "loaded"),
        ("cors", "failed"),
        ("typed", "failed"),
        ("put", "failed"),
        ("delete", "failed"),
        ("read", "failed"),
        ("socket", "failed: refused"),
        ("credentials", "failed"),
        ("opaque", "opaque"),
        ("redirected", "opaque"),
        ("script", "failed"),
        ("style", "failed"),
        ("image", "failed"),
        ("module", "failed"),
        ("events", "failed"),
        ("frame", "unseen"),
    ] {
        let result = results[attempt].as_str().unwrap_or_default();
        assert!(result.starts_with(expected), "{attempt}: {results:#}");
    }
    let metrics = server.client().get("/metrics").await;
    let refused = metrics.text().lines().find_map(|line| {
        line.strip_prefix(r#"apiserver_request_total{verb="OTHER",resource="",code="403"} "#)?.parse::<u32>().ok()
    });
    // Requests without a preflight: five writes by script, three by forms, a WebSocket, and at least eight reads.
    assert!(refused.is_some_and(|refused| refused >= 17), "{refused:?} reached the server: {}", metrics.text());
    // Served were only this test's own requests: a create, a list, and the scrape that is not counted yet.
    let served =
        metrics.text().lines().filter(|line| line.starts_with("apiserver_request_total") && line.contains("code=\"2"));
    let served: Vec<_> = served.collect();
    assert_eq!(served.len(), 2, "{served:#?}");
    assert!(served.iter().all(|line| line.ends_with(" 1")), "{served:#?}");
    let results = browser.run(&format!("{target}/livez"), OWN, &target).await;
    assert_eq!(results, json!({"code": 201, "told": "ADDED"}));
    assert_eq!(server.client().get(CONFIGMAPS).await.keys(), ["default/own", "default/there"]);
}
