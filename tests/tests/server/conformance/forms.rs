//! The forms of a response: tables, metadata only, YAML, indented, compressed, without managedFields; and the choice of
//! the form by the Accept header.

use std::io::Read as _;

use flate2::read::GzDecoder;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, LINE_WAIT, watch_list, with_query},
    objects::{Object, configmap, node, pod, secret},
};

use super::server;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

async fn accepting(client: &Client, path: &str, accept: &str) -> Answer {
    client.get_with(path, &[("accept", accept)]).await
}

/// Goal: the first supported Accept clause wins. Method: a table of Accept header and expected kind; a dash means 406.
#[tokio::test]
async fn the_first_clause_that_can_be_served_is() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a").data("v")).await;
    let v1beta1 = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    for (accept, of_list, of_object) in [
        ("", "ConfigMapList", "ConfigMap"),
        ("*/*", "ConfigMapList", "ConfigMap"),
        ("application/json", "ConfigMapList", "ConfigMap"),
        ("application/json;stream=watch", "ConfigMapList", "ConfigMap"),
        ("application/json;charset=utf-8", "ConfigMapList", "ConfigMap"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "Table", "Table"),
        ("application/json;g=meta.k8s.io;v=v1;as=Table", "Table", "Table"),
        (v1beta1, "Table", "Table"),
        ("application/json;as=Table;v=v2;g=meta.k8s.io", "-", "-"),
        ("application/json;as=Table;v=v1;g=other", "-", "-"),
        ("application/json;as=Chair;v=v1;g=meta.k8s.io", "-", "-"),
        ("application/json;as=Chair;v=v1;g=meta.k8s.io,application/json", "ConfigMapList", "ConfigMap"),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", "ConfigMapList", "ConfigMap"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Table", "Table"),
        ("application/json,application/json;as=Table;v=v1;g=meta.k8s.io", "ConfigMapList", "ConfigMap"),
        ("application/json;q=0.5,application/json;as=Table;v=v1;g=meta.k8s.io;q=0.9", "Table", "Table"),
        ("text/html", "-", "-"),
        ("text/html,application/json;q=0.1", "ConfigMapList", "ConfigMap"),
        ("application/json;stream=other", "-", "-"),
        (METADATA_LIST, "PartialObjectMetadataList", "-"),
        (METADATA, "-", "PartialObjectMetadata"),
    ] {
        for (path, kind) in [(CONFIGMAPS.to_owned(), of_list), (configmap("a").path(), of_object)] {
            let answer =
                if accept.is_empty() { client.get(&path).await } else { accepting(&client, &path, accept).await };
            if kind == "-" {
                let refused = answer.with_code(406);
                assert_eq!(refused.json()["reason"], "NotAcceptable", "{accept:?} of {path}");
                assert!(
                    refused.text().starts_with("{\n  \"kind\": \"Status\""),
                    "it is for people: {}",
                    refused.text()
                );
            } else {
                assert_eq!(answer.code, 200, "{accept:?} of {path}");
                assert_eq!(answer.json()["kind"], kind, "{accept:?} of {path}");
                assert_eq!(answer.header("content-type"), "application/json", "{accept:?} of {path}");
            }
        }
    }
    let old = accepting(&client, CONFIGMAPS, v1beta1).await.with_code(200).json();
    assert_eq!(old["apiVersion"], "meta.k8s.io/v1beta1");
    let old = METADATA_LIST.replace("v=v1", "v=v1beta1");
    let old = accepting(&client, CONFIGMAPS, &old).await.with_code(200).json();
    assert_eq!(old["apiVersion"], "meta.k8s.io/v1beta1");
}

#[tokio::test]
async fn a_range_of_media_types_is_a_type_of_it() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    for (path, kind) in [(CONFIGMAPS.to_owned(), "ConfigMapList"), (configmap("a").path(), "ConfigMap")] {
        assert_eq!(accepting(&client, &path, "application/*").await.with_code(200).json()["kind"], kind);
    }
}

