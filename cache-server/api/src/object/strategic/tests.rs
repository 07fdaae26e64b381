//! Goal: kubectl's patches have the result of kube-apiserver. Method: tables of object, patch and result with real
//! schemas, and random patches.

use std::sync::LazyLock;

use serde_json::json;

use super::*;
use crate::{registry::Registry, schemas};

fn shape(group: &str, plural: &str) -> ValueShape {
    let ty = Registry::builtin().find(group, "v1", plural).expect("a built-in type");
    schemas::of(&ty).expect("a schema")
}

fn patched(shape: &ValueShape, object: &Value, patch: &Value) -> Result<Value, PatchRefusal> {
    let members = |value: &Value| value.as_object().expect("an object").clone();
    merge(members(object), members(patch), shape).map(Value::Object)
}

/// Returns the spec of a pod after a patch.
fn spec(before: Value, patch: Value) -> Result<Value, PatchRefusal> {
    static PODS: LazyLock<ValueShape> = LazyLock::new(|| shape("", "pods"));
    let after = patched(&PODS, &json!({ "spec": before }), &json!({ "spec": patch }))?;
    Ok(after["spec"].clone())
}

#[track_caller]
fn check_spec(before: Value, patch: Value, after: Value) {
    assert_eq!(spec(before.clone(), patch.clone()), Ok(after.clone()), "{before} {patch}");
    assert_eq!(spec(after.clone(), patch.clone()), Ok(after), "twice: {patch}");
}

#[test]
fn objects_merge_member_by_member() {
    check_spec(json!({"hostname": "a"}), json!({"subdomain": "b"}), json!({"hostname": "a", "subdomain": "b"}));
    check_spec(
        json!({"hostname": "a", "subdomain": "b"}),
        json!({"hostname": null, "nodeName": null}),
        json!({"subdomain": "b"}),
    );
    check_spec(
        json!({"securityContext": {"runAsUser": 1, "fsGroup": 2}}),
        json!({"securityContext": {"runAsUser": 3}}),
        json!({"securityContext": {"runAsUser": 3, "fsGroup": 2}}),
    );
    // A new object is stored without nulls and directives.
    check_spec(
        json!({}),
        json!({"securityContext": {"runAsUser": 3, "fsGroup": null, "sysctls": [{"name": "a", "value": null}]}}),
        json!({"securityContext": {"runAsUser": 3, "sysctls": [{"name": "a"}]}}),
    );
    // A value of another type is replaced.
    check_spec(
        json!({"securityContext": 7}),
        json!({"securityContext": {"a": 1}}),
        json!({"securityContext": {"a": 1}}),
    );
    check_spec(
        json!({"containers": {"a": 1}}),
        json!({"containers": [{"name": "a"}]}),
        json!({"containers": [{"name": "a"}]}),
    );
}

#[test]
fn selectors_are_merged_though_apply_takes_them_as_one() {
    let patch = json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}});
    let before = json!({"spec": {"selector": {"matchLabels": {"a": "1"}}}});
    let after = patched(&shape("apps", "deployments"), &before, &patch).expect("applies");
    assert_eq!(after["spec"]["selector"]["matchLabels"], json!({"a": "1", "b": "2"}));
}

#[test]
fn numbers_are_not_touched() {
    let before = json!({"x": 9_007_199_254_740_993_u64, "y": 0.1, "z": -1, "e": 1e300});
    let patch = json!({"v": 9_223_372_036_854_775_807_u64, "z": -2});
    let after =
        json!({"x": 9_007_199_254_740_993_u64, "y": 0.1, "z": -2, "e": 1e300, "v": 9_223_372_036_854_775_807_u64});
    check_spec(before, patch, after);
}

#[test]
fn fields_that_nobody_knows_merge_as_in_a_merge_patch() {
    check_spec(
        json!({"new": {"a": 1, "list": [{"name": "x", "a": 1}]}}),
        json!({"new": {"b": 2, "a": null, "list": [{"name": "x", "b": 2}]}}),
        json!({"new": {"b": 2, "list": [{"name": "x", "b": 2}]}}),
    );
}

