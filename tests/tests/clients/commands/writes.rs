//! kubectl changes objects: client-side and server-side apply, and every command that patches or replaces.
//!
//! Goal: users maintain objects by manifests. Method: apply manifests repeatedly with changes, and check the stored
//! objects.

use serde_json::Value;
use tests::process::Server;

use super::{Kubectl, SERVER};

/// A Deployment with every kind of field that patches treat specially.
const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web, tier: front}
  finalizers: [example.com/one, example.com/two]
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {disk: ssd}
      tolerations:
      - {key: a, operator: Exists}
      - {key: b, operator: Exists}
      volumes:
      - name: cache
        emptyDir: {}
      - name: config
        configMap: {name: web}
      containers:
      - name: main
        image: web:1
        args: [--one, --two]
        env:
        - {name: A, value: one}
        - {name: B, value: two}
        - {name: C, value: three}
        ports:
        - {containerPort: 80, name: http}
        - {containerPort: 81, name: metrics}
        resources: {limits: {cpu: '1', memory: 1Gi}}
        volumeMounts:
        - {name: cache, mountPath: /cache}
        - {name: config, mountPath: /config}
      - name: side
        image: side:1
";

async fn stored(kubectl: &Kubectl) -> Value {
    let text = kubectl.run(&["get", "--raw", "/apis/apps/v1/namespaces/default/deployments/web"]).await;
    let object: Value = serde_json::from_str(&text).expect("JSON");
    let mut rest = object.clone();
    rest["metadata"]["annotations"] = Value::Null;
    assert!(!rest.to_string().contains("\"$"), "a directive is stored: {rest}");
    object
}

fn names(list: &Value, member: &str) -> Vec<String> {
    let items = list.as_array().expect("a list").iter();
    items.map(|item| item[member].to_string().trim_matches('"').to_owned()).collect()
}

impl Kubectl {
    async fn apply(&self, text: &str, more: &[&str]) -> String {
        let file = self.file("object.yaml", text);
        self.run(&[&["apply", "-f", &file], more].concat()).await
    }
}

#[tokio::test]
async fn a_manifest_is_applied_again_and_again() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    assert_eq!(kubectl.apply(WEB, &[]).await, "deployment.apps/web created\n");
    assert_eq!(kubectl.apply(WEB, &[]).await, "deployment.apps/web unchanged\n");

    // Remove a variable and a container, add a variable, and reorder the rest.
    let text = WEB
        .replace("        - {name: B, value: two}\n", "")
        .replace(
            "        - {name: A, value: one}\n",
            "        - {name: NEW, value: new}\n        - {name: A, value: 1st}\n",
        )
        .replace("      - name: side\n        image: side:1\n", "");
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web configured\n");
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web unchanged\n");
    let spec = stored(&kubectl).await["spec"]["template"]["spec"].clone();
    assert_eq!(names(&spec["containers"], "name"), ["main"]);
    assert_eq!(names(&spec["containers"][0]["env"], "name"), ["NEW", "A", "C"]);
    assert_eq!(names(&spec["containers"][0]["env"], "value"), ["new", "1st", "three"]);

    // Change ports, volumes, volume mounts, and lists without merge keys.
    let text = text
        .replace("        - {containerPort: 80, name: http}\n", "")
        .replace("name: metrics}\n", "name: metrics}\n        - {containerPort: 8080, name: http}\n")
        .replace("        configMap: {name: web}\n", "        secret: {secretName: web}\n")
        .replace("      - name: cache\n        emptyDir: {}\n", "")
        .replace("        - {name: cache, mountPath: /cache}\n", "")
        .replace("      - {key: a, operator: Exists}\n", "")
        .replace("--one, --two", "--three")
        .replace("disk: ssd", "zone: a");
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web configured\n");
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web unchanged\n");
    let spec = stored(&kubectl).await["spec"]["template"]["spec"].clone();
    let main = &spec["containers"][0];
    assert_eq!(names(&main["ports"], "containerPort"), ["81", "8080"]);
    assert_eq!(names(&main["volumeMounts"], "mountPath"), ["/config"]);
    assert_eq!(spec["volumes"], serde_json::json!([{"name": "config", "secret": {"secretName": "web"}}]));
    assert_eq!(
        (names(&spec["tolerations"], "key"), &main["args"]),
        (vec!["b".to_owned()], &serde_json::json!(["--three"]))
    );
    assert_eq!(spec["nodeSelector"], serde_json::json!({"zone": "a"}));

    // Change the strategy; the settings of the first one must disappear.
    let text = text
        .replace("    type: RollingUpdate\n", "    type: Recreate\n")
        .replace("    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}\n", "");
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web configured\n");
    assert_eq!(stored(&kubectl).await["spec"]["strategy"], serde_json::json!({"type": "Recreate"}));

    // Remove one finalizer, then the other.
    let text = text.replace("[example.com/one, example.com/two]", "[example.com/two]");
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web configured\n");
    assert_eq!(stored(&kubectl).await["metadata"]["finalizers"], serde_json::json!(["example.com/two"]));
    let text = text.replace("  finalizers: [example.com/two]\n", "");
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web configured\n");
    assert_eq!(stored(&kubectl).await["metadata"].get("finalizers"), None);
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web unchanged\n");
}

