//! `/openapi/v3`: an index with cacheable addresses, and a document for each group version. `/openapi/v2`: one of all.

use std::time::Duration;

use serde_json::{Value, json};
use tests::http::{Answer, Client};

use super::server;

const INDEX: &str = "/openapi/v3";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Timeout for the announcement of a new type.
const SOON: Duration = Duration::from_secs(10);

/// The address of a document in the index, by its name there.
async fn address(client: &Client, name: &str) -> Option<String> {
    let index = client.get(INDEX).await.with_code(200).json();
    index["paths"][name]["serverRelativeURL"].as_str().map(str::to_owned)
}

async fn document(client: &Client, name: &str) -> Value {
    let address = address(client, name).await.unwrap_or_else(|| panic!("{name} is not in the index"));
    client.get(&address).await.with_code(200).json()
}

/// Goal: clients can validate, apply and explain every served type. Method: compare discovery with the documents, as
/// kubectl reads both.
#[tokio::test]
async fn every_type_has_its_paths_and_its_schema() {
    let server = server(&[]).await;
    let client = server.client();
    let index = client.get(INDEX).await.with_code(200);
    assert_eq!(index.header("content-type"), "application/json");
    let index = index.json();
    let mut types = 0;
    for (name, entry) in index["paths"].as_object().unwrap() {
        let resources = client.get(&format!("/{name}")).await.with_code(200).json();
        let document = client.get(entry["serverRelativeURL"].as_str().unwrap()).await.with_code(200).json();
        assert_eq!(document["openapi"], "3.0.0", "{name}");
        let paths = document["paths"].as_object().unwrap();
        let (group, version) = match name.split('/').collect::<Vec<_>>()[..] {
            ["api", version] => (String::new(), version.to_owned()),
            ["apis", group, version] => (group.to_owned(), version.to_owned()),
            _ => panic!("{name}"),
        };
        for resource in resources["resources"].as_array().unwrap() {
            let plural = resource["name"].as_str().unwrap();
            let kind = json!({"group": group, "version": version, "kind": resource["kind"]});
            if plural.contains('/') {
                continue;
            }
            types += 1;
            // Reviews are only created, and have no path of an object.
            let is_review = resource["verbs"] == json!(["create"]);
            let (end, method) = if is_review { ("", "post") } else { ("/{name}", "patch") };
            let of_object = paths.iter().find(|(path, _)| path.ends_with(&format!("/{plural}{end}")));
            let (path, operations) = of_object.unwrap_or_else(|| panic!("{name}: no path of {plural}"));
            assert_eq!(path.contains("{namespace}"), resource["namespaced"] == true, "{path}");
            assert_eq!(operations[method]["x-kubernetes-group-version-kind"], kind, "{path}");
            let parameters = operations[method]["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"), "{path}");
            let schemas = document["components"]["schemas"].as_object().unwrap();
            let of_kind = |schema: &&Value| schema["x-kubernetes-group-version-kind"] == json!([kind]);
            let schema = schemas.values().find(of_kind).unwrap_or_else(|| panic!("{name}: no schema of {kind}"));
            assert!(schema["properties"]["metadata"].is_object(), "{name} {plural}");
        }
    }
    assert!(types > 40, "{types} types");
}

/// Goal: clients can cache documents. Method: the headers of each way to request one.
#[tokio::test]
async fn addresses_with_a_hash_can_be_kept_forever() {
    let server = server(&[]).await;
    let client = server.client();
    let address = address(&client, "apis/apps/v1").await.unwrap();
    let (path, hash) = address.split_once("?hash=").unwrap();
    assert_eq!(path, "/openapi/v3/apis/apps/v1");
    let etag = format!("\"{hash}\"");

    let kept = client.get(&address).await.with_code(200);
    assert_eq!((kept.header("cache-control"), kept.header("etag")), ("public, immutable", &*etag));
    assert_eq!((kept.header("content-type"), kept.header("vary")), ("application/json", "Accept"));

    let plain = client.get(path).await.with_code(200);
    assert_eq!((plain.header("cache-control"), plain.header("etag")), ("no-cache, private", &*etag));
    assert_eq!(plain.body, kept.body);

    let unchanged = client.get_with(path, &[("if-none-match", &etag)]).await.with_code(304);
    assert!(unchanged.body.is_empty());
    let moved = client.get(&format!("{path}?hash=OLD")).await.with_code(301);
    assert_eq!(moved.header("location"), address);
}

