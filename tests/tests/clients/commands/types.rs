//! kubectl and CustomResourceDefinitions: types that are in neither kubectl nor its discovery cache.

use tests::process::Server;

use super::{Kubectl, SERVER};

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd], categories: [all]}
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
            properties: {color: {type: string}, replicas: {type: integer}}
          status:
            type: object
            properties: {replicas: {type: integer}}
    selectableFields: [{jsonPath: .spec.color}]
    additionalPrinterColumns: [{name: Color, type: string, jsonPath: .spec.color}]
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
";
const WIDGET: &str = "
apiVersion: example.com/v1
kind: Widget
metadata: {name: a}
spec: {color: red, replicas: 1}
";

/// Goal: kubectl handles a custom type from its definition to its deletion. Method: common commands with one home
/// directory.
#[tokio::test]
async fn a_type_is_defined_used_and_deleted() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let definition = kubectl.file("definition.yaml", DEFINITION);
    assert!(kubectl.run(&["apply", "-f", &definition]).await.ends_with("/widgets.example.com created\n"));
    kubectl.run(&["wait", "--for", "condition=established", "--timeout", "30s", "crd/widgets.example.com"]).await;
    assert!(kubectl.run(&["get", "crd"]).await.contains("widgets.example.com"));
    let widget = kubectl.file("widget.yaml", WIDGET);
    assert_eq!(kubectl.run(&["apply", "-f", &widget]).await, "widget.example.com/a created\n");
    assert_eq!(kubectl.run(&["apply", "-f", &widget]).await, "widget.example.com/a unchanged\n");
    let resources = kubectl.run(&["api-resources", "--api-group", "example.com"]).await;
    let line: Vec<&str> = resources.lines().nth(1).expect("a line").split_whitespace().collect();
    assert_eq!(line, ["widgets", "wd", "example.com/v1", "true", "Widget"]);
    assert_eq!(kubectl.run(&["get", "wd"]).await, "NAME   COLOR\na      red\n");
    assert_eq!(
        kubectl.run(&["get", "widget", "-o", "name", "--field-selector", "spec.color=red"]).await,
        "widget.example.com/a\n"
    );
    assert!(kubectl.run(&["get", "all"]).await.contains("widget.example.com/a"));
    kubectl.run(&["scale", "--replicas", "3", "wd/a"]).await;
    assert_eq!(kubectl.run(&["get", "wd", "a", "-o", "jsonpath={.spec.replicas}"]).await, "3");
    assert!(kubectl.run(&["explain", "wd.spec"]).await.contains("color"));
    let deleted = kubectl.run(&["delete", "crd", "widgets.example.com", "--timeout", "30s"]).await;
    assert!(deleted.contains("\"widgets.example.com\" deleted"), "{deleted}");
    let gone = kubectl.fail(&["get", "widgets.v1.example.com"]).await;
    assert!(
        gone.contains("the server could not find the requested resource")
            || gone.contains("doesn't have a resource type"),
        "{gone}"
    );
}
