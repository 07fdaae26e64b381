//! JSON patches with the semantics of kube-apiserver. Its library, evanphx/json-patch v4, is more lenient than RFC
//! 6902:
//!
//! - `test` against null passes for an absent member, and `replace` creates one;
//! - `copy` of an absent member copies null, and `add` without a value adds null;
//! - `-1` is the last item of a list, or the position behind it for `add`;
//! - text before the first slash of a path is ignored.
//!
//! Clients rely on this: `kube::runtime::finalizer` tests `/metadata/finalizers` against null before it adds one.
//!
//! INVARIANT: work and growth are bounded in advance: each operation counts the items that it may move and copy.
//! INVARIANT: error messages name the operation and its path, never a value.
//!
//! Source: gopkg.in/evanphx/json-patch.v4 `patch.go`; apiserver `endpoints/handlers/patch.go` (jsonPatcher).

use informer_serving::{
    go::{self, quote},
    status::{Status, StatusExt as _},
};
use serde_json::Value;

use super::super::{body::Object, draft::DEPTH_MAX, weight::Weight};

/// Upper bound on operations in one JSON patch.
pub(crate) const OPERATIONS_MAX: usize = 10_000;

/// Upper bound on list items that the operations of one JSON patch may shift, and on values that they may carry along.
/// Within it, ten thousand operations on one long list take a tenth of a second.
const MOVES_MAX: usize = 32_000_000;

/// Characters of a path that a message repeats.
const PATH_CHARS_MAX: usize = 200;

/// Members of an operation that hold a string.
const TEXTS: [&str; 3] = ["op", "path", "from"];

/// Members of an operation.
pub(crate) const MEMBERS: [&str; 4] = ["op", "path", "from", "value"];

/// One operation of a JSON patch. Missing members are detected when it runs, as in kube-apiserver.
#[derive(Debug, Default)]
pub(crate) struct Operation {
    op: Option<String>,
    path: Option<String>,
    from: Option<String>,
    /// Null if absent.
    value: Value,
}

/// Parses the operations of a patch.
///
/// If `is_strict`, members of a wrong JSON type are refused; otherwise they count as absent when the operation runs.
///
/// # Errors
/// 413 for more than [`OPERATIONS_MAX`]; Go's message for a value that is no operation.
pub(crate) fn read(
    operations: Vec<Value>,
    is_strict: bool,
    mistyped: impl Fn(&str) -> Status,
) -> Result<Vec<Operation>, Status> {
    if operations.len() > OPERATIONS_MAX {
        return Err(Status::request_entity_too_large(&format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    let read = |operation| Operation::read(operation, is_strict).map_err(|error| mistyped(&error));
    operations.into_iter().map(read).collect()
}

impl Operation {
    fn read(operation: Value, is_strict: bool) -> Result<Self, String> {
        let mut members = match operation {
            Value::Object(members) => members,
            Value::Null => Object::new(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                let found = go::json_type(&other);
                return Err(format!("json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp"));
            }
        };
        let mut text = |member: &str| match members.remove(member) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) if !is_strict => Ok(None),
            Some(other) => Err(format!(
                "json: cannot unmarshal {} into Go struct field jsonPatchOp.{member} of type string",
                go::json_type(&other)
            )),
        };
        let [op, path, from] = TEXTS.map(&mut text);
        Ok(Self { op: op?, path: path?, from: from?, value: members.remove("value").unwrap_or_default() })
    }
}

/// Runs the operations in order.
///
/// # Errors
/// 422 with the operation that does not apply, or whose result would be too deep, too large or too costly. `value` is
/// then in an unspecified state.
pub(crate) fn run(value: &mut Value, operations: &[Operation]) -> Result<(), Status> {
    let mut spent = OperationCost::default();
    for (at, operation) in operations.iter().enumerate() {
        step(value, operation, &mut spent).map_err(|why| refused(at, operation, why))?;
    }
    Ok(())
}

/// Builds the refusal. kube-apiserver returns only the text before the colon, without the reason.
fn refused(at: usize, operation: &Operation, why: &str) -> Status {
    let shown = |text: &Option<String>| {
        quote(&text.as_deref().unwrap_or_default().chars().take(PATH_CHARS_MAX).collect::<String>())
    };
    let mut status = Status::generic_invalid();
    let name = operation.op.as_deref().filter(|name| NAMES.contains(name)).unwrap_or("unknown");
    status.message.push_str(&format!(": JSON patch operation {at} ({name} {}): {why}", shown(&operation.path)));
    status
}

const NAMES: [&str; 6] = ["add", "remove", "replace", "move", "copy", "test"];

const NO_PARENT: &str = "the path leads through an absent value or a scalar";
const NO_MEMBER: &str = "there is no such member";
const NO_INDEX: &str = "there is no such list index";
const TOO_MUCH: &str = "the patch moves or copies too much";

/// Cost of the operations so far.
#[derive(Default)]
struct OperationCost {
    /// Memory of copied values.
    copied: Weight,
    /// List items shifted, and values carried along.
    moved: usize,
}

fn step(document: &mut Value, operation: &Operation, spent: &mut OperationCost) -> Result<(), &'static str> {
    let path = operation.path.as_deref().ok_or("it has no path");
    let from = || operation.from.as_deref().ok_or("it has no from");
    match operation.op.as_deref() {
        Some("add") => add(document, path?, operation.value.clone(), spent),
        Some("remove") => remove(document, path?, spent).map(drop),
        Some("replace") => replace(document, path?, operation.value.clone(), spent),
        Some("move") => {
            let value = remove(document, from()?, spent)?;
            add(document, path?, value, spent)
        }
        Some("copy") => {
            let value = get(document, from()?)?.unwrap_or(&Value::Null);
            spent.copied.value(value).map_err(|_| TOO_MUCH)?;
            let value = value.clone();
            add(document, path?, value, spent)
        }
        Some("test") => test(document, path?, &operation.value),
        Some(_) | None => Err("there is no such operation"),
    }
}

