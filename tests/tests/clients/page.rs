//! The live page at `/ui/` in a real browser: what an operator sees and does there.
//!
//! `PICTURE=docs/page.png` writes the picture of the documentation.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tests::{objects::configmap, process::Server, relay::Relay, slow::Slow};

use super::{
    SERVER,
    chromium::{Chromium, Page},
    upstream::scene::until,
};

/// User-Agent of a client that tries to inject a script.
const HOSTILE_AGENT: &str = "<img src=x onerror=document.title='injected'>";

const WATCH_LIST: &str =
    "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Texts of the cells of a table's rows.
const ROWS: &str = "table => [...document.querySelectorAll(`#${table} tbody tr`)].map(row => \
                    [...row.cells].map(cell => cell.textContent))";

/// True once the page shows a server that is ready.
const IS_READY: &str = "() => document.getElementById('state').textContent === 'Live. The server is ready.'";

/// Tracks the page's timers, and counts its requests.
const TRACK: &str = "() => { window.timers = new Set(); window.fetches = 0; \
    const [set, clear, get] = [setTimeout, clearTimeout, fetch]; \
    window.setTimeout = (run, wait) => { \
        const id = set(() => { timers.delete(id); run(); }, wait); timers.add(id); return id; }; \
    window.clearTimeout = id => { timers.delete(id); clear(id); }; \
    window.fetch = (...call) => { fetches += 1; return get(...call); }; }";

