//! Commands that change objects: create, apply, label, annotate, patch, replace, scale, delete.

use serde_json::{Value, json};
use tests::{
    http::MERGE_PATCH,
    objects::{configmap, node, pod},
};

use super::{Scene, scenes, team_manifest};

const WEB: &str = "/apis/apps/v1/namespaces/team/deployments/web";

async fn web(scene: &Scene) -> Value {
    scene.client().get(WEB).await.with_code(200).json()
}

/// Names of a list at `pointer`.
fn names<'a>(object: &'a Value, pointer: &str) -> Vec<&'a str> {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|item| item["name"].as_str()).collect()
}

const CONTAINERS: &str = "/spec/template/spec/containers";
const VARIABLES: &str = "/spec/template/spec/containers/0/env";

#[tokio::test]
async fn files_are_created_after_they_were_validated() {
    for scene in scenes().await {
        let team = scene.file("team.yaml", &team_manifest());
        let created =
            "namespace/team created\nconfigmap/settings created\nservice/web created\ndeployment.apps/web created\n";
        scene.prints(&format!("create -f {team}"), created).await;
        let again = scene.fail(&format!("create -f {team}")).await;
        assert!(again.contains("configmaps \"settings\" already exists"), "{again}");
        let wrong = team_manifest().replace("replicas: 2", "replicass: 2").replace("name: web", "name: other");
        let complaint = scene.fail(&format!("create -f {}", scene.file("wrong.yaml", &wrong))).await;
        assert!(complaint.contains("unknown field \"spec.replicass\""), "{}: {complaint}", scene.name);
    }
}

#[tokio::test]
async fn what_was_applied_is_changed_and_pruned_by_applying_again() {
    for scene in scenes().await {
        let team = scene.file("team.yaml", &team_manifest());
        scene.run(&format!("apply -f {team}")).await;
        let before = web(&scene).await;
        let unchanged = "namespace/team unchanged\nconfigmap/settings unchanged\nservice/web unchanged\ndeployment.apps/web unchanged\n";
        scene.prints(&format!("apply -f {team}"), unchanged).await;
        assert_eq!(before, web(&scene).await, "{}", scene.name);
        let fewer = team_manifest()
            .replace("{name: A, value: a}, ", "")
            .replace("      - {name: log, image: log:1}\n", "")
            .replace(", {name: https, port: 443}", "")
            .replace("web:1", "web:2");
        let file = scene.file("fewer.yaml", &fewer);
        let changed = "namespace/team unchanged\nconfigmap/settings unchanged\nservice/web configured\ndeployment.apps/web configured\n";
        scene.prints(&format!("apply -f {file}"), changed).await;
        let after = web(&scene).await;
        assert_eq!(names(&after, CONTAINERS), ["web"], "{}: {after}", scene.name);
        assert_eq!(names(&after, VARIABLES), ["B"], "{}: {after}", scene.name);
        assert_eq!(after["spec"]["template"]["spec"]["containers"][0]["image"], "web:2");
        let text = after.to_string();
        assert!(!text.contains("$patch") && !text.contains("$setElementOrder"), "{text}");
        let service = scene.client().get("/api/v1/namespaces/team/services/web").await.json();
        assert_eq!(names(&service, "/spec/ports"), ["http"], "{}: {service}", scene.name);
        let difference = scene.output(scene.command(&["diff", "-f", &file])).await;
        assert_eq!(
            difference.status.code(),
            Some(0),
            "{}: {}",
            scene.name,
            String::from_utf8_lossy(&difference.stdout)
        );
    }
}

