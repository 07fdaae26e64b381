//! Service accounts of new pods: their names, tokens and secrets to pull images.
//!
//! Not implemented, on purpose: accounts whose annotation restricts the secrets of their pods, which Kubernetes 1.32
//! deprecates.
//!
//! Source: `plugin/pkg/admission/serviceaccount/admission.go` of kubernetes/kubernetes 1.36.

use api_rules::{
    object::{Object, at, metadata, put},
    registry::ResourceType,
};
use informer_serving::{go::quote, status::Status};
use serde_json::{Value, json};

use crate::quotas::forbidden;

/// Identifier of the type.
pub const ACCOUNTS: &str = "serviceaccounts";

/// Name of the account of pods that name none.
pub const DEFAULT_ACCOUNT: &str = "default";

/// Beginning of the names of volumes with a token.
pub const TOKEN_VOLUME: &str = "kube-api-access-";

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Names the account of a new pod, and returns its name; `None` for a mirror pod, which has no account.
///
/// # Errors
/// 403 for a mirror pod with an account.
pub fn choose(ty: &ResourceType, pod: &mut Object) -> Result<Option<String>, Status> {
    let text = |path: &str| at(pod, path).and_then(Value::as_str).filter(|name| !name.is_empty());
    // The second one is an older name of the first.
    let named = text("spec.serviceAccountName").or_else(|| text("spec.serviceAccount")).map(str::to_owned);
    if at(pod, "metadata.annotations").is_some_and(|annotations| annotations.get(MIRROR).is_some()) {
        let refused = named.map(|_| forbidden(ty, pod, "a mirror pod may not reference service accounts"));
        return refused.map_or(Ok(None), Err);
    }
    let name = named.unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned());
    for member in ["spec.serviceAccountName", "spec.serviceAccount"] {
        put(pod, member, name.clone().into());
    }
    Ok(Some(name))
}

/// Returns the 403 of a pod whose account does not exist.
#[must_use]
pub fn missing(ty: &ResourceType, pod: &Object, name: &str) -> Status {
    let namespace = metadata::text(pod, "namespace");
    let why = format!("error looking up service account {namespace}/{name}: serviceaccount {} not found", quote(name));
    forbidden(ty, pod, &why)
}

/// Mounts a token of its account into each container of a new pod, unless one of them declines, and lets it pull images as
/// the account. `volume` is the name of a volume to add.
pub fn complete(pod: &mut Object, account: &Object, volume: String) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let answer = |object: &Object| object.get("automountServiceAccountToken").and_then(Value::as_bool);
    if answer(spec).or_else(|| answer(account)).unwrap_or(true) {
        mount(spec, volume);
    }
    let secrets = account.get("imagePullSecrets").filter(|secrets| is_filled(secrets));
    if let Some(secrets) = secrets.filter(|_| !spec.get("imagePullSecrets").is_some_and(is_filled)) {
        spec.insert("imagePullSecrets".to_owned(), secrets.clone());
    }
}

fn is_filled(list: &Value) -> bool {
    list.as_array().is_some_and(|items| !items.is_empty())
}

fn mount(spec: &mut Object, volume: String) {
    let names = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let found = names.filter_map(|volume| volume["name"].as_str()).find(|name| name.starts_with(TOKEN_VOLUME));
    let (is_new, name) = (found.is_none(), found.map_or(volume, str::to_owned));
    let mut is_mounted = false;
    for member in ["initContainers", "containers"] {
        let containers = spec.get_mut(member).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let mounts = container.get("volumeMounts").and_then(Value::as_array).into_iter().flatten();
            if mounts.into_iter().all(|mount| mount["mountPath"] != TOKEN_PATH) {
                push(container, "volumeMounts", json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH}));
                is_mounted = true;
            }
        }
    }
    if is_new && is_mounted {
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]);
        push(spec, "volumes", json!({"name": name, "projected": {"defaultMode": 420, "sources": sources}}));
    }
}