/// Splits a path into the keys before the last one, and the last one. Text before the first slash is ignored.
fn keys(path: &str) -> Option<(impl Iterator<Item = String>, String)> {
    let (_, path) = path.split_once('/')?;
    let (parents, last) = path.rsplit_once('/').map_or((None, path), |(parents, last)| (Some(parents), last));
    Some((parents.into_iter().flat_map(|parents| parents.split('/')).map(unescape), unescape(last)))
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

/// Returns the container that the last key of a path refers to, and that key.
fn parent<'v>(document: &'v mut Value, path: &str) -> Result<(&'v mut Value, String), &'static str> {
    let (parents, last) = keys(path).ok_or(NO_PARENT)?;
    let mut value = document;
    for key in parents {
        value = match value {
            Value::Object(members) => members.get_mut(&key),
            Value::Array(items) => index(&key, items.len()).ok().and_then(|at| items.get_mut(at)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
        .ok_or(NO_PARENT)?;
    }
    if value.is_object() || value.is_array() { Ok((value, last)) } else { Err(NO_PARENT) }
}

/// Resolves a list index among `len` items; negative ones count from the end.
fn index(key: &str, len: usize) -> Result<usize, &'static str> {
    let number: i64 = key.parse().map_err(|_| NO_INDEX)?;
    let from_start = usize::try_from(number.unsigned_abs()).map_err(|_| NO_INDEX)?;
    let place = if number < 0 { len.checked_sub(from_start) } else { Some(from_start) };
    place.filter(|place| *place < len).ok_or(NO_INDEX)
}

/// Returns the value at `path`; `None` for an absent member of an object.
fn get<'v>(document: &'v mut Value, path: &str) -> Result<Option<&'v Value>, &'static str> {
    let (parent, key) = parent(document, path)?;
    if let Value::Array(items) = parent {
        index(&key, items.len()).map(|at| items.get(at))
    } else {
        Ok(parent.get(&key))
    }
}

fn add(document: &mut Value, path: &str, value: Value, spent: &mut OperationCost) -> Result<(), &'static str> {
    check_depth(path, &value, spent)?;
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key, items.len() + 1)?;
            spent.list(items.len())?;
            items.insert(at, value);
        }
        Value::Object(members) => {
            members.insert(key, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Err(NO_PARENT),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str, spent: &mut OperationCost) -> Result<Value, &'static str> {
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            spent.list(items.len())?;
            Ok(items.remove(at))
        }
        Value::Object(members) => members.remove(&key).ok_or(NO_MEMBER),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(NO_PARENT),
    }
}

fn replace(document: &mut Value, path: &str, value: Value, spent: &mut OperationCost) -> Result<(), &'static str> {
    check_depth(path, &value, spent)?;
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("the whole object can be replaced by an object alone");
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = parent(document, path)?;
    match parent {
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            items[at] = value;
        }
        Value::Object(members) => {
            members.insert(key, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Err(NO_PARENT),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, expected: &Value) -> Result<(), &'static str> {
    let found = if path.is_empty() { Some(&*document) } else { get(document, path)? };
    if found.unwrap_or(&Value::Null) == expected { Ok(()) } else { Err("the value is another") }
}

/// Refuses a result that could not be decoded again, before it is built.
fn check_depth(path: &str, value: &Value, spent: &mut OperationCost) -> Result<(), &'static str> {
    let (levels, values) = extent(value);
    spent.list(values)?;
    if path.matches('/').count() + levels > DEPTH_MAX {
        return Err("the result is nested too deep");
    }
    Ok(())
}

impl OperationCost {
    fn list(&mut self, items: usize) -> Result<(), &'static str> {
        self.moved += items;
        if self.moved > MOVES_MAX { Err(TOO_MUCH) } else { Ok(()) }
    }
}

