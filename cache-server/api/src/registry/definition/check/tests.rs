//! Defaults, validation and acceptance of names. The tests of the server cover rejected definitions as a whole; these
//! cover cases that requests cannot reach.

use super::*;
use crate::registry::{Registry, TakenNames};

fn definition(name: &str, names: Value) -> Object {
    let (_, group) = name.split_once('.').unwrap_or((name, ""));
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties":
        {"color": {"type": "string"}, "parts": {"type": "array"}}}}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let object = json!({"metadata": {"name": name}, "spec": {"group": group, "scope": "Cluster", "names": names,
        "versions": [version]}});
    object.as_object().expect("an object").clone()
}

fn prepared(name: &str, names: Value) -> Object {
    let mut object = definition(name, names);
    Definition::prepare(&mut object, DefinitionChange::Create).expect("a definition");
    object
}

fn read(object: &Object) -> Definition {
    Definition::read(object).expect("a definition")
}

/// The new status of a definition beside others.
fn accept(object: &Object, others: &[Definition], now: &str) -> Option<accept::AcceptedStatus> {
    let definition = read(object);
    let registry = Registry::builtin();
    let mut taken = TakenNames::of_builtin(definition.group(), registry.iter().map(|ty| &**ty));
    others.iter().filter(|other| other.group() == definition.group()).for_each(|other| taken.add(other));
    definition.accept(&taken, now)
}

fn refused(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut object = Value::Object(definition("as.b.c", json!({"plural": "as", "kind": "A"})));
    change(&mut object);
    match Definition::prepare(object.as_object_mut().expect("still an object"), DefinitionChange::Create) {
        Ok(()) => Vec::new(),
        Err(DefinitionRefusal::Malformed) => vec!["malformed".to_owned()],
        Err(DefinitionRefusal::Invalid(causes)) => {
            causes.into_parts().0.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
        }
    }
}