/// Goal: `includeObject` selects the content of rows. Method: each value, for a list and for one object.
#[tokio::test]
async fn rows_carry_metadata_or_the_object_or_nothing() {
    let server = server(&[]).await;
    let client = server.client();
    let written = client.create(&configmap("a").data("v")).await.to_string();
    for path in [CONFIGMAPS.to_owned(), configmap("a").path()] {
        for (include, kind) in [
            ("", "PartialObjectMetadata"),
            ("Metadata", "PartialObjectMetadata"),
            ("Object", "ConfigMap"),
            ("None", ""),
        ] {
            let asked = with_query(&path, &[("includeObject", include)]);
            let table = accepting(&client, &asked, TABLE).await.with_code(200).json();
            assert_eq!((&table["kind"], &table["metadata"]["resourceVersion"]), (&json!("Table"), &json!(written)));
            let row = &table["rows"][0];
            assert_eq!(row["object"]["kind"].as_str().unwrap_or_default(), kind, "{asked}");
            assert_eq!(row["object"].get("data").is_some(), include == "Object", "{asked}");
            if include == "None" {
                assert!(row["object"].is_null(), "{asked}");
            } else {
                assert_eq!(row["object"]["metadata"]["name"], "a");
            }
            let cells = row["cells"].as_array().unwrap();
            assert_eq!((cells.len(), &cells[0], &cells[1]), (3, &json!("a"), &json!(1)), "{asked}");
        }
        let refused =
            accepting(&client, &with_query(&path, &[("includeObject", "object")]), TABLE).await.with_code(400);
        assert!(refused.message().starts_with("Unable to convert to Table as requested: includeObject: "));
    }
}

/// Goal: common types have the columns of kube-apiserver. Method: column names by priority.
#[tokio::test]
async fn common_types_have_their_columns() {
    let server = server(&[]).await;
    let client = server.client();
    for (path, shown, wide) in [
        (
            "/api/v1/pods",
            &["Name", "Ready", "Status", "Restarts", "Age"][..],
            &["IP", "Node", "Nominated Node", "Readiness Gates"][..],
        ),
        (
            "/api/v1/nodes",
            &["Name", "Status", "Roles", "Age", "Version"],
            &["Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"],
        ),
        (
            "/apis/apps/v1/deployments",
            &["Name", "Ready", "Up-to-date", "Available", "Age"],
            &["Containers", "Images", "Selector"],
        ),
        ("/api/v1/services", &["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"], &["Selector"]),
        ("/api/v1/namespaces", &["Name", "Status", "Age"], &[]),
        ("/api/v1/secrets", &["Name", "Type", "Data", "Age"], &[]),
        ("/api/v1/configmaps", &["Name", "Data", "Age"], &[]),
        (
            "/apis/apps/v1/replicasets",
            &["Name", "Desired", "Current", "Ready", "Age"],
            &["Containers", "Images", "Selector"],
        ),
    ] {
        // A stock server keeps objects of its own.
        let none = with_query(path, &[("labelSelector", "none=such")]);
        let table = accepting(&client, &none, TABLE).await.with_code(200).json();
        let columns = table["columnDefinitions"].as_array().unwrap();
        let of = |least: i64, most: i64| -> Vec<&str> {
            let inside = |column: &&Value| column["priority"].as_i64().is_some_and(|at| (least..=most).contains(&at));
            columns.iter().filter(inside).map(|column| column["name"].as_str().unwrap()).collect()
        };
        assert_eq!((of(0, 0), of(1, 99)), (shown.to_vec(), wide.to_vec()), "{path}");
        assert_eq!((&columns[0]["format"], &columns[0]["type"]), (&json!("name"), &json!("string")));
        assert!(columns.iter().all(|column| column["description"].as_str().is_some_and(|text| !text.is_empty())));
        assert_eq!(table["rows"], json!([]), "{path}");
    }
}

