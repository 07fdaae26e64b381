//! Equal, wider and narrower declarations, and the objects that their filters pass.

use informer_core::{
    Meta, Time,
    store::{Event, Store},
};

use super::*;
use crate::{resource_kind::ResourceKind, selection::DeclaredSelection};

/// A question about pods: namespaces, labels, fields.
fn pods(namespaces: &[&str], labels: &str, fields: &str) -> CopyQuestion {
    selected(|declared| {
        if !namespaces.is_empty() {
            declared.namespaces(namespaces.iter().map(|name| (*name).to_owned()));
        }
        declared.labels(None, labels);
        declared.fields(None, fields);
    })
}

fn selected(declare: impl FnOnce(&mut DeclaredSelection)) -> CopyQuestion {
    let mut declared = DeclaredSelection::default();
    declare(&mut declared);
    CopyQuestion {
        group_version_path: "/api/v1".into(),
        plural: "pods".into(),
        selection: declared.resolve(&ResourceKind::new("v1", "Pod", "pods")).unwrap(),
        drop_paths: BTreeSet::from(["metadata.managedFields".to_owned()]),
        object_bytes_max: 1 << 20,
        transforms: Vec::new(),
        form: StoredForm::default(),
    }
}

/// Of namespace `a` the labels `app=web`, of these others or of all others everything.
fn web_in_a(namespaces: &[&str]) -> CopyQuestion {
    selected(|declared| {
        declared.labels(Some("a".into()), "app=web");
        if !namespaces.is_empty() {
            declared.namespaces(namespaces.iter().map(|name| (*name).to_owned()));
        }
    })
}

/// Goal: a copy answers only questions whose objects and fields it has. Method: pairs of a wider and a narrower
/// question.
#[test]
fn a_copy_answers_narrower_questions_only() {
    let all = pods(&[], "", "");
    for (wider, narrower, expected) in [
        (&all, pods(&[], "", ""), true),
        (&all, pods(&["a"], "", ""), true),
        (&all, pods(&["a", "b"], "app=web,!old", "spec.nodeName=n"), true),
        (&all, pods(&[], "", "metadata.name=x,metadata.namespace!=y"), true),
        // The server's fields of pods are many; here only these are read as it reads them.
        (&all, pods(&[], "", "status.phase=Running"), false),
        (&pods(&["a"], "", ""), pods(&[], "", ""), false),
        (&pods(&["a"], "", ""), pods(&["b"], "", ""), false),
        (&pods(&["a", "b"], "", ""), pods(&["b"], "", ""), true),
        (&pods(&["a", "b"], "", ""), pods(&["b", "c"], "", ""), false),
        (&pods(&[], "app=web", ""), pods(&[], "", ""), false),
        (&pods(&[], "app=web", ""), pods(&[], "app=web,tier=a", ""), true),
        (&pods(&[], "app=web", ""), pods(&["a"], "app=api", ""), false),
        (&pods(&[], "", "status.phase=Running"), pods(&["a"], "", "status.phase=Running"), true),
        (&pods(&[], "", "spec.nodeName=n"), pods(&[], "", ""), false),
        (&all, web_in_a(&["a", "b"]), true),
        (&all, web_in_a(&[]), true),
        (&web_in_a(&["a", "b"]), pods(&["b"], "", ""), true),
        (&web_in_a(&["a", "b"]), pods(&["a"], "", ""), false),
        (&web_in_a(&["a", "b"]), pods(&["a"], "app=web,tier=a", ""), true),
        (&web_in_a(&["a", "b"]), pods(&["a", "b"], "", ""), false),
        (&web_in_a(&[]), web_in_a(&[]), true),
        (&web_in_a(&[]), pods(&["a"], "app=web", ""), true),
        (&web_in_a(&[]), pods(&[], "app=web", ""), false),
        (&web_in_a(&[]), all.clone(), false),
        (&web_in_a(&[]), pods(&["b"], "app=web", ""), true),
        (&web_in_a(&[]), pods(&["a", "b"], "app=web", ""), true),
        (&web_in_a(&[]), pods(&["a", "b"], "", ""), false),
        (&pods(&[], "", "metadata.namespace!=a"), pods(&["b"], "", ""), true),
        (&pods(&[], "", "metadata.namespace!=a"), pods(&["a"], "", ""), false),
        (&pods(&[], "", "metadata.namespace=a"), pods(&["b"], "", ""), false),
    ] {
        assert_eq!(narrower.filter_of(wider).is_some(), expected, "{narrower} of {wider}");
    }
}

