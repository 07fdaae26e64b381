//! Schemas of custom resources: the table by which this server enforces them, at the server whose answers it has.

use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, Genuine},
    http::{Answer, Client},
};

use super::until;

const TABLES: [&str; 2] = [
    include_str!("../../../cache-server/objects/src/structural/rows.yaml"),
    include_str!("../../../cache-server/objects/src/structural/rules.yaml"),
];
/// Minor version of the server whose answers the table has.
const MINOR: u32 = 37;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The type of one group of rows.
struct Group<'a> {
    admin: &'a Client,
    /// The API group.
    name: String,
    path: String,
    row: &'a Value,
}

impl Group<'_> {
    /// The member that rows are about.
    fn member(&self) -> &'static str {
        if self.row.get("status").is_some() { "status" } else { "spec" }
    }

    fn definition(&self, spec: &Value) -> Value {
        let schema = match self.row.get("whole") {
            Some(_) => spec.clone(),
            None => json!({"type": "object", "properties": {self.member(): spec}}),
        };
        let subresources = if self.member() == "status" { json!({"status": {}}) } else { json!({}) };
        json!({"metadata": {"name": format!("widgets.{}", self.name)}, "spec": {
            "group": self.name, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": subresources}]}})
    }

    fn object(&self, name: &str, spec: &Value) -> Value {
        json!({"apiVersion": format!("{}/v1", self.name), "kind": "Widget", "metadata": {"name": name},
            self.member(): spec})
    }

    /// Defines the type, with the objects that rows update stored before it had this schema.
    async fn define(&self, rows: &[Value]) {
        let (definition, stored) =
            (self.definition(&self.row["schema"]), rows.iter().any(|row| row.get("stored").is_some()));
        let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let first = if stored { self.definition(&free) } else { definition.clone() };
        self.admin.post(DEFINITIONS, &first).await.with_code(201);
        until("the type is served", async || self.admin.get(&self.path).await.code == 200).await;
        if !stored {
            return;
        }
        for (at, row) in rows.iter().enumerate() {
            let object = self.object(&format!("a{at}"), &row["stored"]);
            let created = self.admin.post(&self.path, &object).await.with_code(201);
            if self.member() == "status" {
                let mut object = created.json();
                object["status"] = row["stored"].clone();
                self.admin.put(&format!("{}/a{at}/status", self.path), &object).await.with_code(200);
            }
        }
        let name = definition["metadata"]["name"].as_str().unwrap();
        let patched =
            self.admin.patch(&format!("{DEFINITIONS}/{name}"), "application/merge-patch+json", &definition).await;
        patched.with_code(200);
        let (strictly, unknown) = (format!("{}?dryRun=All&fieldValidation=Strict", self.path), json!({"unknown-": 1}));
        let is_enforced = async || self.admin.post(&strictly, &self.object("a", &unknown)).await.code != 201;
        until("the schema is enforced", is_enforced).await;
    }

    /// Sends what a row sends, and returns what becomes of its spec.
    async fn answer(&self, at: usize, row: &Value) -> Value {
        let answer = if row.get("stored").is_some() {
            let path = format!("{}/a{at}", self.path);
            let mut object = self.admin.get(&path).await.with_code(200).json();
            object[self.member()] = row["sent"].clone();
            let subresource = if self.member() == "status" { "/status" } else { "" };
            self.admin.put(&format!("{path}{subresource}?dryRun=All"), &object).await
        } else {
            self.admin.post(&format!("{}?dryRun=All", self.path), &self.object("a", &row["sent"])).await
        };
        let body = answer.json();
        if answer.code.is_success() {
            return json!({"kept": body[self.member()], "unknown": unknown(&answer)});
        }
        json!({"refused": causes(&answer)})
    }
}

/// Returns the causes of a refusal in order, or its message if it has none.
fn causes(answer: &Answer) -> Vec<Value> {
    let body = answer.json();
    let text = |cause: &Value| {
        let [reason, field, message] =
            ["reason", "field", "message"].map(|name| cause[name].as_str().unwrap_or_default());
        format!("{} {field}: {message}", reason.trim_start_matches("FieldValue"))
    };
    let mut causes: Vec<String> = body["details"]["causes"].as_array().into_iter().flatten().map(text).collect();
    causes.sort();
    if causes.is_empty() { vec![body["message"].clone()] } else { causes.into_iter().map(Value::from).collect() }
}

/// Returns the fields about which an answer warns.
fn unknown(answer: &Answer) -> Vec<String> {
    let field = |warning: &http::HeaderValue| {
        Some(warning.to_str().ok()?.split_once("unknown field ")?.1.replace(['\\', '"'], ""))
    };
    let mut fields: Vec<String> = answer.headers.get_all("warning").iter().filter_map(field).collect();
    fields.sort();
    fields
}

/// Goal: the table has kube-apiserver's answers, not ours. Method: each row at one.
#[tokio::test]
async fn the_table_of_schemas_has_the_answers_of_a_stock_server() {
    let Some(genuine) = Genuine::shared("schemas").await else { return };
    if genuine.minor().await != MINOR {
        eprintln!("schemas: skipped, the table is of 1.{MINOR}");
        return;
    }
    let (admin, mut failed) = (genuine.client(ADMIN), Vec::new());
    // As in manifests, `y` and `no` are names.
    let options = serde_saphyr::options! { strict_booleans: true };
    let read = |table: &&str| serde_saphyr::from_str_with_options::<Vec<Value>>(table, options.clone()).unwrap();
    let table: Vec<Value> = TABLES.iter().flat_map(read).collect();
    for (number, row) in table.iter().enumerate() {
        let name = format!("rows{number}.example.com");
        let path = format!("/apis/{name}/v1/namespaces/default/widgets");
        let group = Group { admin: &admin, name, path, row };
        if let Some(expected) = row.get("refused") {
            let found = json!(causes(&admin.post(DEFINITIONS, &group.definition(&row["schema"])).await));
            if found != *expected {
                failed.push(format!("{row}\n  found {found}\n  expected {expected}"));
            }
            continue;
        }
        let rows = row["rows"].as_array().unwrap();
        group.define(rows).await;
        for (at, row) in rows.iter().enumerate() {
            let found = group.answer(at, row).await;
            let expected = match row.get("refused") {
                Some(causes) => json!({"refused": causes}),
                None => json!({"kept": row.get("kept").unwrap_or_else(|| &row["sent"]),
                    "unknown": row.get("unknown").unwrap_or(&Value::Array(Vec::new()))}),
            };
            // Whole numbers have no fraction in its answers.
            let (found, expected) = (found.to_string(), expected.to_string().replace(".0}", "}"));
            if found != expected {
                failed.push(format!("{row}\n  found {found}\n  expected {expected}"));
            }
        }
    }
    assert!(failed.is_empty(), "{} rows:\n{}", failed.len(), failed.join("\n"));
}
