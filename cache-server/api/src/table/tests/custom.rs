//! Columns of custom resources.

use super::*;

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

#[test]
fn a_definition_without_columns_shows_an_age() {
    for columns in [
        Columns::custom(&[]),
        Columns::custom(&PrinterColumn::list(&json!([]))),
        Columns::custom(&PrinterColumn::list(&Value::Null)),
    ] {
        let names: Vec<Value> =
            definitions(&columns).iter().map(|it| json!([it["name"], it["type"], it["format"]])).collect();
        assert_eq!(names, [json!(["Name", "string", "name"]), json!(["Age", "date", ""])]);
        // The server computes the age, although the column's type is a date.
        assert_eq!(row(&columns, object(json!({})).to_string().as_bytes()), json!({"cells": ["a", "5m"]}));
        assert_eq!(row(&columns, b"{}"), json!({"cells": ["", null]}));
    }
}

#[test]
fn columns_of_a_definition_stand_behind_the_name() {
    let declared = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large.", "priority": 1, "format": "int32"},
        column("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#),
    ]);
    let columns = Columns::custom(&PrinterColumn::list(&declared));
    let definitions = definitions(&columns);
    assert_eq!(definitions.len(), 3);
    let size =
        json!({"name": "Size", "type": "integer", "format": "int32", "description": "How large.", "priority": 1});
    assert_eq!(definitions[1], size);
    let described =
        "Custom resource definition column (in JSONPath format): .status.conditions[?(@.type==\"Ready\")].status";
    assert_eq!((&definitions[2]["description"], &definitions[2]["priority"]), (&json!(described), &json!(0)));
    let ready = json!({"spec": {"size": 3}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(row(&columns, object(ready).to_string().as_bytes()), json!({"cells": ["a", 3, "True"]}));
    assert_eq!(row(&columns, object(json!({})).to_string().as_bytes()), json!({"cells": ["a", null, null]}));
}

#[test]
fn a_value_of_another_type_is_not_shown() {
    let object = object(json!({"v": {
        "text": "t", "integer": 7, "float": 1.5, "yes": true, "list": [1, "<"], "map": {"b": null, "a": 2}, "nothing": null,
        "date": "2026-01-01T00:09:50Z", "empty": "",
    }}));
    for (kind, path, expected) in [
        ("string", "text", json!("t")),
        ("string", "integer", json!("7")),
        ("string", "float", json!("1.5")),
        ("string", "yes", json!("true")),
        ("string", "list", json!("[1,\"\\u003c\"]")),
        ("string", "map", json!("{\"a\":2,\"b\":null}")),
        ("string", "nothing", json!("<no value>")),
        ("string", "missing", json!(null)),
        ("integer", "integer", json!(7)),
        ("integer", "float", json!(1)),
        ("integer", "text", json!(null)),
        ("number", "float", json!(1.5)),
        ("number", "integer", json!(7)),
        ("boolean", "yes", json!(true)),
        ("boolean", "text", json!(null)),
        ("date", "date", json!("10s")),
        ("date", "text", json!("<invalid>")),
        ("date", "empty", json!("<unknown>")),
        ("date", "integer", json!(null)),
        ("other", "text", json!(null)),
    ] {
        let declared = json!([column("X", kind, &format!(".v.{path}"))]);
        let columns = Columns::custom(&PrinterColumn::list(&declared));
        assert_eq!(row(&columns, object.to_string().as_bytes())["cells"][1], expected, "{kind} {path}");
    }
}

#[test]
fn a_definition_that_says_nonsense_is_shown_as_far_as_it_goes() {
    let declared =
        json!([{"name": 3, "type": [], "jsonPath": "nonsense"}, "x", column("Ok", "string", ".metadata.name")]);
    let columns = Columns::custom(&PrinterColumn::list(&declared));
    assert_eq!(row(&columns, object(json!({})).to_string().as_bytes()), json!({"cells": ["a", null, null, "a"]}));
}

/// Goal: no definition makes a row cost more than its object. Method: many columns, each of which would visit all pairs
/// of values of a long object; then many that each show the whole object.
#[test]
fn columns_share_the_work_and_the_bytes_of_a_row() {
    let items: Vec<Value> = (0..8_000).map(|number| json!({"a": {"b": {"name": format!("item-{number}")}}})).collect();
    let object = object(json!({"spec": {"items": items, "size": 3}})).to_string();
    let columns = |path: &str, count: usize| {
        let last = column("Size", "integer", ".spec.size");
        let declared: Vec<Value> = vec![column("X", "string", path); count].into_iter().chain([last]).collect();
        Columns::custom(&PrinterColumn::list(&json!(declared)))
    };
    let cells = |columns: &Columns| row(columns, object.as_bytes())["cells"].as_array().expect("cells").clone();
    let begun = std::time::Instant::now();
    let none = cells(&columns("..a..b..c..d", 5_000));
    assert_eq!((none.len(), none.iter().filter(|cell| cell.is_null()).count()), (5_002, 5_001));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    let whole = row(&columns(".spec", 1_000), object.as_bytes()).to_string();
    assert!(whole.len() < 1 << 20, "{} bytes", whole.len());
    // The maximum number of columns for an ordinary object: all are shown.
    let small = super::object(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})).to_string();
    let paths = columns(r#".status.conditions[?(@.type=="Ready")].status"#, 128);
    let shown = row(&paths, small.as_bytes());
    assert!(shown["cells"].as_array().expect("cells")[1..129].iter().all(|cell| cell == "True"));
}

/// Goal: parsing a path takes linear time. Method: nested filters full of operators and quotes.
#[test]
fn a_path_of_signs_and_quotes_is_read_at_once() {
    let path = [&"[?(@.a".repeat(60), "=='", &"<=>".repeat(150), "'", &")]".repeat(60)].concat();
    let begun = std::time::Instant::now();
    let declared = vec![column("X", "string", &path); 128];
    let _ = Columns::custom(&PrinterColumn::list(&json!(declared)));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