/// Goal: a copy that lacks a part of its objects does not answer questions about that part.
#[test]
fn a_copy_without_the_field_answers_no_question_about_it() {
    let with = |change: &dyn Fn(&mut CopyQuestion), labels: &str, fields: &str| {
        let (mut wider, mut narrower) = (pods(&[], "", ""), pods(&["a"], labels, fields));
        change(&mut wider);
        change(&mut narrower);
        narrower.filter_of(&wider).is_some()
    };
    let cut = |path: &'static str| {
        move |question: &mut CopyQuestion| {
            assert!(question.drop_paths.insert(path.into()));
        }
    };
    assert!(with(&cut("metadata.annotations"), "app=web", "spec.nodeName=n"));
    for path in ["metadata.labels", "metadata.labels.app"] {
        assert!(!with(&cut(path), "app=web", ""), "{path}");
        assert!(with(&cut(path), "", "spec.nodeName=n"), "{path}");
    }
    for path in ["spec", "spec.nodeName"] {
        assert!(!with(&cut(path), "", "spec.nodeName=n"), "{path}");
        assert!(with(&cut(path), "app=web", ""), "{path}");
    }
    let metadata = |question: &mut CopyQuestion| question.form.is_metadata = true;
    assert!(with(&metadata, "app=web", "metadata.name=x"));
    assert!(!with(&metadata, "", "spec.nodeName=n"));
    let typed = |question: &mut CopyQuestion| question.form.decoded_to = Some(TypeId::of::<u8>());
    assert!(with(&typed, "app=web", "") && !with(&typed, "", "spec.nodeName=n"));
    let transformed = |question: &mut CopyQuestion| {
        question.transforms.push(Some(TypeId::of::<u8>()));
    };
    assert!(with(&transformed, "", "metadata.name=x"));
    assert!(!with(&transformed, "app=web", "") && !with(&transformed, "", "spec.nodeName=n"));
    let lingering = |question: &mut CopyQuestion| question.form.linger = Some(Duration::from_secs(1));
    assert!(!with(&lingering, "", ""));
    let other = |change: &dyn Fn(&mut CopyQuestion)| {
        let mut narrower = pods(&["a"], "", "");
        change(&mut narrower);
        narrower.filter_of(&pods(&[], "", "")).is_none()
    };
    assert!(other(&|question| question.plural = "services".into()));
    assert!(other(&|question| question.group_version_path = "/api/v2".into()));
    assert!(other(&|question| question.object_bytes_max = 1));
    assert!(other(&transformed) && other(&metadata) && other(&typed) && other(&cut("status")));
}

/// Goal: the filter passes the objects that the server would send.
#[test]
fn the_filter_passes_what_is_asked() {
    let mut store = Store::default();
    for (key, app, node) in [("a/x", "web", "n"), ("a/y", "api", "n"), ("b/x", "web", "n"), ("b/z", "web", "")] {
        let (namespace, name) = key.split_once('/').unwrap();
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{key}","resourceVersion":"7","labels":{{"app":"{app}"}}}},"spec":{{"nodeName":"{node}"}}}}"#
        );
        let meta = Meta::read(json.as_bytes()).unwrap();
        store.handle(Time::ZERO, Event::Apply(json.as_bytes(), &meta)).unwrap();
    }
    let all = pods(&[], "", "");
    for (wider, narrower, expected) in [
        (&all, pods(&["a"], "", ""), "a/x a/y"),
        (&all, pods(&["a", "c"], "app=web", ""), "a/x"),
        (&all, pods(&[], "app!=web", ""), "a/y"),
        (&all, pods(&[], "", "spec.nodeName=n"), "a/x a/y b/x"),
        (&all, pods(&[], "", "spec.nodeName="), "b/z"),
        (&all, pods(&[], "", "metadata.name=x,spec.nodeName!=m"), "a/x b/x"),
        (&all, pods(&[], "", "metadata.namespace=b"), "b/x b/z"),
        (&all, web_in_a(&["a", "b"]), "a/x b/x b/z"),
        (&all, web_in_a(&["a", "c"]), "a/x"),
        (&all, web_in_a(&[]), "a/x b/x b/z"),
        // The wider copy has the term for all objects but those of `a`.
        (&web_in_a(&[]), pods(&[], "app=web", "metadata.namespace!=a"), "b/x b/z"),
        (&web_in_a(&[]), pods(&["b"], "", "metadata.name=x"), "b/x"),
    ] {
        let (held, filter) = (wider.filter_of(&all).unwrap(), narrower.filter_of(wider).unwrap());
        let state = store.snapshot();
        let passed = state.objects.iter().filter(|entry| held(entry) && filter(entry)).map(|entry| entry.key());
        assert_eq!(passed.collect::<Vec<_>>().join(" "), expected, "{narrower} of {wider}");
    }
}