/// Goal: objects exported from one cluster can be written to another. Method: an object with server-set members, by
/// each command that takes a file.
#[tokio::test]
async fn exported_objects_are_written_back() {
    const EXPORTED: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, creationTimestamp: '2020-01-01T00:00:00Z', \
                            selfLink: /x, generation: 3}\ndata: {k: v}\n";
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let file = kubectl.file("a.yaml", EXPORTED);
    for (command, told) in [
        (&["create", "-f", &file][..], "created"),
        (&["apply", "-f", &file], "configured"),
        (&["replace", "-f", &file], "replaced"),
        (&["apply", "--server-side", "--force-conflicts", "-f", &file], "serverside-applied"),
    ] {
        assert_eq!(kubectl.run(command).await, format!("configmap/a {told}\n"));
    }
}

#[tokio::test]
async fn texts_of_a_secret_are_read_as_its_data() {
    const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n";
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    kubectl.apply(SECRET, &[]).await;
    let shown = kubectl.run(&["get", "secret", "s", "-o", "jsonpath={.data.password} {.stringData} {.type}"]).await;
    assert_eq!(shown, "aHVudGVyMg==  Opaque");
    assert!(kubectl.run(&["describe", "secret", "s"]).await.contains("password:  7 bytes"));
    assert_eq!(kubectl.apply(SECRET, &[]).await, "secret/s configured\n", "kubectl compares what it sent");
}

#[tokio::test]
async fn what_others_set_outlives_an_apply() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    kubectl.apply(WEB, &[]).await;
    kubectl.run(&["scale", "deploy/web", "--replicas=7"]).await;
    kubectl.run(&["set", "env", "deploy/web", "-c", "main", "EXTRA=1"]).await;
    kubectl.run(&["label", "deploy/web", "owner=me"]).await;
    // The manifest no longer sets the replicas, and has another image.
    let text = WEB.replace("  replicas: 2\n", "").replace("web:1", "web:2");
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web configured\n");
    let object = stored(&kubectl).await;
    let main = &object["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&main["image"], names(&main["env"], "name").join(" ").as_str()), (&"web:2".into(), "A B C EXTRA"));
    assert_eq!(object["metadata"]["labels"]["owner"], "me");
}