/// Lists what a reader cannot see: a page wider than the screen, and texts with less contrast than WCAG's level AA.
const UNREADABLE: &str = r"
() => {
    const found = [];
    if (document.documentElement.scrollWidth > innerWidth) found.push('is wider than the screen');
    const channels = colour => colour.match(/[\d.]+/g).map(Number);
    const light = colour => channels(colour).slice(0, 3).map(part => part / 255)
        .map(part => part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [.2126, .7152, .0722][at], 0);
    const behind = element => {
        for (; element; element = element.parentElement) {
            const colour = getComputedStyle(element).backgroundColor;
            if (channels(colour)[3] !== 0) return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    for (const element of document.body.querySelectorAll('*')) {
        const isText = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!isText || !element.checkVisibility() || element.matches('script, option')) continue;
        const lights = [light(getComputedStyle(element).color), light(behind(element))].sort((a, b) => b - a);
        const contrast = (lights[0] + .05) / (lights[1] + .05);
        if (contrast < 4.5) found.push(`${element.tagName} ${element.textContent}: ${contrast}`);
    }
    return found;
}";

fn url(server: &Server) -> String {
    format!("http://{}/ui/", server.address())
}

async fn rows(page: &mut Page, table: &str) -> Vec<Vec<String>> {
    serde_json::from_value(page.evaluate(ROWS, &json!(table)).await).expect("texts")
}

async fn text(page: &mut Page, id: &str) -> String {
    let text = page.evaluate("id => document.getElementById(id).textContent", &json!(id)).await;
    text.as_str().expect("a text").to_owned()
}

/// Presses and releases a key.
async fn press(page: &mut Page, key: &str, code: u32, text: &str) {
    for kind in ["keyDown", "keyUp"] {
        let mut event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
        if kind == "keyDown" && !text.is_empty() {
            event["text"] = text.into();
        }
        page.call("Input.dispatchKeyEvent", event).await;
    }
}

/// Moves the focus by the Tab key to the element that a function finds, and presses Enter.
async fn press_at(page: &mut Page, find: &str) {
    let is_there = format!("() => document.activeElement === ({find})()");
    for _ in 0..100 {
        press(page, "Tab", 9, "").await;
        if page.evaluate(&is_there, &json!(null)).await == json!(true) {
            let outline =
                page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle", &json!(null)).await;
            assert_eq!(outline, "solid", "the focus is visible");
            press(page, "Enter", 13, "\r").await;
            return;
        }
    }
    panic!("the keyboard does not reach {find}");
}

/// Goal: an operator finds out who watches, where each watch is, and why one is parked. Method: an idle watch, one whose client
/// reads a part of the state, and one whose client does not read changes.
#[tokio::test]
async fn an_operator_sees_types_and_watches_and_why_one_does_not_go_on() {
    let Some(mut browser) = Chromium::start().await else { return };
    let server = Server::start(SERVER, &["--populate", "pods=300,nodes=3"]).await;
    let client = server.client();
    client.create(&configmap("first")).await;
    let _idle =
        client.watch_with("/api/v1/namespaces/kube-system/configmaps?watch=1", &[("user-agent", "quiet")]).await;
    let _slow = Slow::get(server.address(), WATCH_LIST, &[("user-agent", HOSTILE_AGENT)]).await;
    let _parked = Slow::get(server.address(), "/api/v1/configmaps?watch=1", &[("user-agent", "sleeper")]).await;
    for number in 0..100 {
        client.create(&configmap(&format!("large-{number}")).data(&"x".repeat(50_000))).await;
    }
    let mut unknown = client.watch("/api/v1/configmaps?watch=1&resourceVersion=1000000000").await;
    assert_eq!(unknown.event().await.object["code"], 410);
    let mut page = browser.open(&url(&server)).await;
    page.call(
        "Emulation.setDeviceMetricsOverride",
        json!({"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false}),
    )
    .await;
    page.until("() => document.getElementById('watchers').innerText.includes('parked: Its client does not read')")
        .await;
    page.until(IS_READY).await;
    assert!(text(&mut page, "facts").await.contains("Storagein memory"));
    let pods = rows(&mut page, "types").await.into_iter().find(|row| row[0] == "pods").expect("a row of pods");
    assert!(pods[1] == "300" && pods[2].ends_with("iB") && pods[7] == "1", "{pods:?}");
    let watches = rows(&mut page, "watchers").await;
    let of = |agent: &str| {
        watches.iter().find(|row| row[0].contains(agent)).unwrap_or_else(|| panic!("{agent}: {watches:?}"))
    };
    let [quiet, slow, parked] = ["quiet", HOSTILE_AGENT, "sleeper"].map(of);
    assert!(quiet[0].contains("127.0.0.1:") && quiet[1] == "configmaps\nin kube-system", "{quiet:?}");
    assert_eq!(quiet[3], "live: Has sent everything, and waits for changes.");
    assert!(slow[2].starts_with("In the initial state") && slow[3].contains("does not read"), "{slow:?}");
    assert!(
        parked[2].starts_with("At ") && parked[2].ends_with(" changes behind") && parked[3].contains("iB wait"),
        "{parked:?}"
    );
    let lag: usize =
        rows(&mut page, "lag").await.iter().skip(1).map(|row| row[1].parse::<usize>().expect("a number")).sum();
    assert!(lag >= 1, "the parked watch is behind");
    let states = rows(&mut page, "states").await;
    assert!(states.iter().any(|row| row[0] == "parked" && row[1] == "1"), "{states:?}");
    let relists = rows(&mut page, "relists").await;
    let counted: Vec<_> = relists.iter().filter(|row| row[1] != "0").map(|row| (&*row[0], &*row[1])).collect();
    assert!(relists.len() == 9, "{relists:?}");
    assert_eq!(counted, [("A watch began at a position that is too old or unknown", "1")]);
    page.evaluate(
        "() => { const filter = document.getElementById('filter'); filter.value = 'parked'; \
        filter.dispatchEvent(new Event('change')); }",
        &json!(null),
    )
    .await;
    page.until("() => document.querySelectorAll('#watchers tbody tr').length === 1").await;
    assert!(rows(&mut page, "watchers").await[0][0].contains("sleeper"));
    // As a server with more watches than one request visits.
    let searched =
        "() => { showWatchers({watches: [], continue: '9', open: 9}); return $('watchers-none').textContent; }";
    let searched = page.evaluate(searched, &json!(null)).await;
    assert_eq!(searched, "None among those searched; Next page searches on.");
    assert_eq!(page.evaluate("() => document.title", &json!(null)).await, "cache-server");
    assert_eq!(page.complaints(), Vec::<String>::new(), "the console is quiet");
    if let Ok(path) = std::env::var("PICTURE") {
        take_picture(&mut page, &path).await;
    }
}

async fn take_picture(page: &mut Page, path: &str) {
    page.evaluate("() => { document.getElementById('filter').value = ''; }", &json!(null)).await;
    page.until("() => document.querySelectorAll('#watchers tbody tr').length === 3").await;
    let end = "() => document.getElementById('watchers').getBoundingClientRect().bottom + scrollY + 32";
    let height = page.evaluate(end, &json!(null)).await;
    let clip = json!({"x": 0, "y": 0, "width": 1280, "height": height, "scale": 0.75});
    let picture = page
        .call("Page.captureScreenshot", json!({"format": "png", "clip": clip, "captureBeyondViewport": true}))
        .await;
    let picture = STANDARD.decode(picture["data"].as_str().expect("a picture")).expect("base64");
    fs::write(path, picture).expect("the picture is written");
}

/// Goal: the page is used without a mouse. Method: keys of a keyboard only.
#[tokio::test]
async fn types_are_sorted_and_polls_are_paused_by_keyboard() {
    let Some(mut browser) = Chromium::start().await else { return };
    let server = Server::start(SERVER, &["--populate", "pods=30,nodes=3"]).await;
    for path in ["/api/v1/pods", "/api/v1/nodes"] {
        server.client().get(path).await.with_code(200);
    }
    let mut page = browser.open(&url(&server)).await;
    page.until("() => document.querySelectorAll('#types tbody tr').length >= 3").await;
    let first = async |page: &mut Page| rows(page, "types").await[0][0].clone();
    assert_eq!(first(&mut page).await, "pods", "the type with most objects is first");
    let sort = "() => [...document.querySelectorAll('#types th button')].find(button => button.textContent === 'Type')";
    press_at(&mut page, sort).await;
    press(&mut page, "Enter", 13, "\r").await;
    assert_eq!(first(&mut page).await, "customresourcedefinitions.apiextensions.k8s.io");
    let order = format!("() => ({sort})().parentElement.getAttribute('aria-sort')");
    assert_eq!(page.evaluate(&order, &json!(null)).await, "ascending");
    track(&mut page).await;
    press_at(&mut page, "() => document.getElementById('pause')").await;
    assert_eq!(text(&mut page, "state").await, "Paused.");
    assert_eq!(
        page.evaluate("() => document.getElementById('pause').getAttribute('aria-pressed')", &json!(null)).await,
        "true"
    );
    assert_idle(&mut page, "a paused page does not poll").await;
}

/// Tracks the timers and requests of a page, which polls every two seconds from now on.
async fn track(page: &mut Page) {
    page.evaluate(TRACK, &json!(null)).await;
    let every = "() => { const every = document.getElementById('every'); every.value = '2'; \
        every.dispatchEvent(new Event('change')); }";
    page.evaluate(every, &json!(null)).await;
}

/// Asserts that a tracked page does not poll again by itself: it waits for no time. Returns the number of its requests.
async fn assert_idle(page: &mut Page, why: &str) -> Value {
    let before = page.evaluate("() => fetches", &json!(null)).await;
    page.until("() => timers.size === 0").await;
    assert_eq!(page.evaluate("() => fetches", &json!(null)).await, before, "{why}");
    before
}

/// Goal: a screen reader finds its way, and all texts are readable, on a phone too. Method: the tree that screen readers get,
/// and the colours and widths of a large and a small screen, light and dark.
#[tokio::test]
async fn the_page_is_readable_for_everyone() {
    let Some(mut browser) = Chromium::start().await else { return };
    let server = Server::start(SERVER, &["--populate", "pods=30,nodes=3"]).await;
    let _watch = server.client().watch("/api/v1/pods?watch=1").await;
    let mut page = browser.open(&url(&server)).await;
    page.until("() => document.querySelectorAll('#watchers tbody tr').length === 1").await;
    for (width, is_phone) in [(1_280, false), (360, true)] {
        let screen = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": is_phone});
        page.call("Emulation.setDeviceMetricsOverride", screen).await;
        for scheme in ["light", "dark"] {
            let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
            page.call("Emulation.setEmulatedMedia", media).await;
            assert_eq!(page.evaluate(UNREADABLE, &json!(null)).await, json!([]), "{width} {scheme}");
        }
        let tree = page.call("Accessibility.getFullAXTree", json!({})).await;
        let nodes = tree["nodes"].as_array().expect("nodes");
        let names = |role: &str| -> Vec<&str> {
            let nodes = nodes.iter().filter(|node| node["role"]["value"] == role);
            nodes.map(|node| node["name"]["value"].as_str().unwrap_or_default()).collect()
        };
        for landmark in ["banner", "main", "contentinfo", "status"] {
            assert_eq!(names(landmark).len(), 1, "{landmark}");
        }
        let (tables, regions) = (names("table"), names("region"));
        assert!(tables.contains(&"Who watches, where each stands, and why"), "{tables:?}");
        assert!(regions.contains(&"Flow control") && regions.len() == 10, "{regions:?}");
        for role in ["table", "region", "button", "combobox", "image", "columnheader"] {
            assert!(
                !names(role).is_empty() && names(role).iter().all(|name| !name.is_empty()),
                "{role}: {:?}",
                names(role)
            );
        }
        assert!(names("cell").iter().any(|name| name.contains("live: Has sent everything")), "{:?}", names("cell"));
    }
}

/// Goal: an operator never takes old figures for new ones, and the page polls again by itself once the server answers. Method: a
/// relay drops the network to the server and restores it; then the test hides the tab.
#[tokio::test]
async fn the_page_says_that_the_server_does_not_answer_and_goes_on_later() {
    let Some(mut browser) = Chromium::start().await else { return };
    let server = Server::start(SERVER, &[]).await;
    let relay = Relay::start(server.address()).await;
    let mut page = browser.open(&format!("http://{}/ui/", relay.address())).await;
    track(&mut page).await;
    page.until(IS_READY).await;
    relay.part();
    page.until("() => /^The server does not answer since \\d\\d:.* Trying again.$/.test(document.getElementById('state').textContent)").await;
    page.until("() => document.querySelectorAll('section.stale').length === 10").await;
    relay.rejoin();
    page.until(IS_READY).await;
    page.until("() => document.querySelectorAll('section.stale').length === 0").await;
    let hide = "is_hidden => { Object.defineProperty(document, 'hidden', { get: () => is_hidden, configurable: true }); \
        document.dispatchEvent(new Event('visibilitychange')); }";
    page.evaluate(hide, &json!(true)).await;
    assert_eq!(text(&mut page, "state").await, "Paused while this tab is hidden.");
    let before = assert_idle(&mut page, "a hidden tab does not poll").await;
    page.evaluate(hide, &json!(false)).await;
    page.until(&format!("() => fetches > {before}")).await;
    page.until(IS_READY).await;
}

/// Goal: the page is as useful in front of an API server. Method: a cache of ConfigMaps in front of a server in memory.
#[tokio::test]
async fn the_page_of_a_cache_in_front_of_a_cluster_names_its_source() {
    let Some(mut browser) = Chromium::start().await else { return };
    let cluster = Server::start(SERVER, &[]).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    cluster.client().create_manifest(&namespace).await;
    cluster.client().create(&configmap("one")).await;
    let behind = format!("http://{}", cluster.address());
    let flags = ["--upstream", &behind, "--authorization", "always-allow", "--resources", "configmaps"];
    let server = Server::start(SERVER, &flags).await;
    until("the cache is ready", async || server.client().get("/readyz").await.code == 200).await;
    let mut page = browser.open(&url(&server)).await;
    page.until(IS_READY).await;
    assert!(text(&mut page, "facts").await.contains("Storagean API server"));
    let types = rows(&mut page, "types").await;
    assert!(types.iter().any(|row| row[0] == "configmaps" && row[1] == "1"), "{types:?}");
    assert_eq!(page.evaluate("() => document.querySelectorAll('.note').length", &json!(null)).await, 0);
}

/// Goal: a caller learns what it may not read, in place of an empty table. Method: a role that allows the page and probes, and
/// no other document; then a proxy whose own error is no answer of the server.
#[tokio::test]
async fn the_page_says_what_its_caller_may_not_read() {
    let Some(mut browser) = Chromium::start().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (tokens, roles) = (at("tokens.csv", "secret,admin,1,\n"), at("roles.yaml", ROLES));
    let flags = ["--token-auth-file", &tokens, "--authorization", "rbac", "--load", &roles];
    let server = Server::start(SERVER, &flags).await;
    let mut page = browser.open(&url(&server)).await;
    page.until("() => document.querySelectorAll('.note').length >= 9").await;
    let seen = page.evaluate("() => document.body.innerText", &json!(null)).await;
    let seen: &str = seen.as_str().expect("a text");
    for path in ["/metrics", "/debug/watches", "/debug/snapshots", "/debug/summary"] {
        let reason = format!("You may not read {path}: it needs the right to get this nonResourceURL.");
        assert!(seen.contains(&reason), "{reason} in {seen}");
    }
    assert!(seen.contains("Live. The server is ready.") && seen.contains("checks pass"), "{seen}");
    let tables =
        "() => [...document.querySelectorAll('table')].filter(table => table.checkVisibility()).map(table => table.id)";
    assert_eq!(page.evaluate(tables, &json!(null)).await, json!([]), "no empty table is shown");
    // A proxy in front answers in place of the server.
    let proxy = "() => { const get = fetch; window.fetch = (path, ...rest) => !path.includes('readyz') ? get(path, ...rest) \
        : Promise.resolve(new Response('Bad Gateway', { status: 502 })); $('first').click(); }";
    page.evaluate(proxy, &json!(null)).await;
    page.until("() => document.getElementById('state').textContent === 'Live. The server\\'s health is unknown.'")
        .await;
    let seen = text(&mut page, "health-title-error").await;
    assert!(seen.contains("/readyz answered 502: Bad Gateway"), "{seen}");
    assert_eq!(text(&mut page, "checks-pass").await, "");
}

const ROLES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: page}
rules: [{nonResourceURLs: [/ui/, /readyz], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: page}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: page}
subjects: [{kind: User, name: "system:anonymous", apiGroup: rbac.authorization.k8s.io}]
"#;