/// Goal: pods have kubectl's cells. Method: a running pod, a waiting one, and a new one.
#[tokio::test]
async fn the_cells_of_a_pod_tell_how_it_is() {
    let server = server(&[]).await;
    let client = server.client();
    let running = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [
        {"name": "c", "ready": true, "restartCount": 3, "image": "i", "imageID": "", "state": {"running": {}}}]});
    let crashing = json!({"phase": "Running", "containerStatuses": [
        {"name": "c", "ready": false, "restartCount": 0, "image": "i", "imageID": "",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
    for (name, status) in [("runs", running), ("waits", crashing), ("new", json!({"phase": "Pending"}))] {
        client.create(&pod(name).node("n1")).await;
        let path = format!("{}/status", pod(name).path());
        client.patch(&path, tests::http::MERGE_PATCH, &json!({ "status": status })).await.with_code(200);
    }
    let table = accepting(&client, "/api/v1/pods", TABLE).await.with_code(200).json();
    let rows: Vec<Vec<Value>> =
        table["rows"].as_array().unwrap().iter().map(|row| row["cells"].as_array().unwrap().clone()).collect();
    let shown = |row: &[Value]| (row[0].clone(), row[1].clone(), row[2].clone(), row[6].clone());
    let found: Vec<_> = rows.iter().map(|row| shown(row)).collect();
    let expected = [("new", "0/1", "Pending"), ("runs", "1/1", "Running"), ("waits", "0/1", "CrashLoopBackOff")];
    assert_eq!(found, expected.map(|(name, ready, status)| (json!(name), json!(ready), json!(status), json!("n1"))));
    assert!(rows[1][3] == json!("3") || rows[1][3] == json!(3), "restarts: {}", rows[1][3]);
    assert_eq!(rows[1][5], "10.0.0.1");
}

#[tokio::test]
async fn pages_of_a_table_add_up() {
    let server = server(&[]).await;
    let client = server.client();
    for index in 0..20 {
        client.create(&configmap(&format!("c{index:02}"))).await;
    }
    let first = accepting(&client, &format!("{CONFIGMAPS}?limit=2"), TABLE).await.with_code(200);
    assert_eq!((first.json()["rows"].as_array().map(Vec::len), first.remaining()), (Some(2), Some(18)));
    let token = first.token().unwrap();
    let rest = accepting(&client, &with_query(CONFIGMAPS, &[("continue", &token)]), TABLE).await.with_code(200);
    assert_eq!((rest.json()["rows"].as_array().map(Vec::len), rest.token()), (Some(18), None));
    assert_eq!(rest.resource_version(), first.resource_version());
}

#[tokio::test]
async fn metadata_alone_is_all_of_it() {
    let server = server(&[]).await;
    let client = server.client();
    let mut object = configmap("a").data("v").label("app", "x").body().clone();
    object["metadata"]["annotations"] = json!({"note": "\"}{]["});
    object["metadata"]["finalizers"] = json!(["example.com/x"]);
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]);
    client.post(CONFIGMAPS, &object).await.with_code(201);
    let whole = client.get(&configmap("a").path()).await.with_code(200).json();
    let one = accepting(&client, &configmap("a").path(), METADATA).await.with_code(200).json();
    let expected =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]});
    assert_eq!(one, expected);
    let list = accepting(&client, CONFIGMAPS, METADATA_LIST).await.with_code(200).json();
    assert_eq!((&list["kind"], &list["items"]), (&json!("PartialObjectMetadataList"), &json!([expected])));
    // Selectors still apply to the whole object.
    let pods = pod("p").node("n1");
    client.create(&pods).await;
    let found = accepting(&client, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", METADATA_LIST).await.with_code(200);
    assert_eq!(found.keys(), ["default/p"]);
}