#[tokio::test]
async fn the_server_applies_a_manifest_again_and_again() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    assert_eq!(kubectl.apply(WEB, &["--server-side"]).await, "deployment.apps/web serverside-applied\n");
    let first = stored(&kubectl).await;
    kubectl.apply(WEB, &["--server-side"]).await;
    assert_eq!(stored(&kubectl).await, first, "nothing was written");
    let text = WEB
        .replace("        - {name: B, value: two}\n", "")
        .replace("      - name: side\n        image: side:1\n", "")
        .replace(", example.com/two", "")
        .replace("        - {containerPort: 81, name: metrics}\n", "");
    kubectl.apply(&text, &["--server-side"]).await;
    let object = stored(&kubectl).await;
    let spec = &object["spec"]["template"]["spec"];
    assert_eq!(names(&spec["containers"], "name"), ["main"]);
    assert_eq!(names(&spec["containers"][0]["env"], "name"), ["A", "C"]);
    assert_eq!(names(&spec["containers"][0]["ports"], "containerPort"), ["80"]);
    assert_eq!(object["metadata"]["finalizers"], serde_json::json!(["example.com/one"]));
    let text = text.replace("web:1", "web:2");
    let other = kubectl.file("object.yaml", &text);
    let refused = kubectl.fail(&["apply", "--server-side", "--field-manager=other", "-f", &other]).await;
    assert!(refused.contains("Apply failed with 1 conflict: conflict with \"kubectl\""), "{refused}");
    kubectl.apply(&text, &["--server-side", "--field-manager=other", "--force-conflicts"]).await;
    assert_eq!(stored(&kubectl).await["spec"]["template"]["spec"]["containers"][0]["image"], "web:2");
}

#[tokio::test]
async fn a_manifest_moves_from_one_way_of_applying_to_the_other() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    kubectl.apply(WEB, &[]).await;
    for image in ["web:2", "web:3"] {
        kubectl.apply(&WEB.replace("web:1", image), &["--server-side"]).await;
        let object = stored(&kubectl).await;
        assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], image);
        // kubectl keeps the annotation of client-side apply for users who go back, with a separate field manager.
        assert!(object["metadata"]["annotations"][LAST].as_str().is_some_and(|last| last.contains("web:1")), "{image}");
        let mut managers = names(&object["metadata"]["managedFields"], "manager");
        managers.sort();
        assert_eq!(managers, ["kubectl", "kubectl-last-applied"]);
    }
    let text = WEB.replace("web:1", "web:4");
    kubectl.apply(&text, &[]).await;
    assert_eq!(kubectl.apply(&text, &[]).await, "deployment.apps/web unchanged\n");
}