#[test]
fn what_follows_from_the_kind_may_be_left_out() {
    let object = Value::Object(prepared("as.b.c", json!({"plural": "as", "kind": "A", "singular": null})));
    assert_eq!(object["spec"]["names"], json!({"plural": "as", "kind": "A", "singular": "a", "listKind": "AList"}));
    assert_eq!(
        object["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]})
    );
    let mut again = object.as_object().expect("an object").clone();
    Definition::prepare(&mut again, DefinitionChange::Update(object.as_object().expect("an object")))
        .expect("the same");
    assert_eq!(Value::Object(again), object, "nothing is left to fill in");
}

/// Goal: paths in a version are validated. Method: a table of changed paths and the expected errors.
#[test]
fn paths_into_objects_lead_where_they_must() {
    let scale = |member: &str, path: &str| {
        let mut scale = json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"});
        scale[member] = json!(path);
        refused(|object| object["spec"]["versions"][0]["subresources"] = json!({"scale": scale}))
    };
    assert!(scale("labelSelectorPath", ".spec.s").is_empty());
    for (member, path, why) in [
        ("specReplicasPath", ".status.n", "Invalid value: \".status.n\": should be a json path under .spec"),
        ("specReplicasPath", "", "Required value"),
        ("statusReplicasPath", ".spec.n", "Invalid value: \".spec.n\": should be a json path under .status"),
        ("labelSelectorPath", "s", "Invalid value: \"s\": should be a json path under either .spec or .status"),
    ] {
        assert_eq!(scale(member, path), [format!("spec.versions[0].subresources.scale.{member}: {why}")]);
    }
    let select = |paths: &[&str]| {
        let fields: Vec<_> = paths.iter().map(|path| json!({"jsonPath": path})).collect();
        refused(|object| object["spec"]["versions"][0]["selectableFields"] = json!(fields))
    };
    assert!(select(&[".spec.color"]).is_empty());
    let at = "spec.versions[0].selectableFields[0]";
    for (path, refusal) in [
        ("", format!("{at}.jsonPath: Required value")),
        (
            "spec.color",
            format!(
                "{at}.jsonPath: Invalid value: \"spec.color\": is an invalid path: does not refer to a valid field"
            ),
        ),
        (".metadata.name", format!("{at}: Invalid value: \".metadata.name\": must not point to fields in metadata")),
        (
            ".spec.parts",
            format!(
                "{at}: Invalid value: \".spec.parts\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
            ),
        ),
    ] {
        assert_eq!(select(&[path]), [refusal]);
    }
    let twice = "spec.versions[0].selectableFields[1]: Duplicate value: \".spec.color\"";
    assert_eq!(select(&[".spec.color", ".spec.color"]), [twice]);
}

/// Goal: no definition costs unbounded work, and no definition in use is rejected. Method: each list with the maximum
/// length, and with one item more.
#[test]
fn lists_of_a_definition_have_a_longest_length() {
    let versions = |count: usize| -> Vec<Value> {
        let version = |number: usize| json!({"name": format!("v{number}"), "storage": number == 0, "schema": {"openAPIV3Schema": {}}});
        (0..count).map(version).collect()
    };
    let labels = |count: usize| -> Vec<String> { (0..count).map(|number| format!("n{number}")).collect() };
    type Put = fn(&mut Value, Value);
    let table: [(Put, Value, Value, &str); 4] = [
        (
            |object, list| object["spec"]["versions"] = list,
            json!(versions(VERSIONS_MAX)),
            json!(versions(VERSIONS_MAX + 1)),
            "spec.versions: Too many: 65: must have at most 64 items",
        ),
        (
            |object, list| object["spec"]["versions"][0]["additionalPrinterColumns"] = list,
            json!(vec![json!({"name": "a", "type": "string", "jsonPath": ".a"}); PRINTER_COLUMNS_MAX]),
            json!(vec![json!({"name": "a", "type": "string", "jsonPath": ".a"}); PRINTER_COLUMNS_MAX + 1]),
            "spec.versions[0].additionalPrinterColumns: Too many: 129: must have at most 128 items",
        ),
        (
            |object, list| object["spec"]["names"]["shortNames"] = list,
            json!(labels(SHORT_NAMES_MAX)),
            json!(labels(SHORT_NAMES_MAX + 1)),
            "spec.names.shortNames: Too many: 65: must have at most 64 items",
        ),
        (
            |object, list| object["spec"]["names"]["categories"] = list,
            json!(labels(CATEGORIES_MAX)),
            json!(labels(CATEGORIES_MAX + 1)),
            "spec.names.categories: Too many: 65: must have at most 64 items",
        ),
    ];
    for (put, longest, longer, why) in table {
        assert_eq!(refused(|object| put(object, longest)), Vec::<String>::new(), "{why}");
        assert_eq!(refused(|object| put(object, longer)), [why]);
    }
}

#[test]
fn members_of_other_types_are_no_definition() {
    assert_eq!(refused(|object| object["spec"]["versions"] = json!({})), ["malformed"]);
    assert_eq!(refused(|object| object["spec"]["names"]["shortNames"] = json!([1])), ["malformed"]);
    assert!(refused(|object| object["spec"] = Value::Null).contains(&"spec.group: Required value".to_owned()));
}

/// Clients may write anything into the status subresource; only the acceptance of names decides what is served.
#[test]
fn a_status_that_says_nothing_is_written_again() {
    let mut object = prepared("as.b.c", json!({"plural": "as", "kind": "A"}));
    object["status"] = json!({"conditions": "none", "acceptedNames": 7});
    accept(&object, &[], "now").expect("news").write(&mut object);
    assert!(read(&object).is_established() && object["status"]["storedVersions"] == json!(["v1"]));
}

#[test]
fn a_definition_that_goes_waits_for_its_objects() {
    let mut object = prepared("as.b.c", json!({"plural": "as", "kind": "A"}));
    Definition::terminate(&mut object, "2026-01-01T00:00:00Z");
    Definition::terminate(&mut object, "2026-01-01T00:00:01Z");
    let object = Value::Object(object);
    assert_eq!(object["metadata"]["finalizers"], json!([CLEANUP]));
    assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
}

/// Goal: the first definition keeps its names, whatever later ones request. Method: definitions of one group, one after
/// the other.
#[test]
fn names_are_accepted_once() {
    const NOW: &str = "2026-01-01T00:00:00Z";
    let accept = |object: &mut Object, others: &[Definition]| -> bool {
        let Some(accepted) = accept(object, others, NOW) else { return false };
        accepted.write(object);
        assert_eq!(accept(object, others, "later"), None, "nothing more to say");
        true
    };
    let mut first = prepared("as.b.c", json!({"plural": "as", "kind": "A", "shortNames": ["x", "y"]}));
    assert!(accept(&mut first, &[]) && read(&first).is_established());
    let first = [read(&first)];
    let reason = |object: &Object| Value::Object(object.clone())["status"]["conditions"][0]["reason"].clone();
    for (names, why) in [
        (json!({"plural": "bs", "kind": "A", "listKind": "BList"}), "KindConflict"),
        (json!({"plural": "bs", "kind": "B", "listKind": "AList"}), "ListKindConflict"),
        (json!({"plural": "bs", "kind": "B", "singular": "as"}), "SingularConflict"),
        (json!({"plural": "bs", "kind": "B", "shortNames": ["y"]}), "ShortNamesConflict"),
        (json!({"plural": "bs", "kind": "B", "singular": "as", "shortNames": ["y"]}), "ShortNamesConflict"),
        (json!({"plural": "bs", "kind": "A", "listKind": "BList", "shortNames": ["y"]}), "KindConflict"),
    ] {
        let mut second = prepared("bs.b.c", names);
        assert!(accept(&mut second, &first));
        assert!(!read(&second).is_established() && reason(&second) == why, "{why}");
        // Without the first definition, as in another group, the names are free.
        assert!(accept(&mut second, &[]) && read(&second).is_established());
    }
    let mut lease = definition("leases.coordination.k8s.io", json!({"plural": "leases", "kind": "Lease"}));
    assert!(accept(&mut lease, &[]));
    assert_eq!(reason(&lease), "KindConflict", "built-in types were there first");
}

#[test]
fn an_established_type_stays_when_it_asks_for_a_name_that_is_taken() {
    let mut first = prepared("as.b.c", json!({"plural": "as", "kind": "A", "shortNames": ["x"]}));
    let mut second = prepared("bs.b.c", json!({"plural": "bs", "kind": "B"}));
    for object in [&mut first, &mut second] {
        accept(object, &[], "now").expect("news").write(object);
    }
    let mut second = Value::Object(second);
    second["spec"]["names"]["shortNames"] = json!(["x"]);
    let second = second.as_object_mut().expect("an object");
    accept(second, &[read(&first)], "now").expect("a conflict").write(second);
    let definition = read(second);
    assert!(definition.is_established());
    let types = definition.types(&std::sync::Arc::new(definition.schema()), 1);
    assert!(types[0].short_names.is_empty(), "not served under a name that was not accepted");
}