/// Returns the depth of a value, and the number of values in it.
fn extent(value: &Value) -> (usize, usize) {
    let around = |(levels, values): (usize, usize), inner: &Value| {
        let (deep, more) = extent(inner);
        (levels.max(1 + deep), values + more)
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (0, 1),
        Value::Array(items) => items.iter().fold((1, 1), around),
        Value::Object(members) => members.values().fold((1, 1), around),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(document: &Value, operations: Value) -> Result<Value, String> {
        let operations = operations.as_array().expect("a list").clone();
        let operations = read(operations, true, |text| Status::bad_request(text)).map_err(|status| status.message)?;
        let mut value = document.clone();
        run(&mut value, &operations).map(|()| value).map_err(|status| status.message)
    }

    /// Goal: the leniency of kube-apiserver's library beyond RFC 6902. Method: a table of operations and the results of
    /// a real kube-apiserver.
    #[test]
    fn what_kube_apiserver_accepts_is_accepted() {
        let document = json!({"m": {"k": "v"}, "l": ["a", "b"]});
        let table = [
            (json!([{"op": "test", "path": "/m/none", "value": null}]), "/m", json!({"k": "v"})),
            (json!([{"op": "test", "path": "/m/none"}]), "/m", json!({"k": "v"})),
            (json!([{"op": "replace", "path": "/m/none", "value": "w"}]), "/m/none", json!("w")),
            (json!([{"op": "copy", "from": "/m/none", "path": "/m/c"}]), "/m/c", json!(null)),
            (json!([{"op": "add", "path": "/m/n"}]), "/m/n", json!(null)),
            (json!([{"op": "add", "path": "m/k", "value": 1}]), "/k", json!(1)),
            (json!([{"op": "add", "path": "x/m/k", "value": 1}]), "/m/k", json!(1)),
            (json!([{"op": "replace", "path": "/l/-1", "value": "z"}]), "/l", json!(["a", "z"])),
            (json!([{"op": "remove", "path": "/l/-2"}]), "/l", json!(["b"])),
            (json!([{"op": "add", "path": "/l/-1", "value": "z"}]), "/l", json!(["a", "b", "z"])),
            (json!([{"op": "test", "path": "/l/-1", "value": "b"}]), "/l/1", json!("b")),
            (json!([{"op": "move", "from": "/l/0", "path": "/m/a~1b~0c"}]), "/m/a~1b~0c", json!("a")),
            (json!([{"op": "replace", "path": "", "value": {"n": 1}}]), "", json!({"n": 1})),
        ];
        for (operations, path, expected) in table {
            let patched = patched(&document, operations.clone()).expect("applies");
            assert_eq!(patched.pointer(path), Some(&expected), "{operations}");
        }
    }

    /// Goal: messages name the failed operation. Method: a table of operations that do not apply.
    #[test]
    fn a_refusal_names_the_operation_and_its_path() {
        let document = json!({"m": {"k": "secret"}, "l": ["a"], "s": 1});
        let table = [
            (json!({"op": "test", "path": "/m/k", "value": "other"}), "test \"/m/k\"): the value is another"),
            (json!({"op": "test", "path": "/m/k"}), "test \"/m/k\"): the value is another"),
            (
                json!({"op": "test", "path": "/none/k", "value": null}),
                "test \"/none/k\"): the path leads through an absent value or a scalar",
            ),
            (json!({"op": "remove", "path": "/m/none"}), "remove \"/m/none\"): there is no such member"),
            (json!({"op": "move", "from": "/m/none", "path": "/x"}), "move \"/x\"): there is no such member"),
            (json!({"op": "add", "path": "/l/3", "value": 1}), "add \"/l/3\"): there is no such list index"),
            (json!({"op": "add", "path": "/l/x", "value": 1}), "add \"/l/x\"): there is no such list index"),
            (json!({"op": "remove", "path": "/l/-2"}), "remove \"/l/-2\"): there is no such list index"),
            (
                json!({"op": "add", "path": "/s/a", "value": 1}),
                "add \"/s/a\"): the path leads through an absent value or a scalar",
            ),
            (
                json!({"op": "add", "path": "nowhere", "value": 1}),
                "add \"nowhere\"): the path leads through an absent value or a scalar",
            ),
            (json!({"op": "fly", "path": "/m"}), "unknown \"/m\"): there is no such operation"),
            (json!({"op": "add"}), "add \"\"): it has no path"),
            (json!({"op": "copy", "path": "/m"}), "copy \"/m\"): it has no from"),
            (json!(null), "unknown \"\"): there is no such operation"),
        ];
        for (operation, text) in table {
            let first = json!({"op": "test", "path": "/m/k", "value": "secret"});
            let refused = patched(&document, json!([first, operation])).expect_err("does not apply");
            let start = "the server rejected our request due to an error in our request: JSON patch operation 1 (";
            assert_eq!(refused, format!("{start}{text}"));
        }
    }
}