/// Goal: unknown documents and media types are refused. Method: a table of path, accepted types and code.
#[tokio::test]
async fn other_documents_and_other_forms_are_refused() {
    let server = server(&[]).await;
    let client = server.client();
    let protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    for (path, accept, code) in [
        ("/openapi/v2", "text/html", 406),
        ("/openapi/v2", "application/json", 200),
        ("/openapi/v3/apis/none/v1", "application/json", 404),
        ("/openapi/v3/api/v1", protobuf, 406),
        ("/openapi/v3/api/v1", "application/json;q=0.1,text/html", 200),
        ("/openapi/v3/api/v1", "*/*", 200),
    ] {
        let answer = client.get_with(path, &[("accept", accept)]).await.with_code(code);
        assert!(code != 404 || answer.text() == "404 page not found\n", "{path}");
    }
    let path = Client::request(http::Method::POST, INDEX, &[], bytes::Bytes::new());
    client.send(path).await.with_code(405);
}

fn definition(color: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "paints.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "paints", "kind": "Paint"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "description": "What colours things.", "properties": {"spec": {
                    "type": "object", "properties": {color: {"type": "string", "description": "Which one."}}}}}}}]},
    })
}

async fn until(client: &Client, wanted: impl AsyncFn(&Client) -> bool) {
    let waiting = async {
        while !wanted(client).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect("comes soon");
}

/// Goal: custom types are documented while they are defined, and other documents do not change. Method: create, change
/// and delete a definition.
#[tokio::test]
async fn custom_types_bring_their_own_schemas() {
    const NAME: &str = "apis/example.com/v1";
    let server = server(&[]).await;
    let client = server.client();
    let of_pods = address(&client, "api/v1").await;
    let posted: Answer = client.post(DEFINITIONS, &definition("colour")).await;
    posted.with_code(201);
    until(&client, async |client: &Client| address(client, NAME).await.is_some()).await;

    let first = address(&client, NAME).await;
    let document = document(&client, NAME).await;
    let schema = &document["components"]["schemas"]["com.example.v1.Paint"];
    assert_eq!(schema["description"], "What colours things.");
    let of_members = schema["properties"]["apiVersion"]["description"].as_str().unwrap();
    assert!(of_members.starts_with("APIVersion defines"), "as of built-in types: {of_members}");
    assert_eq!(schema["properties"]["spec"]["properties"]["colour"]["description"], "Which one.");
    let metadata = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(schema["properties"]["metadata"]["allOf"], json!([{ "$ref": metadata }]));
    let kind = json!([{"group": "example.com", "version": "v1", "kind": "Paint"}]);
    assert_eq!(schema["x-kubernetes-group-version-kind"], kind);
    let list = &document["components"]["schemas"]["com.example.v1.PaintList"];
    assert_eq!(list["properties"]["items"]["items"]["$ref"], "#/components/schemas/com.example.v1.Paint");
    assert!(document["paths"]["/apis/example.com/v1/namespaces/{namespace}/paints/{name}"]["patch"].is_object());

    let path = format!("{DEFINITIONS}/paints.example.com");
    let patch = json!({"spec": definition("shade")["spec"]});
    client.patch(&path, tests::http::MERGE_PATCH, &patch).await.with_code(200);
    until(&client, async |client: &Client| address(client, NAME).await != first).await;
    let changed = self::document(&client, NAME).await;
    assert!(
        changed["components"]["schemas"]["com.example.v1.Paint"]["properties"]["spec"]["properties"]["shade"]
            .is_object()
    );

    client.delete(&path).await.with_code(200);
    until(&client, async |client: &Client| address(client, NAME).await.is_none()).await;
    client.get(&format!("{INDEX}/{NAME}")).await.with_code(404);
    assert_eq!(address(&client, "api/v1").await, of_pods, "pods have not changed");
}

/// Goal: clients of the older document see every change of types at once. Method: define, change and undefine a type, with
/// the ETag of the last document; the protobuf form as client-go asks for it.
#[tokio::test]
async fn one_document_of_version_2_has_all_types() {
    const WHOLE: &str = "/openapi/v2";
    let server = server(&[]).await;
    let client = server.client();
    let first = client.get(WHOLE).await.with_code(200);
    assert_eq!((first.header("content-type"), first.header("vary")), ("application/json", "Accept"));
    let etag = first.header("etag").to_owned();
    client.get_with(WHOLE, &[("if-none-match", &etag)]).await.with_code(304);
    let first = first.json();
    assert_eq!(first["swagger"], "2.0");
    let container = &first["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]["items"];
    assert_eq!(container["$ref"], "#/definitions/io.k8s.api.core.v1.Container");
    let body = &first["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"]["post"]["parameters"];
    let body = body.as_array().unwrap().iter().find(|parameter| parameter["in"] == "body").unwrap();
    assert_eq!(body["schema"]["$ref"], "#/definitions/io.k8s.api.apps.v1.Deployment");

    let mut nullable = definition("colour");
    let schema = &mut nullable["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    schema["properties"]["maybe"] = json!({"type": "string", "nullable": true, "description": "Or nothing."});
    schema["properties"]["many"] = json!({"type": "array", "minItems": 1, "maxItems": 300, "items": {"type": "integer",
        "minimum": -1, "maximum": 1.5, "exclusiveMaximum": true, "multipleOf": 0.5, "enum": [1, 0], "default": 1}});
    schema["properties"]["names"] = json!({"type": "object", "title": "Names.", "minProperties": 1, "maxProperties": 2,
        "additionalProperties": {"type": "string", "format": "name", "pattern": "^a", "minLength": 1, "maxLength": 9}});
    schema["required"] = json!(["maybe", "colour"]);
    client.post(DEFINITIONS, &nullable).await.with_code(201);
    let paint = async |client: &Client| {
        let answer = client.get_with(WHOLE, &[("if-none-match", &etag)]).await;
        if answer.code == 304 { Value::Null } else { answer.json()["definitions"]["com.example.v1.Paint"].clone() }
    };
    until(&client, async |client: &Client| paint(client).await.is_object()).await;
    let schema = paint(&client).await;
    let metadata = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(schema["properties"]["metadata"]["$ref"], metadata);
    let spec = &schema["properties"]["spec"];
    assert_eq!(spec["required"], json!(["colour"]));
    assert_eq!(spec["properties"]["maybe"], json!({"description": "Or nothing."}));

    same_in_protobuf(&client, WHOLE).await;
    client.delete(&format!("{DEFINITIONS}/paints.example.com")).await.with_code(200);
    until(&client, async |client: &Client| paint(client).await.is_null()).await;
    assert_eq!(client.get(WHOLE).await.with_code(200).header("etag"), etag, "as before the definition");
}

/// Reads both forms of a document: they have one content, and an ETag each.
async fn same_in_protobuf(client: &Client, path: &str) {
    let accept = ("accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
    let json = client.get(path).await.with_code(200);
    let encoded = client.get_with(path, &[accept]).await.with_code(200);
    assert_eq!(encoded.header("content-type"), "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    assert_ne!(encoded.header("etag"), json.header("etag"));
    client.get_with(path, &[accept, ("if-none-match", json.header("etag"))]).await.with_code(200);
    client.get_with(path, &[accept, ("if-none-match", encoded.header("etag"))]).await.with_code(304);
    let (mut expected, found) = (json.json(), gnostic::decode("Document", &encoded.body));
    gnostic::drop_unset(&mut expected);
    for part in ["paths", "definitions"] {
        let expected = expected[part].as_object().unwrap();
        assert_eq!(found[part].as_object().unwrap().len(), expected.len(), "{part}");
        for (name, expected) in expected {
            assert_eq!(found[part][name], *expected, "{part} {name}");
        }
    }
    assert_eq!(found, expected);
}

/// Decodes documents in protobuf into their JSON.
///
/// Source: gnostic `openapiv2/OpenAPIv2.proto`.
mod gnostic {
    use informer_serving::protobuf::take_varint;
    use serde_json::{Map, Value, json};

    /// A field: its number, the member in JSON, and its type. A member `=` is the value itself, and `*` has a name and a value.
    type MessageField = (u64, &'static str, &'static str);

    const MESSAGES: &[(&str, &[MessageField])] = &[
        (
            "Document",
            &[(1, "swagger", "text"), (2, "info", "Info"), (8, "paths", "Paths"), (9, "definitions", "Schemas")],
        ),
        ("Info", &[(1, "title", "text"), (2, "version", "text")]),
        ("Paths", &[(2, "*", "PathItem")]),
        (
            "PathItem",
            &[
                (2, "get", "Operation"),
                (3, "put", "Operation"),
                (4, "post", "Operation"),
                (5, "delete", "Operation"),
                (8, "patch", "Operation"),
                (9, "parameters", "[]ParametersItem"),
            ],
        ),
        (
            "Operation",
            &[
                (1, "tags", "[]text"),
                (3, "description", "text"),
                (5, "operationId", "text"),
                (6, "produces", "[]text"),
                (7, "consumes", "[]text"),
                (8, "parameters", "[]ParametersItem"),
                (9, "responses", "Responses"),
                (13, "*", "Any"),
            ],
        ),
        ("ParametersItem", &[(1, "=", "Parameter")]),
        ("Parameter", &[(1, "=", "BodyParameter"), (2, "=", "NonBodyParameter")]),
        ("BodyParameter", &[(2, "name", "text"), (3, "in", "text"), (4, "required", "bool"), (5, "schema", "Schema")]),
        ("NonBodyParameter", &[(3, "=", "QueryParameter"), (4, "=", "PathParameter")]),
        (
            "QueryParameter",
            &[
                (2, "in", "text"),
                (3, "description", "text"),
                (4, "name", "text"),
                (6, "type", "text"),
                (20, "uniqueItems", "bool"),
            ],
        ),
        (
            "PathParameter",
            &[
                (1, "required", "bool"),
                (2, "in", "text"),
                (3, "description", "text"),
                (4, "name", "text"),
                (5, "type", "text"),
                (19, "uniqueItems", "bool"),
            ],
        ),
        ("Responses", &[(1, "*", "ResponseValue")]),
        ("ResponseValue", &[(1, "=", "Response")]),
        ("Response", &[(1, "description", "text"), (2, "schema", "SchemaItem")]),
        ("SchemaItem", &[(1, "=", "Schema")]),
        ("Schemas", &[(1, "*", "Schema")]),
        (
            "Schema",
            &[
                (1, "$ref", "text"),
                (2, "format", "text"),
                (3, "title", "text"),
                (4, "description", "text"),
                (5, "default", "Any"),
                (6, "multipleOf", "double"),
                (7, "maximum", "double"),
                (8, "exclusiveMaximum", "bool"),
                (9, "minimum", "double"),
                (11, "maxLength", "integer"),
                (12, "minLength", "integer"),
                (13, "pattern", "text"),
                (14, "maxItems", "integer"),
                (15, "minItems", "integer"),
                (17, "maxProperties", "integer"),
                (18, "minProperties", "integer"),
                (19, "required", "[]text"),
                (20, "enum", "[]Any"),
                (21, "additionalProperties", "AdditionalPropertiesItem"),
                (22, "type", "TypeItem"),
                (23, "items", "SchemaItem"),
                (25, "properties", "Schemas"),
                (31, "*", "Any"),
            ],
        ),
        ("AdditionalPropertiesItem", &[(1, "=", "Schema"), (2, "=", "bool")]),
        ("TypeItem", &[(1, "=", "text")]),
    ];

    pub(super) fn decode(message: &str, bytes: &[u8]) -> Value {
        let (_, known) = MESSAGES.iter().find(|(name, _)| *name == message).unwrap_or_else(|| panic!("{message}"));
        let mut members = Map::new();
        for (number, value) in fields(bytes) {
            let found = known.iter().find(|(known, ..)| *known == number);
            let (_, member, ty) = found.unwrap_or_else(|| panic!("{message} has no field {number}"));
            match (*member, ty.strip_prefix("[]")) {
                ("=", _) => return read(ty, value),
                ("*", _) => {
                    let entry: Vec<_> = fields(value).collect();
                    let name = read("text", entry[0].1).as_str().unwrap().to_owned();
                    assert_eq!((entry[0].0, entry[1].0, entry.len()), (1, 2, 2), "{name}");
                    members.insert(name, read(ty, entry[1].1));
                }
                (member, Some(ty)) => {
                    let list = members.entry(member).or_insert_with(|| json!([]));
                    list.as_array_mut().unwrap().push(read(ty, value));
                }
                (member, None) => assert!(members.insert(member.to_owned(), read(ty, value)).is_none(), "{member}"),
            }
        }
        Value::Object(members)
    }

    fn read(ty: &str, bytes: &[u8]) -> Value {
        match ty {
            "text" => str::from_utf8(bytes).unwrap().into(),
            "bool" => (take_varint(bytes, &mut 0) == Some(1)).into(),
            "integer" => take_varint(bytes, &mut 0).into(),
            "double" => {
                let number = f64::from_le_bytes(bytes.try_into().unwrap());
                // As it was written.
                serde_json::from_str(&number.to_string()).unwrap()
            }
            // YAML, of which JSON is a part.
            "Any" => {
                fields(bytes).map(|(number, text)| (number, serde_json::from_slice(text).unwrap())).next().unwrap().1
            }
            message => decode(message, bytes),
        }
    }

    /// Splits a message into its fields: number and bytes.
    fn fields(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let tag = take_varint(bytes, &mut at)?;
            let start = at;
            let (from, to) = match tag & 7 {
                0 => (start, take_varint(bytes, &mut at).map(|_| at).unwrap()),
                1 => (start, start + 8),
                2 => {
                    let len = usize::try_from(take_varint(bytes, &mut at).unwrap()).unwrap();
                    (at, at + len)
                }
                other => panic!("wire type {other}"),
            };
            at = to;
            Some((tag >> 3, &bytes[from..to]))
        })
    }

    /// Removes what protobuf does not tell from nothing.
    pub(super) fn drop_unset(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, value| {
                    !(name == "required" && *value == false || name == "parameters" && *value == json!([]))
                });
                members.values_mut().for_each(drop_unset);
            }
            Value::Array(items) => items.iter_mut().for_each(drop_unset),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