/// Adds an item to a list. A value of another type is refused later.
fn push(object: &mut Object, member: &str, item: Value) {
    match object.entry(member).or_insert(Value::Null) {
        Value::Array(items) => items.push(item),
        list @ Value::Null => *list = json!([item]),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use api_rules::registry::Registry;

    use super::*;

    fn object(value: &Value) -> Object {
        value.as_object().expect("an object").clone()
    }

    fn chosen(pod: &Value) -> (Result<Option<String>, String>, Value) {
        let (pods, mut pod) = (Registry::builtin().find("", "v1", "pods").expect("a built-in type"), object(pod));
        let chosen = choose(&pods, &mut pod).map_err(|status| status.message.to_string());
        (chosen, pod["spec"].clone())
    }

    #[test]
    fn a_pod_has_an_account_unless_it_mirrors_another_one() {
        for (spec, name) in [
            (json!({}), "default"),
            (json!({"serviceAccount": "old"}), "old"),
            (json!({"serviceAccount": "old", "serviceAccountName": "a"}), "a"),
        ] {
            let (found, spec) = chosen(&json!({"spec": spec}));
            assert_eq!(found, Ok(Some(name.to_owned())));
            assert_eq!(spec, json!({"serviceAccount": name, "serviceAccountName": name}));
        }
        let mirror = |spec: Value| json!({"metadata": {"name": "p", "annotations": {MIRROR: "x"}}, "spec": spec});
        assert_eq!(chosen(&mirror(json!({}))), (Ok(None), json!({})));
        let refused = "pods \"p\" is forbidden: a mirror pod may not reference service accounts";
        assert_eq!(chosen(&mirror(json!({"serviceAccountName": "a"}))).0, Err(refused.to_owned()));
    }

    #[test]
    fn a_token_is_mounted_unless_pod_or_account_decline() {
        for (of_pod, of_account, is_mounted) in [
            (None, None, true),
            (None, Some(false), false),
            (Some(true), Some(false), true),
            (Some(false), Some(true), false),
        ] {
            let automount = |answer: Option<bool>| {
                let answer = answer.map(|answer| ("automountServiceAccountToken".to_owned(), answer.into()));
                answer.into_iter().collect::<Object>()
            };
            let mut spec = automount(of_pod);
            spec.insert("containers".to_owned(), json!([{"name": "c"}]));
            let mut pod = object(&json!({"spec": spec}));
            complete(&mut pod, &automount(of_account), "kube-api-access-x".to_owned());
            assert_eq!(pod["spec"].get("volumes").is_some(), is_mounted, "{of_pod:?} {of_account:?}");
            assert_eq!(pod["spec"]["containers"][0].get("volumeMounts").is_some(), is_mounted);
        }
    }

    #[test]
    fn volumes_and_secrets_of_a_pod_stay() {
        let account = object(&json!({"imagePullSecrets": [{"name": "s"}]}));
        let own = json!({"name": "own", "mountPath": TOKEN_PATH});
        let mut pod = object(&json!({"spec": {"containers": [{"volumeMounts": [own]}, {}], "initContainers": [{}],
            "volumes": [{"name": "kube-api-access-y"}]}}));
        complete(&mut pod, &account, "kube-api-access-x".to_owned());
        let mount = json!({"name": "kube-api-access-y", "readOnly": true, "mountPath": TOKEN_PATH});
        let expected = json!({"containers": [{"volumeMounts": [own]}, {"volumeMounts": [mount]}],
            "initContainers": [{"volumeMounts": [mount]}], "volumes": [{"name": "kube-api-access-y"}],
            "imagePullSecrets": [{"name": "s"}]});
        assert_eq!(pod["spec"], expected);
        pod["spec"]["imagePullSecrets"] = json!([{"name": "other"}]);
        complete(&mut pod, &account, "kube-api-access-x".to_owned());
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "other"}]));
    }
}
