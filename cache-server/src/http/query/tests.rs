//! Field selectors against kube-apiserver's answers, row by row.

use informer_core::wire::query::Query;

use super::*;
use crate::registry::Registry;

fn target(group: &str, plural: &str, namespace: Option<&str>) -> Target {
    let ty = Registry::builtin().find(group, "v1", plural).expect("a built-in type");
    Target { ty, namespace: namespace.map(str::to_owned), name: None, subresource: None }
}

#[test]
fn unknown_fields_are_refused_in_the_dialect_of_the_type() {
    let only = r#" is not a known field selector: only "metadata.name", "metadata.namespace""#;
    for (group, plural, selector, expected) in [
        ("", "pods", "spec.foo=x", Some("field label not supported: spec.foo".to_owned())),
        ("", "configmaps", "spec.foo=x", Some(format!("\"spec.foo\"{only}"))),
        ("apps", "deployments", "spec.foo=x", Some(format!("\"spec.foo\"{only}"))),
        ("", "nodes", "metadata.namespace=x", Some("field label not supported: metadata.namespace".to_owned())),
        ("", "nodes", "spec.unschedulable=true", None),
        ("", "pods", "spec.host=n,status.phase!=Failed,metadata.name=a,metadata.namespace=b", None),
        ("", "configmaps", "metadata.name=a", None),
    ] {
        let query = Query::parse(Some(&format!("fieldSelector={selector}")));
        let options = ListOptions::read(&query).expect(selector);
        let refused = filter(&options, &target(group, plural, None)).err().map(|status| status.message);
        assert_eq!(refused, expected, "{plural} {selector}");
    }
}
