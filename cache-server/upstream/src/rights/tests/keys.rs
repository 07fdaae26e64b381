//! Different questions never share an answer.

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};

use super::*;

/// Asks both questions with a reviewer that allows the first one only, and returns true if they shared the answer.
async fn share(first: (&HeaderMap, &RequestInfo), second: (&HeaderMap, &RequestInfo)) -> bool {
    let reviewer = Reviewer::new(Duration::ZERO);
    let rights = rights(&reviewer);
    rights.check(first.0, first.1).await.expect("allowed");
    reviewer.allow(false);
    rights.check(second.0, second.1).await.is_ok()
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    headers
}

#[tokio::test(start_paused = true)]
async fn questions_that_differ_in_one_part_share_no_answer() {
    let reads = [
        "/api/v1/namespaces/a/pods",
        "/api/v1/namespaces/b/pods",
        "/api/v1/pods",
        "/api/v1/namespaces/a/pods?watch=1",
        "/api/v1/namespaces/a/pods/b",
        "/api/v1/namespaces/a/pods/c",
        "/api/v1/namespaces/a/pods/b/status",
        "/api/v1/namespaces/a/secrets",
        "/apis/apps/v1/namespaces/a/deployments",
        "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=b",
        "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=c",
        "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName=b",
        "/api/v1/namespaces/a/pods?labelSelector=metadata.name=b",
        "/api/v1/namespaces/a/pods?labelSelector=b",
    ]
    .map(read);
    let callers = [
        headers(&[]),
        headers(&[("authorization", "Bearer a")]),
        headers(&[("authorization", "Bearer b")]),
        headers(&[("authorization", "Bearer "), ("impersonate-user", "a")]),
        headers(&[("authorization", "Bearer a"), ("impersonate-user", "a")]),
        headers(&[("authorization", "Bearer a"), ("impersonate-user", "b")]),
        headers(&[("authorization", "Bearer a"), ("impersonate-group", "a")]),
        headers(&[("authorization", "Bearer a"), ("impersonate-user", "a"), ("impersonate-group", "g")]),
        headers(&[("authorization", "Bearer a"), ("impersonate-user", "a"), ("impersonate-group", "g,h")]),
        headers(&[
            ("authorization", "Bearer a"),
            ("impersonate-user", "a"),
            ("impersonate-group", "g"),
            ("impersonate-group", "h"),
        ]),
        headers(&[("authorization", "Bearer a"), ("impersonate-uid", "a")]),
        headers(&[("authorization", "Bearer a"), ("impersonate-extra-scopes", "a")]),
    ];
    for (at, first) in reads.iter().enumerate() {
        for (other, second) in reads.iter().enumerate() {
            assert_eq!(share((&callers[1], first), (&callers[1], second)).await, at == other, "{first:?} {second:?}");
        }
    }
    for (at, first) in callers.iter().enumerate() {
        for (other, second) in callers.iter().enumerate() {
            assert_eq!(share((first, &reads[0]), (second, &reads[0])).await, at == other, "{first:?} {second:?}");
        }
    }
}

/// Goal: no two different questions have one key. Method: random questions whose parts are short and alike, so that one
/// part could be taken for the end of another one.
#[test]
fn keys_are_equal_only_for_equal_questions() {
    let mut random = fastrand::Rng::with_seed(29);
    let texts = ["", "a", ",", "=", "a,", ",a", "a="];
    let selectors = texts.iter().flat_map(|fields| texts.map(|labels| (fields, labels)));
    let query = |(fields, labels)| format!("/api/v1/namespaces/a/pods?fieldSelector={fields}&labelSelector={labels}");
    let paths: Vec<_> = selectors.map(query).map(|path| read(&path)).collect();
    let keys = KeyMaker::random();
    let mut seen = std::collections::HashMap::new();
    for _ in 0..20_000 {
        let (credentials, read) = (random_credentials(&mut random), random_read(&mut random, &paths));
        let question = (sorted(&credentials), read.clone());
        let key = keys.question(&credentials, &read);
        assert_ne!(key, keys.caller(&credentials));
        let known = seen.entry(key).or_insert_with(|| question.clone());
        assert_eq!(*known, question);
        let reordered: HeaderMap =
            sorted(&credentials).into_iter().fold(HeaderMap::new(), |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            });
        assert_eq!(keys.question(&reordered, &read), key, "equal questions have equal keys");
    }
    assert!(seen.len() > 5_000, "{}", seen.len());
    assert_ne!(
        KeyMaker::random().caller(&HeaderMap::new()),
        KeyMaker::random().caller(&HeaderMap::new()),
        "each process has a key of its own"
    );
}

/// The headers by name; values with one name keep their order.
fn sorted(credentials: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<_> = credentials.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    headers.sort_by_key(|(name, _)| name.as_str().to_owned());
    headers
}

fn random_text(random: &mut fastrand::Rng) -> String {
    (0..random.usize(..3)).map(|_| random.choice(['a', ',', '=']).expect("a letter")).collect()
}

fn random_credentials(random: &mut fastrand::Rng) -> HeaderMap {
    let names =
        [AUTHORIZATION, HeaderName::from_static("impersonate-user"), HeaderName::from_static("impersonate-group")];
    let mut headers = HeaderMap::new();
    for _ in 0..random.usize(..4) {
        let name = random.choice(names.iter()).expect("a name").clone();
        headers.append(name, random_text(random).parse().expect("letters are a header"));
    }
    headers
}

/// The read of one of `paths` with other texts in its parts.
fn random_read(random: &mut fastrand::Rng, paths: &[RequestInfo]) -> RequestInfo {
    let mut read = random.choice(paths).expect("one").clone();
    let of = read.resource.as_mut().expect("a resource");
    (of.name, of.subresource, of.group) = (random_text(random), random_text(random), random_text(random));
    read
}