#[tokio::test]
async fn files_are_applied_at_the_server() {
    for scene in scenes().await {
        let team = scene.file("team.yaml", &team_manifest());
        let applied = "namespace/team serverside-applied\nconfigmap/settings serverside-applied\n\
                       service/web serverside-applied\ndeployment.apps/web serverside-applied\n";
        scene.prints(&format!("apply --server-side -f {team}"), applied).await;
        let before = web(&scene).await;
        assert_eq!(names(&before, CONTAINERS), ["web", "log"], "{}: {before}", scene.name);
        scene.prints(&format!("apply --server-side -f {team}"), applied).await;
        let after = web(&scene).await;
        assert_eq!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"], "{}", scene.name);
        let managers: Vec<&Value> = after["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| &entry["manager"])
            .collect();
        assert_eq!(managers, [&json!("kubectl")], "{}: {after}", scene.name);
        let newer =
            scene.file("newer.yaml", &team_manifest().replace("web:1", "web:2").replace("colour: blue", "colour: red"));
        scene.prints(&format!("apply --server-side -f {newer}"), applied).await;
        assert_eq!(web(&scene).await["spec"]["template"]["spec"]["containers"][0]["image"], "web:2");
        scene.prints("get -n team cm settings -o jsonpath={.data.colour}", "red").await;
    }
}

#[tokio::test]
async fn objects_applied_by_the_client_go_on_at_the_server() {
    for scene in scenes().await {
        let file = scene.file("team.yaml", &team_manifest());
        scene.run(&format!("apply -f {file}")).await;
        scene.run(&format!("apply --server-side --force-conflicts -f {file}")).await;
        assert_eq!(names(&web(&scene).await, CONTAINERS), ["web", "log"], "{}", scene.name);
    }
}

#[tokio::test]
async fn labels_and_annotations_come_and_go() {
    for scene in scenes().await {
        scene.client().create(&configmap("a")).await;
        scene.prints("label cm a tier=front", "configmap/a labeled\n").await;
        scene.prints("get cm -l tier=front -o name", "configmap/a\n").await;
        let complaint = scene.fail("label cm a tier=back").await;
        assert!(complaint.contains("--overwrite is false"), "{}: {complaint}", scene.name);
        scene.prints("label cm a tier=back --overwrite", "configmap/a labeled\n").await;
        scene.prints("label cm a tier-", "configmap/a unlabeled\n").await;
        scene.prints("get cm -l tier -o name", "").await;
        scene.prints("annotate cm a note=x", "configmap/a annotated\n").await;
        scene.prints("get cm a -o jsonpath={.metadata.annotations.note}", "x").await;
    }
}

#[tokio::test]
async fn objects_are_patched_in_every_way() {
    for scene in scenes().await {
        let team = scene.file("team.yaml", &team_manifest());
        scene.run(&format!("create --validate=false -f {team}")).await;
        for (kind, patch) in [
            ("merge", r#"{"spec":{"replicas":3}}"#),
            ("json", r#"[{"op":"replace","path":"/spec/replicas","value":4}]"#),
            ("strategic", r#"{"spec":{"template":{"spec":{"containers":[{"name":"log","image":"log:2"}]}}}}"#),
        ] {
            let kind = format!("--type={kind}");
            let words = ["patch", "-n", "team", "deploy/web", &kind, "-p", patch];
            assert_eq!(scene.run_words(&words).await, "deployment.apps/web patched\n", "{}: {kind}", scene.name);
            let again = scene.run_words(&words).await;
            assert_eq!(again, "deployment.apps/web patched (no change)\n", "{}: {kind}", scene.name);
        }
        let after = web(&scene).await;
        assert_eq!(after["spec"]["replicas"], 4);
        assert_eq!(names(&after, CONTAINERS).len(), 2, "{}: {after}", scene.name);
        let log = "get -n team deploy/web -o jsonpath={.spec.template.spec.containers[?(@.name==\"log\")].image}";
        scene.prints(log, "log:2").await;
        scene.prints("set image -n team deploy/web web=web:3", "deployment.apps/web image updated\n").await;
        scene.prints("rollout restart -n team deploy/web", "deployment.apps/web restarted\n").await;
    }
}

#[tokio::test]
async fn objects_are_replaced() {
    for scene in scenes().await {
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: one, l: x}\n";
        scene.run(&format!("create -f {}", scene.file("one.yaml", map))).await;
        let two = scene.file("two.yaml", &map.replace("one, l: x", "two"));
        scene.prints(&format!("replace -f {two}"), "configmap/a replaced\n").await;
        scene.prints("get cm a -o jsonpath={.data}", r#"{"k":"two"}"#).await;
        let stale = scene.file("stale.yaml", &map.replace("{name: a}", "{name: a, resourceVersion: \"1\"}"));
        let complaint = scene.fail(&format!("replace -f {stale}")).await;
        assert!(complaint.contains("the object has been modified"), "{}: {complaint}", scene.name);
    }
}

#[tokio::test]
async fn deployments_are_scaled() {
    for scene in scenes().await {
        scene.run(&format!("create --validate=false -f {}", scene.file("team.yaml", &team_manifest()))).await;
        scene.prints("scale -n team deploy/web --replicas=5", "deployment.apps/web scaled\n").await;
        scene.prints("get -n team deploy/web -o jsonpath={.spec.replicas}", "5").await;
        let complaint = scene.fail("scale -n team deploy/web --current-replicas=2 --replicas=1").await;
        assert!(complaint.contains("Expected replicas to be 2, was 5"), "{}: {complaint}", scene.name);
        scene
            .prints("get -n team deploy/web --subresource=scale -o jsonpath={.kind}={.spec.replicas}", "Scale=5")
            .await;
    }
}

#[tokio::test]
async fn objects_are_deleted_one_by_one_and_all_at_once() {
    for scene in scenes().await {
        scene.run(&format!("create --validate=false -f {}", scene.file("team.yaml", &team_manifest()))).await;
        let deleted = scene.run("delete -n team cm/settings").await;
        assert!(deleted.starts_with("configmap \"settings\" deleted"), "{}: {deleted}", scene.name);
        let gone = scene.fail("get -n team cm/settings").await;
        assert!(gone.contains("configmaps \"settings\" not found"), "{}: {gone}", scene.name);
        let ignored = scene.run("delete -n team cm/settings --ignore-not-found").await;
        assert_eq!(ignored, "", "{}", scene.name);
        for name in ["a", "b", "c"] {
            scene.client().create(&configmap(name).label("app", name)).await;
        }
        scene.run("delete cm -l app=a").await;
        scene.prints("get cm -o name", "configmap/b\nconfigmap/c\n").await;
        assert_eq!(scene.run("delete cm --all").await.lines().count(), 2, "{}", scene.name);
        scene.prints("get cm -o name", "").await;
        scene.run("delete -n team deploy,svc --all").await;
        scene.prints("get -n team deploy,svc -o name", "").await;
    }
}

/// These commands generate objects and send them as protobuf.
#[tokio::test]
async fn objects_are_created_from_the_command_line() {
    for scene in scenes().await {
        scene.prints("create namespace team", "namespace/team created\n").await;
        scene
            .prints("create configmap -n team settings --from-literal=colour=blue", "configmap/settings created\n")
            .await;
        scene.prints("get -n team cm settings -o jsonpath={.data.colour}", "blue").await;
        scene.prints("create secret generic -n team key --from-literal=k=v", "secret/key created\n").await;
        scene.prints("get -n team secret key -o jsonpath={.data.k}", "dg==").await;
        let deployment = "create deployment -n team web --image=web:1 --replicas=3 --port=80";
        scene.prints(deployment, "deployment.apps/web created\n").await;
        let shown =
            "jsonpath={.spec.replicas}={.spec.template.spec.containers[0].image}={.spec.selector.matchLabels.app}";
        scene.prints(&format!("get -n team deploy web -o {shown}"), "3=web:1=web").await;
        scene.prints("expose -n team deploy/web --port=80", "service/web exposed\n").await;
        scene.prints("run -n team one --image=one:1", "pod/one created\n").await;
        scene.prints("create serviceaccount -n team robot", "serviceaccount/robot created\n").await;
    }
}

const WIDGETS: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test]
async fn custom_resources_are_defined_and_used() {
    for scene in scenes().await {
        let definition = scene.file("crd.yaml", WIDGETS);
        let created = "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created\n";
        scene.prints(&format!("apply -f {definition}"), created).await;
        scene.run("wait --for=condition=Established crd/widgets.example.com --timeout=20s").await;
        let listed = scene.run("get crd -o name").await;
        assert_eq!(listed, "customresourcedefinition.apiextensions.k8s.io/widgets.example.com\n", "{}", scene.name);
        assert!(scene.run("get crd").await.starts_with("NAME "), "{}", scene.name);
        let widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 1}\n";
        let file = scene.file("widget.yaml", widget);
        scene.prints(&format!("apply -f {file}"), "widget.example.com/w created\n").await;
        let larger = scene.file("larger.yaml", &widget.replace("size: 1", "size: 2"));
        scene.prints(&format!("apply -f {larger}"), "widget.example.com/w configured\n").await;
        scene.prints("get wd -o jsonpath={.items[*].spec.size}", "2").await;
        scene.prints("get widgets -o name", "widget.example.com/w\n").await;
        assert!(scene.run("api-resources --api-group=example.com --no-headers").await.starts_with("widgets"));
        scene.run("delete wd --all").await;
        scene.run("delete crd widgets.example.com").await;
        let gone = scene.fail("get widgets").await;
        assert!(gone.contains("could not find the requested resource"), "{}: {gone}", scene.name);
    }
}

/// Goal: orders about pods and requests are carried out. Method: `drain` of a node with a pod that a budget guards, `debug`
/// of a pod, and `certificate approve`.
#[tokio::test]
async fn nodes_are_drained_and_requests_are_approved() {
    const BUDGET: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web";
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    for scene in scenes().await {
        let client = scene.client();
        client.create(&node("n1")).await;
        for name in ["guarded", "free"] {
            let app = if name == "guarded" { "web" } else { "other" };
            // `debug` expects the security context that kube-apiserver fills in.
            let spec = json!({"containers": [{"name": "c", "image": "i"}], "securityContext": {}});
            client.create(&pod(name).label("app", app).with("spec", spec).node("n1")).await;
            let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            let status = format!("/api/v1/namespaces/default/pods/{name}/status");
            client.patch(&status, MERGE_PATCH, &running).await.with_code(200);
        }
        scene.run("debug free --image=i --container=d").await;
        scene.prints("get pod free -o jsonpath={.spec.ephemeralContainers[*].name}", "d").await;
        scene.run("create poddisruptionbudget web --selector=app=web --min-available=1").await;
        let allowed = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
            "desiredHealthy": 1, "expectedPods": 2}});
        client.patch(&format!("{BUDGET}/status"), MERGE_PATCH, &allowed).await.with_code(200);
        scene.run("drain n1 --force --grace-period=0").await;
        assert_eq!(client.get("/api/v1/pods").await.keys(), Vec::<String>::new(), "{}", scene.name);
        let status = client.get(BUDGET).await.json()["status"].clone();
        assert!(status["disruptedPods"]["guarded"].is_string(), "{}: {status}", scene.name);
        let spec = json!({"request": "", "signerName": "example.com/signer", "usages": ["client auth"]});
        client.post(REQUESTS, &json!({"metadata": {"name": "a"}, "spec": spec})).await.with_code(201);
        let approved = "certificatesigningrequest.certificates.k8s.io/a approved\n";
        scene.prints("certificate approve a", approved).await;
        scene.prints("get csr a -o jsonpath={.status.conditions[0].type}", "Approved").await;
    }
}
