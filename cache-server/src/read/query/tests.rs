//! Field selectors, compared with kube-apiserver's answers row by row.

use informer_serving::query::Query;

use super::*;
use crate::registry::Registry;

fn target(group: &str, plural: &str, namespace: Option<&str>) -> Target {
    let ty = Registry::builtin().find(group, "v1", plural).expect("a built-in type");
    Target { ty, namespace: namespace.map(str::to_owned), name: None, subresource: None, watched: false }
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

#[test]
fn the_name_in_a_path_is_a_selector() {
    let refused = Some("fieldSelector metadata.name doesn't match requested name".to_owned());
    for (selector, expected) in [
        ("", None),
        ("metadata.name=a", None),
        ("metadata.name=b", refused.clone()),
        ("status.phase=Running", refused.clone()),
        ("metadata.name=a,status.phase=Running", None),
        ("spec.foo=x", Some("field label not supported: spec.foo".to_owned())),
    ] {
        let query = Query::parse(Some(&format!("fieldSelector={selector}")));
        let options = ListOptions::read(&query).expect(selector);
        let target = Target { name: Some("a".to_owned()), watched: true, ..target("", "pods", Some("ns")) };
        assert_eq!(filter(&options, &target).err().map(|status| status.message), expected, "{selector}");
    }
}