#[test]
fn lists_merge_by_their_key() {
    let before = || json!({"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b", "image": "2"}]});
    check_spec(
        before(),
        json!({"containers": [{"name": "a", "image": "9", "tty": null}]}),
        json!({"containers": [{"name": "a", "image": "9"}, {"name": "b", "image": "2"}]}),
    );
    check_spec(
        before(),
        json!({"containers": [{"name": "c"}]}),
        json!({"containers": [{"name": "c"}, {"name": "a", "image": "1", "tty": true}, {"name": "b", "image": "2"}]}),
    );
    // The patch's order applies to the items that it names.
    check_spec(
        before(),
        json!({"containers": [{"name": "b"}, {"name": "a"}]}),
        json!({"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "1", "tty": true}]}),
    );
    check_spec(
        before(),
        json!({"containers": [{"name": "a", "$patch": "delete"}]}),
        json!({"containers": [{"name": "b", "image": "2"}]}),
    );
    check_spec(
        before(),
        json!({"containers": [{"$patch": "replace"}, {"name": "z", "env": [{"name": "E", "$patch": "delete"}]}]}),
        json!({"containers": [{"name": "z", "env": []}]}),
    );
    check_spec(
        before(),
        json!({"containers": [{"name": "a", "$patch": "merge", "tty": false}]}),
        json!({"containers": [{"name": "a", "image": "1", "tty": false}, {"name": "b", "image": "2"}]}),
    );
    check_spec(json!({}), json!({"containers": [{"name": "a", "$patch": "delete"}]}), json!({"containers": []}));
}

#[test]
fn lists_inside_of_items_merge_by_keys_of_their_own() {
    let item = |env: Value, ports: Value| json!({"containers": [{"name": "c", "env": env, "ports": ports}]});
    check_spec(
        item(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]), json!([{"containerPort": 80}])),
        item(
            json!([{"name": "B", "value": "3"}, {"name": "A", "$patch": "delete"}]),
            json!([{"containerPort": 80, "name": "web"}, {"containerPort": 81}]),
        ),
        item(
            json!([{"name": "B", "value": "3"}]),
            json!([{"containerPort": 80, "name": "web"}, {"containerPort": 81}]),
        ),
    );
}

#[test]
fn other_lists_are_replaced() {
    check_spec(
        json!({"tolerations": [{"key": "a"}], "containers": [{"name": "c", "args": ["1", "2"]}]}),
        json!({"tolerations": [{"key": "b", "$patch": "replace"}, {"key": "c"}], "containers": [{"name": "c", "args": ["3"]}]}),
        json!({"tolerations": [{"key": "c"}], "containers": [{"name": "c", "args": ["3"]}]}),
    );
}

#[test]
fn sets_of_texts_merge() {
    let metadata = |before: Value, patch: Value| {
        let before = json!({"metadata": {"finalizers": before}});
        let after = patched(&shape("", "configmaps"), &before, &json!({ "metadata": patch }))?;
        Ok(after["metadata"]["finalizers"].clone())
    };
    let table = [
        (json!(["a", "b"]), json!({"finalizers": ["c", "b"]}), json!(["c", "a", "b"])),
        (json!(["a", "b"]), json!({"$deleteFromPrimitiveList/finalizers": ["a", "z"]}), json!(["b"])),
        (
            json!(["a", "b"]),
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"],
                "finalizers": ["c"]}),
            json!(["c", "b"]),
        ),
        (json!(["a", "b"]), json!({"$setElementOrder/finalizers": ["b", "a"]}), json!(["b", "a"])),
        (json!(["a"]), json!({"finalizers": ["a", "a"]}), json!(["a"])),
        (json!(null), json!({"$deleteFromPrimitiveList/finalizers": ["a"]}), json!(null)),
        (json!(["a"]), json!({"finalizers": null, "$setElementOrder/finalizers": []}), json!(null)),
    ];
    for (before, patch, after) in table {
        assert_eq!(metadata(before.clone(), patch.clone()), Ok::<_, PatchRefusal>(after), "{before} {patch}");
    }
}