#[tokio::test]
async fn metadata_can_be_written_and_read_back_in_one_go() {
    let server = server(&[]).await;
    let client = server.client();
    let headers = [("accept", METADATA), ("content-type", tests::http::MERGE_PATCH)];
    client.create(&configmap("a").data("v")).await;
    let body = json!({"metadata": {"labels": {"app": "x"}}}).to_string();
    let patch = Client::request(Method::PATCH, &configmap("a").path(), &headers, body.into());
    let answer = client.send(patch).await.with_code(200).json();
    assert_eq!((&answer["kind"], &answer["metadata"]["labels"]["app"]), (&json!("PartialObjectMetadata"), &json!("x")));
    assert!(answer.get("data").is_none());
}

/// Goal: events have the requested form. Method: an addition, a change and a deletion, as metadata and as rows.
#[tokio::test]
async fn every_event_of_a_watch_has_its_form() {
    let server = server(&[]).await;
    let client = server.client();
    let begin = client.get(CONFIGMAPS).await.resource_version();
    let created = client.create(&configmap("a").data("1")).await;
    let updated = client.update(&configmap("a").data("2")).await;
    client.delete(&configmap("a").path()).await.with_code(200);
    let path = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=6&resourceVersion={begin}");
    let mut metadata = client.watch_with(&path, &[("accept", METADATA)]).await;
    let mut rows = client.watch_with(&path, &[("accept", TABLE)]).await;
    let (metadata, rows) = tokio::join!(metadata.rest(LINE_WAIT), rows.rest(LINE_WAIT));
    assert_eq!((metadata.len(), rows.len()), (3, 3));
    let deleted = metadata[2].resource_version();
    assert!(updated < deleted);
    for (at, (metadata, row)) in [created, updated, deleted].into_iter().zip(metadata.iter().zip(&rows)) {
        assert_eq!((metadata.kind, metadata.resource_version()), (row.kind, at));
        assert_eq!((&metadata.object["kind"], metadata.object.get("data")), (&json!("PartialObjectMetadata"), None));
        assert_eq!((&row.object["kind"], row.resource_version()), (&json!("Table"), at));
        assert_eq!(row.object["rows"][0]["object"]["metadata"], metadata.object["metadata"]);
        assert_eq!(row.object["columnDefinitions"].is_array(), at == created, "columns come once");
    }
}

#[tokio::test]
async fn a_watch_refuses_forms_it_cannot_stream() {
    let server = server(&[]).await;
    let client = server.client();
    let path = watch_list(CONFIGMAPS);
    for accept in ["application/yaml", "text/html", "application/json;as=Table;v=v9;g=meta.k8s.io"] {
        accepting(&client, &path, accept).await.with_code(406);
    }
    let refused = accepting(&client, &format!("{path}&includeObject=X"), TABLE).await.with_code(400);
    assert!(refused.message().starts_with("Unable to convert to Table as requested: includeObject: "));
    // An in-stream error is a Status in every form.
    for accept in [TABLE, METADATA] {
        let headers = [("accept", accept)];
        let mut watch = client.watch_with(&format!("{CONFIGMAPS}?watch=1&resourceVersion=1"), &headers).await;
        let events = watch.rest(LINE_WAIT).await;
        assert_eq!(
            (events.len(), &events[0].object["kind"], &events[0].object["code"]),
            (1, &json!("Status"), &json!(410))
        );
    }
}