#[tokio::test]
async fn every_command_that_changes_objects_works() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    kubectl.apply(WEB, &[]).await;
    let deploy = "deploy/web";
    kubectl.run(&["label", deploy, "stage=test", "tier-"]).await;
    kubectl.run(&["annotate", deploy, "note=first"]).await;
    kubectl.run(&["annotate", "--overwrite", deploy, "note=second"]).await;
    kubectl.run(&["set", "image", deploy, "main=web:9", "side=side:9"]).await;
    kubectl.run(&["set", "env", deploy, "-c", "main", "A=changed", "B-"]).await;
    kubectl.run(&["set", "resources", deploy, "-c", "side", "--limits=cpu=2"]).await;
    kubectl.run(&["rollout", "restart", deploy]).await;
    kubectl
        .run(&["patch", deploy, "-p", r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","tty":true}]}}}}"#])
        .await;
    kubectl.run(&["patch", deploy, "--type=merge", "-p", r#"{"spec":{"paused":true}}"#]).await;
    kubectl
        .run(&["patch", deploy, "--type=json", "-p", r#"[{"op":"replace","path":"/spec/replicas","value":5}]"#])
        .await;
    let object = stored(&kubectl).await;
    let spec = &object["spec"];
    let containers = &spec["template"]["spec"]["containers"];
    assert_eq!(object["metadata"]["labels"], serde_json::json!({"app": "web", "stage": "test"}));
    assert_eq!(object["metadata"]["annotations"]["note"], "second");
    assert_eq!(names(containers, "image"), ["web:9", "side:9"]);
    assert_eq!(names(&containers[0]["env"], "value"), ["changed", "three"]);
    assert_eq!((&containers[1]["tty"], &containers[1]["resources"]["limits"]["cpu"]), (&true.into(), &"2".into()));
    assert_eq!((&spec["paused"], &spec["replicas"]), (&true.into(), &5.into()));
    assert!(spec["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].is_string());

    let edited = kubectl.command(&["edit", deploy]).env("KUBE_EDITOR", "sed -i s/web:9/web:10/").output().await;
    let edited = edited.expect("it runs");
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    let mut object = stored(&kubectl).await;
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], "web:10");

    object["spec"]["template"]["spec"]["containers"][0]["image"] = "web:11".into();
    let file = kubectl.file("whole.json", &object.to_string());
    assert_eq!(kubectl.run(&["replace", "-f", &file]).await, "deployment.apps/web replaced\n");
    let stale = kubectl.fail(&["replace", "-f", &file]).await;
    assert!(stale.contains("the object has been modified"), "{stale}");
    assert_eq!(stored(&kubectl).await["spec"]["template"]["spec"]["containers"][0]["image"], "web:11");
}

#[tokio::test]
async fn typing_errors_are_told() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let file = kubectl.file("typo.yaml", &WEB.replace("replicas", "replcas"));
    let refused = kubectl.fail(&["apply", "-f", &file]).await;
    assert!(refused.contains("unknown field \"spec.replcas\""), "{refused}");
    let refused = kubectl.fail(&["apply", "--server-side", "-f", &file]).await;
    assert!(
        refused.contains("unknown field \"spec.replcas\"") || refused.contains(".spec.replcas: field not declared"),
        "{refused}"
    );
    let output = kubectl.output(&["apply", "--validate=warn", "-f", &file]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("unknown field \"spec.replcas\""), "{said}");
    assert_eq!(stored(&kubectl).await["spec"].get("replcas"), None);
}

/// A definition whose objects have a list that is merged by name.
const DEFINITION: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, kind: Boat}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              length: {type: integer}
              sails:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, size: {type: integer}}
";

const BOAT: &str = "\
apiVersion: example.com/v1
kind: Boat
metadata: {name: b}
spec:
  length: 7
  sails: [{name: main, size: 20}, {name: jib, size: 10}]
";

#[tokio::test]
async fn custom_resources_are_applied_in_both_ways() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    for way in [&[][..], &["--server-side"]] {
        kubectl.apply(DEFINITION, way).await;
        kubectl.run(&["wait", "--for=condition=Established", "crd/boats.example.com", "--timeout=30s"]).await;
        kubectl.apply(BOAT, way).await;
        kubectl.apply(&BOAT.replace("  length: 7\n", "").replace(", {name: jib, size: 10}", ""), way).await;
        let spec = kubectl.run(&["get", "boat", "b", "-o", "jsonpath={.spec}"]).await;
        assert_eq!(spec, r#"{"sails":[{"name":"main","size":20}]}"#, "{way:?}");
        kubectl.run(&["delete", "boat/b", "crd/boats.example.com"]).await;
    }
    kubectl.apply(DEFINITION, &["--server-side"]).await;
    kubectl.run(&["wait", "--for=condition=Established", "crd/boats.example.com", "--timeout=30s"]).await;
    kubectl.apply(BOAT, &["--server-side"]).await;
    let other =
        BOAT.replace("  length: 7\n", "").replace("{name: main, size: 20}, {name: jib, size: 10}", "{name: spinnaker}");
    kubectl.apply(&other, &["--server-side", "--field-manager=other"]).await;
    let sails = kubectl.run(&["get", "boat", "b", "-o", "jsonpath={.spec.sails[*].name}"]).await;
    assert_eq!(sails, "main jib spinnaker", "a list of its schema's keys is merged");
}

#[tokio::test]
async fn what_would_happen_is_told_without_doing_it() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let text = WEB.replace("  finalizers: [example.com/one, example.com/two]\n", "");
    for way in [&[][..], &["--server-side"]] {
        let dry = |text: String| {
            let (kubectl, image) = (&kubectl, "jsonpath={.spec.template.spec.containers[0].image}");
            async move { kubectl.apply(&text, &[way, &["--dry-run=server", "-o", image]].concat()).await }
        };
        assert_eq!(dry(text.clone()).await, "web:1", "{way:?}");
        kubectl.fail(&["get", "deploy/web"]).await;
        kubectl.apply(&text, way).await;
        let before = stored(&kubectl).await;
        assert_eq!(dry(text.replace("web:1", "web:2")).await, "web:2", "{way:?}");
        assert_eq!(stored(&kubectl).await, before, "{way:?}");
        kubectl.run(&["delete", "deploy/web"]).await;
    }
}
