//! Builds the paths of a type, and the operations at each path.
//!
//! Source: apiserver `endpoints/installer.go`.

use serde_json::{Map, Value, json};

use super::{document::reference, schemas};
use crate::registry::{ResourceType, Subresource};

/// A query parameter: name, type and description.
type Parameter = (&'static str, &'static str, &'static str);

const DRY_RUN: Parameter = ("dryRun", "string", "`All`: processes the request without storing the result.");
const FIELD_MANAGER: Parameter =
    ("fieldManager", "string", "Name of the manager of the change, at most 128 characters.");
const FIELD_VALIDATION: Parameter =
    ("fieldValidation", "string", "`Ignore`, `Warn` or `Strict`: handling of unknown and duplicate fields.");
const FORCE: Parameter = ("force", "boolean", "If true, an apply takes over fields of other managers.");
const PRETTY: Parameter = ("pretty", "string", "If `true`, the response is indented.");

const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
const DELETE: &[Parameter] = &[
    DRY_RUN,
    ("gracePeriodSeconds", "integer", "Seconds before the object is deleted."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    ("propagationPolicy", "string", "`Orphan`, `Background` or `Foreground`: handling of dependents."),
];
const LIST: &[Parameter] = &[
    ("allowWatchBookmarks", "boolean", "If true, a watch sends bookmarks."),
    ("continue", "string", "Token of the previous page."),
    ("fieldSelector", "string", "Selects objects by their fields."),
    ("labelSelector", "string", "Selects objects by their labels."),
    ("limit", "integer", "Maximum number of objects in one page."),
    ("resourceVersion", "string", "Position of the requested state."),
    ("resourceVersionMatch", "string", "`Exact` or `NotOlderThan`: match with `resourceVersion`."),
    ("sendInitialEvents", "boolean", "If true, a watch begins with the existing objects."),
    ("timeoutSeconds", "integer", "Maximum duration of the request, in seconds."),
    ("watch", "boolean", "If true, the response is a watch."),
];

/// An operation of a path.
#[derive(Clone, Copy)]
struct PathOperation {
    /// Discovery verb that the operation requires.
    verb: &'static str,
    method: &'static str,
    /// `x-kubernetes-action`.
    action: &'static str,
    /// Prefix of the operation's id.
    id: &'static str,
    parameters: &'static [Parameter],
    codes: &'static [&'static str],
}

const fn operation(
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    id: &'static str,
    parameters: &'static [Parameter],
    codes: &'static [&'static str],
) -> PathOperation {
    PathOperation { verb, method, action, id, parameters, codes }
}

const COLLECTION: &[PathOperation] = &[
    operation("list", "get", "list", "list", LIST, &["200"]),
    operation("create", "post", "post", "create", WRITE, &["200", "201", "202"]),
    operation("deletecollection", "delete", "deletecollection", "deleteCollection", LIST, &["200"]),
];
const EVERYWHERE: &[PathOperation] = &[operation("list", "get", "list", "list", LIST, &["200"])];
const OBJECT: &[PathOperation] = &[
    operation("get", "get", "get", "read", &[], &["200"]),
    operation("update", "put", "put", "replace", WRITE, &["200", "201"]),
    operation("patch", "patch", "patch", "patch", PATCH, &["200", "201"]),
    operation("delete", "delete", "delete", "delete", DELETE, &["200", "202"]),
];
const PART: &[PathOperation] = OBJECT.split_at(3).0;
const REPLACE: &[PathOperation] = PART.split_at(2).0.split_at(1).1;
const ORDER: &[PathOperation] = COLLECTION.split_at(2).0.split_at(1).1;

/// Subject of a path.
#[derive(Clone, Copy)]
struct PathSubject<'a> {
    ty: &'a ResourceType,
    /// True if the path covers all namespaces.
    everywhere: bool,
    /// Empty for the main resource.
    subresource: &'a str,
    /// Name of the schema of the resource.
    schema: &'a str,
    /// apiVersion and kind of the resource.
    kind: (&'a str, &'a str),
}

/// Adds the paths of `ty`.
pub(super) fn paths(ty: &ResourceType, paths: &mut Map<String, Value>) {
    let root = if ty.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", ty.group) };
    let root = format!("{root}/{}", ty.version);
    let scope = if ty.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{root}{scope}/{}", ty.plural);
    let schema = schemas::name(ty, &ty.kind);
    let place =
        PathSubject { ty, everywhere: false, subresource: "", schema: &schema, kind: (ty.api_version(), &ty.kind) };
    let mut add = |path: String, place: &PathSubject<'_>, operations: &[PathOperation]| {
        paths.insert(path.clone(), item(place, &path, operations));
    };
    add(collection.clone(), &place, COLLECTION);
    if ty.is_review() {
        return;
    }
    if ty.namespaced {
        add(format!("{root}/{}", ty.plural), &PathSubject { everywhere: true, ..place }, EVERYWHERE);
    }
    let object = format!("{collection}/{{name}}");
    add(object.clone(), &place, OBJECT);
    if ty.has_status {
        add(format!("{object}/status"), &PathSubject { subresource: "status", ..place }, PART);
    }
    if ty.scale.is_some() {
        let (schema, kind) = (schemas::scale_name(), ("autoscaling/v1", "Scale"));
        add(format!("{object}/scale"), &PathSubject { subresource: "scale", schema: &schema, kind, ..place }, PART);
    }
    for own in ty.subresources {
        let (subresource, path) = (own.name(), format!("{object}/{}", own.name()));
        let Some(sent) = own.sent() else {
            let operations = if *own == Subresource::Finalize { REPLACE } else { PART };
            add(path, &PathSubject { subresource, ..place }, operations);
            continue;
        };
        let (schema, kind) = (schemas::name(sent, &sent.kind), (sent.api_version(), &*sent.kind));
        add(path, &PathSubject { subresource, schema: &schema, kind, ..place }, ORDER);
    }
}

