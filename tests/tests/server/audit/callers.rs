//! Callers in the records: users, those that act as another user, and refused credentials.

use std::fs;

use serde_json::{Value, json};

use super::{Audited, text};

/// Goal: records name the caller, and the user that it acts as. Method: static tokens, impersonation, and a wrong token.
#[tokio::test]
async fn records_name_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, "secret-of-alice,alice,u1,\"devs,ops\"\n").unwrap();
    let audited = Audited::start(None, &["--token-auth-file", &text(&tokens)]).await;
    let client = audited.client();
    let alice = ("authorization", "Bearer secret-of-alice");
    let users = |events: &Value| (events["user"].clone(), events.get("impersonatedUser").cloned());
    for (id, headers, code, user, impersonated) in [
        ("own", &[alice][..], 200, "alice", None),
        ("other", &[alice, ("impersonate-user", "bob"), ("impersonate-group", "g")], 200, "alice", Some("bob")),
        ("wrong", &[("authorization", "Bearer wrong")], 401, "", None),
    ] {
        let headers = [headers, &[("audit-id", id)]].concat();
        let answer = client.get_with("/api/v1/configmaps", &headers).await.with_code(code);
        let found = audited.last(id).await;
        assert_eq!(found.stages, ["RequestReceived", "ResponseComplete"]);
        let (own, other) = users(&found.last);
        assert_eq!(own["username"].as_str().unwrap_or_default(), user, "{found:#?}");
        assert_eq!(other.as_ref().and_then(|other| other["username"].as_str()), impersonated, "{found:#?}");
        assert_eq!(found.last["responseStatus"]["code"], answer.code.as_u16());
        if user == "alice" {
            assert_eq!((&own["uid"], &own["groups"]), (&json!("u1"), &json!(["devs", "ops", "system:authenticated"])));
        } else {
            assert_eq!((own, found.annotation("authorization.k8s.io/decision")), (json!({}), ""));
        }
    }
    assert!(!audited.lines().concat().contains("secret-of-alice"));
}