/// Goal: upstream's ordering rules. Method: a table of names of the items before, in the patch (`-` deletes), in the
/// requested order, and after.
#[test]
fn items_stand_in_the_order_that_is_asked_for() {
    let table = [
        ("a b c", "", "c b a", "c b a"),
        ("a b c", "", "c a", "b c a"),
        ("a s b", "n", "a n b", "a n s b"),
        ("s a b", "b", "b a", "s b a"),
        ("a b s", "-a", "b", "b s"),
        ("a s", "n a", "n a", "n a s"),
        ("", "a b", "a b", "a b"),
        ("a b", "-b", "a", "a"),
        ("x y", "n", "n", "n x y"),
    ];
    for (before, patch, order, after) in table {
        let items = |names: &str| -> Value {
            let item = |name: &str| match name.strip_prefix('-') {
                Some(gone) => json!({"name": gone, "$patch": "delete"}),
                None => json!({ "name": name }),
            };
            names.split_whitespace().map(item).collect()
        };
        let mut ordered = json!({"$setElementOrder/containers": items(order)});
        if !patch.is_empty() {
            ordered["containers"] = items(patch);
        }
        let before = if before.is_empty() { json!({}) } else { json!({"containers": items(before)}) };
        check_spec(before, ordered, json!({"containers": items(after)}));
    }
}

#[test]
fn whole_objects_are_replaced_emptied_and_deleted() {
    let before = || json!({"securityContext": {"runAsUser": 1}});
    check_spec(
        before(),
        json!({"securityContext": {"$patch": "replace", "fsGroup": 2, "runAsUser": null}}),
        json!({"securityContext": {"fsGroup": 2}}),
    );
    check_spec(before(), json!({"securityContext": {"$patch": "delete"}}), json!({"securityContext": {}}));
    check_spec(json!({}), json!({"securityContext": {"$patch": "delete"}}), json!({}));
    check_spec(
        before(),
        json!({"securityContext": {"$patch": "merge", "fsGroup": 2}}),
        json!({"securityContext": {"runAsUser": 1, "fsGroup": 2}}),
    );
}

#[test]
fn keys_that_are_not_retained_go() {
    let shape = shape("apps", "deployments");
    let before = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let after = json!({"spec": {"strategy": {"type": "Recreate"}}});
    assert_eq!(patched(&shape, &before, &patch), Ok(after.clone()));
    assert_eq!(patched(&shape, &json!({"spec": {}}), &patch), Ok(after));
    check_spec(
        json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "emptyDir": null, "configMap": {"name": "c"}}]}),
        json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}),
    );
}

#[test]
fn malformed_directives_are_refused() {
    let unfit = |text: &str| PatchRefusal::Unfit(text.to_owned());
    let retain = PatchRefusal::Malformed("invalid patch format of retainKeys");
    let order = "the order in the patch list doesn't match the $setElementOrder list";
    let table = [
        (json!({"$patch": "explode"}), unfit("unknown patch type")),
        (json!({"securityContext": {"$patch": 7}}), unfit("unknown patch type")),
        (json!({"$retainKeys": "name"}), PatchRefusal::Malformed("invalid patch format of retainKeys")),
        (json!({"$retainKeys": ["a"], "b": 1}), retain),
        (json!({"$deleteFromPrimitiveList": ["a"]}), PatchRefusal::Malformed("invalid patch format of primitive list")),
        (json!({"$deleteFromPrimitiveList/x": "a"}), PatchRefusal::Malformed("invalid patch format of primitive list")),
        (json!({"$setElementOrder": []}), PatchRefusal::Malformed("invalid patch format of setElementOrder list")),
        (
            json!({"$setElementOrder/containers": {}}),
            PatchRefusal::Malformed("invalid patch format of setElementOrder list"),
        ),
        (json!({"containers": [{"image": "i"}]}), unfit("map: map[...] does not contain declared merge key: name")),
        (
            json!({"containers": [{"$patch": "delete"}]}),
            unfit("map: map[...] does not contain declared merge key: name"),
        ),
        (
            json!({"$setElementOrder/containers": [{"image": "x"}], "containers": [{"name": "a"}]}),
            unfit("map: map[...] does not contain declared merge key: name"),
        ),
        (json!({"containers": ["a"]}), unfit("list element types are not identical")),
        (json!({"containers": [[]]}), PatchRefusal::ListOfLists),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "b"}, {"name": "a"}]}),
            unfit(order),
        ),
        (json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}), unfit(order)),
    ];
    for (patch, refusal) in table {
        let before = json!({"containers": [{"name": "a"}], "securityContext": {}});
        assert_eq!(spec(before, patch.clone()), Err(refusal), "{patch}");
    }
}