/// Goal: responses are indented for humans. Method: query, media type and user agent, in order of precedence.
#[tokio::test]
async fn people_get_indented_answers() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a").data("v")).await;
    let table = [
        ("", "", "", false),
        ("pretty=1", "", "", true),
        ("pretty=true", "", "", true),
        ("pretty=T", "", "", true),
        ("pretty=True", "", "", true),
        ("pretty=0", "", "", false),
        ("pretty=false", "", "curl/8.5.0", false),
        ("pretty=yes", "", "curl/8.5.0", false),
        ("pretty=", "", "curl/8.5.0", true),
        ("", "", "curl/8.5.0", true),
        ("", "", "Wget/1.21", true),
        ("", "", "Mozilla/5.0 (X11)", true),
        ("", "", "Mozilla/4.0", false),
        ("", "", "kubectl/v1.36.0", false),
        ("", "application/json;pretty=1", "", true),
        ("", "application/json;pretty=0", "", false),
        ("", "application/json;pretty=0", "curl/8.5.0", true),
        ("pretty=0", "application/json;pretty=1", "", true),
    ];
    for (query, accept, agent, indented) in table {
        let headers = [("accept", accept), ("user-agent", agent)];
        let headers: Vec<_> = headers.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        for path in [CONFIGMAPS.to_owned(), configmap("a").path(), configmap("nope").path(), "/apis/apps".to_owned()] {
            let answer = client.get_with(&format!("{path}?{query}"), &headers).await;
            assert_eq!(answer.text().starts_with("{\n  \""), indented, "{path} {query:?} {accept:?} {agent:?}");
            assert_eq!(answer.text().ends_with('\n'), !indented, "{path}: only one line ends with a newline");
            let plain = client.get(&path).await;
            assert_eq!(answer.json(), plain.json(), "{path}: the same in other clothes");
        }
    }
}

/// Goal: long responses are compressed for clients that accept gzip, with equal content. Method: 200 KB and 20 KB.
#[tokio::test]
async fn long_lists_are_compressed_for_those_who_ask() {
    let server = server(&[]).await;
    let client = server.client();
    for index in 0..20 {
        client.create(&configmap(&format!("c{index:02}")).data(&format!("{index}").repeat(10_000))).await;
        client.create(&secret(&format!("s{index:02}")).data("aGk=")).await;
    }
    for (path, encoding, compressed) in [
        (CONFIGMAPS, "gzip", true),
        (CONFIGMAPS, "deflate, gzip", true),
        (CONFIGMAPS, "gzip;q=0.5", false),
        (CONFIGMAPS, "identity", false),
        ("/api/v1/secrets", "gzip", false),
        ("/api/v1/nodes", "gzip", false),
    ] {
        let plain = client.get(path).await.with_code(200);
        let answer = client.get_with(path, &[("accept-encoding", encoding)]).await.with_code(200);
        assert_eq!(answer.header("content-encoding") == "gzip", compressed, "{path} {encoding}");
        if compressed {
            assert_eq!(answer.header("vary"), "Accept-Encoding");
            assert!(answer.body.len() < plain.body.len() / 4, "{} of {}", answer.body.len(), plain.body.len());
            let mut text = Vec::new();
            GzDecoder::new(&answer.body[..]).read_to_end(&mut text).expect("one member of gzip");
            assert_eq!(text, plain.body);
        } else {
            assert_eq!(answer.body, plain.body);
        }
    }
    // Only watch-lists are, since kube-apiserver 1.37.
    let watch = client.watch_with(&format!("{CONFIGMAPS}?watch=1"), &[("accept-encoding", "gzip")]).await;
    assert_eq!(watch.header("content-encoding"), "");
}

#[tokio::test]
async fn yaml_is_an_answer_too() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a").data("yes").label("port", "8080")).await;
    for path in [CONFIGMAPS.to_owned(), configmap("a").path(), configmap("nope").path()] {
        let answer = accepting(&client, &path, "application/yaml").await;
        assert_eq!(answer.header("content-type"), "application/yaml", "{path}");
        assert!(answer.text().contains("apiVersion: v1\n") && answer.text().ends_with('\n'), "{}", answer.text());
    }
    let object = accepting(&client, &configmap("a").path(), "application/yaml").await;
    // Strings that YAML would read as another type stay strings: they are quoted, in either style.
    let quoted =
        |name: &str, value: &str| ["\"", "'"].iter().any(|q| object.text().contains(&format!("{name}: {q}{value}{q}")));
    assert!(quoted("k", "yes") && quoted("port", "8080"), "{}", object.text());
    // The YAML can be sent back unchanged.
    let headers = [("content-type", "application/yaml")];
    let again = Client::request(Method::PUT, &configmap("a").path(), &headers, object.body.clone());
    assert_eq!(
        client.send(again).await.with_code(200).resource_version(),
        object_version(&client, &configmap("a")).await
    );
}