/// Describes one path: its parameters and operations.
fn item(place: &PathSubject<'_>, path: &str, operations: &[PathOperation]) -> Value {
    let mut item = Map::new();
    let mut parameters = vec![query(PRETTY)];
    for (name, what) in [("namespace", "Namespace of the object."), ("name", "Name of the object.")] {
        if path.contains(&format!("{{{name}}}")) {
            let schema = json!({ "type": "string", "uniqueItems": true });
            parameters
                .push(json!({ "name": name, "in": "path", "required": true, "description": what, "schema": schema }));
        }
    }
    item.insert("parameters".to_owned(), parameters.into());
    for operation in operations.iter().filter(|operation| place.ty.verbs.contains(&operation.verb)) {
        item.insert(operation.method.to_owned(), describe(place, *operation));
    }
    Value::Object(item)
}

fn describe(place: &PathSubject<'_>, operation: PathOperation) -> Value {
    let ty = place.ty;
    let what =
        if place.subresource.is_empty() { ty.kind.clone() } else { format!("{} of {}", place.subresource, ty.kind) };
    let mut description = json!({
        "description": format!("{} {what}", operation.id),
        "operationId": id(place, operation),
        "tags": [tag(ty)],
        "parameters": operation.parameters.iter().map(|parameter| query(*parameter)).collect::<Vec<_>>(),
        "responses": responses(place, operation),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": kind(place),
    });
    let body = match operation.method {
        "post" | "put" => Some(content(place.schema, &["*/*"])),
        "patch" => Some(content(&schemas::patch(), patch_types(ty))),
        "delete" => Some(content(&schemas::options(), &["*/*"])),
        _ => None,
    };
    if let (Some(body), Value::Object(members)) = (body, &mut description) {
        members.insert("requestBody".to_owned(), json!({ "content": body, "required": operation.method != "delete" }));
    }
    description
}

fn kind(place: &PathSubject<'_>) -> Value {
    let (api_version, kind) = place.kind;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    json!({ "group": group, "version": version, "kind": kind })
}

fn patch_types(ty: &ResourceType) -> &'static [&'static str] {
    const ALL: [&str; 4] = [
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ];
    if ty.custom.is_some() { &ALL[..3] } else { &ALL }
}

fn responses(place: &PathSubject<'_>, operation: PathOperation) -> Value {
    let schema = match operation.action {
        "list" => schemas::name(place.ty, &place.ty.list_kind()),
        "delete" | "deletecollection" => schemas::status(),
        _ => place.schema.to_owned(),
    };
    let response = |code: &str| {
        let description = match code {
            "201" => "Created",
            "202" => "Accepted",
            _ => "OK",
        };
        json!({ "description": description, "content": content(&schema, &["application/json", "application/yaml"]) })
    };
    operation.codes.iter().map(|code| ((*code).to_owned(), response(code))).collect::<Map<_, _>>().into()
}

fn content(schema: &str, types: &[&str]) -> Value {
    types.iter().map(|ty| ((*ty).to_owned(), json!({ "schema": reference(schema) }))).collect::<Map<_, _>>().into()
}

fn query((name, ty, description): Parameter) -> Value {
    let schema = json!({ "type": ty, "uniqueItems": true });
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

/// Builds an operation's id: `createCoreV1NamespacedPod`, `listCoreV1PodForAllNamespaces`,
/// `patchAppsV1NamespacedDeploymentStatus`.
fn id(place: &PathSubject<'_>, operation: PathOperation) -> String {
    let ty = place.ty;
    let scope = if ty.namespaced && !place.everywhere { "Namespaced" } else { "" };
    let behind = if place.everywhere { "ForAllNamespaces".to_owned() } else { capital(place.subresource) };
    // `Collection` follows the group version.
    let (verb, collection) = match operation.action {
        "deletecollection" => ("delete", "Collection"),
        _ => (operation.id, ""),
    };
    format!("{verb}{}{}{collection}{scope}{}{behind}", group(ty), capital(&ty.version), ty.kind)
}

fn tag(ty: &ResourceType) -> String {
    let group = group(ty);
    let (first, rest) = group.split_at(1);
    format!("{}{rest}_{}", first.to_ascii_lowercase(), ty.version)
}

/// Formats the group for ids: `Core`, `Apps`, `RbacAuthorization`.
fn group(ty: &ResourceType) -> String {
    if ty.group.is_empty() {
        return "Core".to_owned();
    }
    ty.group.trim_end_matches(".k8s.io").split('.').map(capital).collect()
}

fn capital(word: &str) -> String {
    let mut word = word.to_owned();
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    word
}