#[test]
fn long_lists_take_no_time() {
    let items = |from: usize, to: usize| -> Value { (from..to).map(|n| json!({"name": n.to_string()})).collect() };
    let order: Value = (0..20_000).rev().map(|n| json!({"name": n.to_string()})).collect();
    let before = json!({"containers": items(0, 10_000)});
    let patch = json!({"containers": (10_000..20_000).rev().map(|n| json!({"name": n.to_string()})).collect::<Value>(),
        "$setElementOrder/containers": order});
    let after = spec(before, patch).expect("applies");
    assert_eq!(after["containers"].as_array().map(Vec::len), Some(20_000));
    assert_eq!(after["containers"][0]["name"], "19999");
}

/// Generates random pod specs, or patches of them if `directives` is set.
struct Random {
    rng: fastrand::Rng,
    directives: bool,
}

impl Random {
    fn chance(&mut self, one_in: u8) -> bool {
        self.rng.u8(..one_in) == 0
    }

    fn name(&mut self) -> String {
        char::from(b'a' + self.rng.u8(..5)).to_string()
    }

    fn spec(&mut self) -> Value {
        let mut spec = json!({});
        if !self.chance(3) {
            spec["containers"] = self.containers();
        }
        if self.directives && self.chance(3) {
            let names = ["a", "b", "c", "d", "e"];
            spec["$setElementOrder/containers"] = names.iter().map(|name| json!({ "name": name })).collect();
        }
        if self.chance(2) {
            spec["securityContext"] = self.object(&["runAsUser", "fsGroup"]);
        }
        if self.chance(3) {
            spec["volumes"] = (0..self.rng.u8(..4)).map(|_| self.item(&["emptyDir", "hostPath"])).collect();
        }
        if self.chance(4) {
            spec["tolerations"] = (0..self.rng.u8(..3)).map(|_| self.object(&["key", "value"])).collect();
        }
        if self.chance(4) {
            spec["unheardOf"] = self.object(&["x", "y"]);
        }
        spec
    }

    fn containers(&mut self) -> Value {
        let mut items: Vec<Value> = (0..self.rng.u8(..4)).map(|_| self.item(&["image", "env"])).collect();
        items.sort_by_key(|item| item["name"].to_string());
        items.into()
    }

    fn item(&mut self, members: &[&str]) -> Value {
        let mut item = self.object(members);
        item["name"] = self.name().into();
        if item.get("env").is_some() {
            item["env"] = (0..self.rng.u8(..3)).map(|_| self.env()).collect();
        }
        item
    }

    fn env(&mut self) -> Value {
        let mut item = self.object(&["value"]);
        item["name"] = self.name().into();
        item
    }

    fn object(&mut self, members: &[&str]) -> Value {
        let mut object = json!({});
        for member in members {
            if !self.chance(3) {
                object[*member] = if self.directives && self.chance(4) { Value::Null } else { self.rng.u8(..3).into() };
            }
        }
        if self.directives && self.chance(5) {
            object["$patch"] = ["delete", "replace", "merge"][self.rng.usize(..3)].into();
        } else if self.directives && self.chance(6) {
            object["$retainKeys"] = members.iter().chain([&"name"]).copied().collect::<Vec<_>>().into();
        }
        object
    }
}

fn has_directive(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| name.starts_with('$') || has_directive(value)),
        Value::Array(items) => items.iter().any(has_directive),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Goal: no directive is stored, and patches are idempotent. Method: random patches of random specs.
#[test]
fn random_patches_leave_no_directive_and_are_done_once() {
    let mut applied = 0;
    for seed in 0..20_000 {
        let mut random = Random { rng: fastrand::Rng::with_seed(seed), directives: false };
        let before = random.spec();
        random.directives = true;
        let patch = random.spec();
        let Ok(after) = spec(before.clone(), patch.clone()) else { continue };
        applied += 1;
        assert!(!has_directive(&after), "{seed}: {before} {patch} {after}");
        assert_eq!(spec(after.clone(), patch.clone()), Ok(after), "{seed}: {before} {patch}");
    }
    assert!(applied > 10_000, "{applied}");
}