async fn object_version(client: &Client, object: &Object) -> u64 {
    client.get(&object.path()).await.with_code(200).resource_version()
}

/// Goal: a client can request objects without managedFields. Method: object, list and stream, compared with the whole
/// objects.
#[tokio::test]
async fn managed_fields_can_be_left_out() {
    const DROP: &str = "application/json;drop=metadata.managedFields,application/json";
    let server = server(&[]).await;
    let client = server.client();
    let mut object = configmap("a").data("v").body().clone();
    object["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    client.post(CONFIGMAPS, &object).await.with_code(201);
    let without = |mut object: Value| {
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        object
    };
    let whole = client.get(&configmap("a").path()).await.with_code(200).json();
    assert_eq!(
        whole["metadata"]["managedFields"], object["metadata"]["managedFields"],
        "there is something to leave out"
    );
    let cut = accepting(&client, &configmap("a").path(), DROP).await.with_code(200).json();
    assert_eq!(cut, without(whole.clone()));
    let listed = accepting(&client, CONFIGMAPS, DROP).await.with_code(200).json();
    assert_eq!(listed["items"][0]["metadata"], cut["metadata"]);
    assert_eq!(listed["items"][0]["data"], cut["data"]);
    for (form, pointer) in [(METADATA_LIST, "/items/0"), (TABLE, "/rows/0/object")] {
        let plain = accepting(&client, CONFIGMAPS, form).await.with_code(200).json();
        let without_them = accepting(&client, CONFIGMAPS, &format!("{form};drop=metadata.managedFields")).await;
        let without_them = without_them.with_code(200).json();
        let (plain, without_them) = (plain.pointer(pointer).unwrap(), without_them.pointer(pointer).unwrap());
        assert!(plain["metadata"]["managedFields"].is_array(), "{form}");
        assert_eq!(*without_them, without(plain.clone()), "{form}");
    }
    let other = accepting(&client, &configmap("a").path(), "application/json;drop=metadata.labels").await;
    assert_eq!(other.with_code(200).json(), whole, "nothing else can be left out");
    let mut watch = client.watch_with(&watch_list(CONFIGMAPS), &[("accept", DROP)]).await;
    assert_eq!(watch.event().await.object, cut);
    assert!(watch.event().await.ends_initial_state());
}

#[tokio::test]
async fn objects_outside_of_namespaces_have_the_same_forms() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&node("n1")).await;
    let one = accepting(&client, &node("n1").path(), METADATA).await.with_code(200).json();
    assert_eq!((&one["kind"], one["metadata"].get("namespace")), (&json!("PartialObjectMetadata"), None));
    let table = accepting(&client, "/api/v1/nodes", TABLE).await.with_code(200).json();
    assert_eq!(table["rows"][0]["cells"][0], "n1");
}

#[tokio::test]
async fn what_was_deleted_comes_in_the_form_that_was_asked_for() {
    let server = server(&[]).await;
    let client = server.client();
    for (object, kind) in [(pod("p"), "PartialObjectMetadata"), (configmap("a"), "Status")] {
        client.create(&object).await;
        let path = format!("{}?gracePeriodSeconds=0", object.path());
        let request = Client::request(Method::DELETE, &path, &[("accept", METADATA)], Vec::new().into());
        let answer = client.send(request).await.with_code(200).json();
        assert_eq!(answer["kind"], kind);
        assert!(answer.get("spec").is_none() && answer.get("data").is_none());
    }
}

#[tokio::test]
async fn reviews_have_no_tables() {
    let server = server(&[]).await;
    let client = server.client();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    for (accept, code) in [(TABLE.to_owned(), 406), (format!("{TABLE},application/json"), 201)] {
        let headers = [("accept", &*accept), ("content-type", "application/json")];
        let request = Client::request(Method::POST, path, &headers, review.to_string().into());
        client.send(request).await.with_code(code);
    }
}
