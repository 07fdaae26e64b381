//! kubectl and type schemas: it validates by the documents, explains kinds, and creates objects in protobuf.

use serde_json::Value;
use tests::process::Server;

use super::{Kubectl, MANIFEST, SERVER};

/// Arguments of `kubectl create` without a manifest. kubectl sends all of these objects in protobuf.
const GENERATORS: &[&str] = &[
    "configmap c --from-literal=a=b --from-literal=empty=",
    "secret generic s --from-literal=a=b",
    "serviceaccount sa",
    "deployment d --image=a --image=b --replicas=0 --port=80",
    "service clusterip sc --tcp=80:8080",
    "service nodeport sn --tcp=80:http --node-port=30000",
    "service externalname se --external-name=a.example",
    "job j --image=i -- sh -c true",
    "cronjob cj --image=i --schedule=0/5 --restart=Never",
    "ingress i --rule=a.example/c*=sc:80,tls=x --class=c --annotation=a=b",
    "role r --verb=get,list --resource=pods,deployments.apps --resource-name=x",
    "rolebinding rb --role=r --user=u --serviceaccount=default:sa",
    "clusterrole cr --verb=get --non-resource-url=/logs",
    "clusterrole ca --aggregation-rule=a=b",
    "clusterrolebinding crb --clusterrole=cr --group=g",
    "quota q --hard=cpu=1,memory=1.5Gi --scopes=BestEffort",
    "poddisruptionbudget pm --selector=app=x --min-available=50%",
    "poddisruptionbudget px --selector=app=x --max-unavailable=0",
    "priorityclass pc --value=0 --preemption-policy=Never --description=d",
];

/// An object without server-set members and nulls.
fn plain(text: &str) -> Value {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.values_mut().for_each(clean);
                members.retain(|_, value| !value.is_null());
            }
            Value::Array(items) => items.iter_mut().for_each(clean),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut object: Value = serde_json::from_str(text).expect("is JSON");
    clean(&mut object);
    let members = object.as_object_mut().expect("an object");
    members.remove("status");
    let metadata = members["metadata"].as_object_mut().expect("metadata");
    for set in ["uid", "resourceVersion", "creationTimestamp", "generation", "namespace", "managedFields"] {
        metadata.remove(set);
    }
    object
}

/// Goal: objects that kubectl sends in protobuf are stored as the JSON it prints. Method: each generator, printed and
/// sent.
#[tokio::test]
async fn what_is_created_without_a_manifest_is_stored_as_kubectl_shows_it() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    for line in GENERATORS {
        let words: Vec<&str> = line.split(' ').collect();
        // The words after two dashes are a command.
        let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        let (before, behind) = words.split_at(at);
        let shown = kubectl.run(&[&["create"], before, &["--dry-run=client", "-o", "json"], behind].concat()).await;
        kubectl.run(&[&["create"], &words[..]].concat()).await;
        let mut shown = plain(&shown);
        if shown["kind"] == "Secret" {
            // The server fills this in.
            shown.as_object_mut().expect("an object").entry("type").or_insert_with(|| "Opaque".into());
        }
        let kind = shown["kind"].as_str().expect("a kind");
        let name = shown["metadata"]["name"].as_str().expect("a name");
        let stored = plain(&kubectl.run(&["get", kind, name, "-o", "json"]).await);
        assert_eq!(stored, shown, "{line}");
    }
    // The server adds to a namespace's spec.
    assert_eq!(kubectl.run(&["create", "namespace", "n"]).await, "namespace/n created\n");
    let again = kubectl.fail(&["create", "configmap", "c"]).await;
    assert!(again.contains("configmaps \"c\" already exists"), "{again}");
}

/// Goal: manifests work without `--validate`. Method: a valid and an invalid manifest, with every command that sends
/// one.
#[tokio::test]
async fn manifests_are_validated_by_the_server() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let right = kubectl.file("right.yaml", MANIFEST);
    let wrong = kubectl.file("wrong.yaml", &MANIFEST.replace("replicas: 2", "replicsa: 2"));
    let refused = kubectl.fail(&["create", "-f", &wrong]).await;
    assert!(refused.contains("unknown field \"spec.replicsa\""), "{refused}");
    kubectl.run(&["delete", "-f", &right, "--ignore-not-found"]).await;

    kubectl.run(&["create", "-f", &right]).await;
    for ways in [&["replace"][..], &["apply"], &["apply", "--server-side", "--force-conflicts"]] {
        kubectl.run(&[ways, &["-f", &right]].concat()).await;
        let refused = kubectl.fail(&[ways, &["-f", &wrong]].concat()).await;
        assert!(refused.contains("replicsa"), "{ways:?}: {refused}");
    }
}

const DEFINITION: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: paints.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: paints, kind: Paint}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: What colours things.
        properties:
          spec:
            type: object
            required: [colour]
            properties:
              colour: {type: string, description: Which one.}
              layers: {type: array, items: {type: integer}}
";

#[tokio::test]
async fn kinds_are_explained() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let spec = kubectl.run(&["explain", "pod.spec"]).await;
    for line in
        ["FIELD: spec <PodSpec>", "  containers\t<[]Container> -required-", "  nodeSelector\t<map[string]string>"]
    {
        assert!(spec.contains(line), "{line}: {spec}");
    }
    let template = kubectl.run(&["explain", "deployment.spec.template", "--recursive"]).await;
    for line in [
        "  metadata\t<ObjectMeta>",
        "    annotations\t<map[string]string>",
        "        containerPort\t<integer> -required-",
    ] {
        assert!(template.contains(line), "{line}: {template}");
    }
    assert!(kubectl.run(&["explain", "svc.spec.ports.targetPort"]).await.contains("<IntOrString>"));
    let unknown = kubectl.fail(&["explain", "pod.nothing"]).await;
    assert!(unknown.contains("field \"nothing\" does not exist"), "{unknown}");

    let definition = kubectl.file("definition.yaml", DEFINITION);
    kubectl.run(&["create", "-f", &definition]).await;
    kubectl.run(&["wait", "--for=condition=Established", "crd/paints.example.com"]).await;
    let explained = kubectl.run(&["explain", "paint.spec"]).await;
    for line in ["KIND:       Paint", "  colour\t<string> -required-\n    Which one.", "  layers\t<[]integer>"] {
        assert!(explained.contains(line), "{line}: {explained}");
    }
    let paint = "apiVersion: example.com/v1\nkind: Paint\nmetadata: {name: p}\nspec: {colour: red}\n";
    let paint = kubectl.file("paint.yaml", paint);
    assert_eq!(kubectl.run(&["apply", "-f", &paint]).await, "paint.example.com/p created\n");
}
