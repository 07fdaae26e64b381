//! The objects that a request selects, and the pages of its list.

use std::sync::Arc;

use informer_core::{
    KeyedObject, Objects,
    selector::{field, label},
};
use proptest::prelude::*;
use watch_cache::{Budget, Entry, Filter, Limits, Page, Reader, Slices, UnknownField, cache, limits};

use super::common::{Pod, at, deleted, drain, filter, pod, put, schema};

fn state(keys: &[&str]) -> (watch_cache::Writer, Reader) {
    let (mut writer, _waking, reader) = cache(schema(), Limits::default());
    let objects: Objects<Entry> = keys.iter().map(|key| pod(key, "n", "x", 5).entry(&schema())).collect();
    writer.reset(objects, 9, at(0));
    (writer, reader)
}

fn keys(page: &mut Page) -> String {
    let mut out = Slices::new();
    while page.step(Budget { slices: 1, bytes: 1 }, &mut out) {}
    let bytes: Vec<u8> = out.iter().flat_map(|slice| slice.iter().copied()).collect();
    let items = format!("[{}]", String::from_utf8(bytes).expect("UTF-8"));
    let items: Vec<serde_json::Value> = serde_json::from_str(&items).expect("items with commas between");
    items.iter().map(|item| Pod::read(item).key).collect::<Vec<_>>().join(" ")
}

/// Goal: scopes and selectors together select as in Kubernetes. Method: table over one state.
#[test]
fn scopes_and_selectors_narrow_each_other() {
    let (_writer, reader) = state(&["a-b/p", "a/p", "a/q", "b/p"]);
    for (namespace, labels, fields, expected) in [
        (None, "", "", "a-b/p a/p a/q b/p"),
        (Some("a"), "", "", "a/p a/q"),
        (Some("a"), "", "metadata.name=p", "a/p"),
        (Some("none"), "", "", ""),
        // Without a namespace the name is an ordinary filter.
        (None, "", "metadata.name=p", "a-b/p a/p b/p"),
        (None, "", "metadata.name!=p", "a/q"),
        (None, "", "metadata.name=p,metadata.namespace=b", "b/p"),
        (None, "", "metadata.namespace=a", "a/p a/q"),
        // Contradictions match no object and are not an error.
        (Some("a"), "", "metadata.namespace=b", ""),
        (Some("a"), "", "metadata.name=p,metadata.name=q", ""),
        (Some("a"), "", "metadata.name=p/q", ""),
        (None, "app=x", "spec.nodeName=n", "a-b/p a/p a/q b/p"),
        (None, "app!=x", "", ""),
        (None, "", "spec.nodeName!=n", ""),
    ] {
        let filter = filter(namespace, labels, fields);
        let mut page = Page::new(reader.snapshot(), filter.clone(), None, None);
        assert_eq!(keys(&mut page), expected, "{namespace:?} {labels} {fields}");
        assert_eq!((page.resource_version(), page.next(), page.remaining()), (9, None, None));
        let matching = reader.snapshot().objects.iter().filter(|entry| filter.matches(entry)).count();
        assert_eq!(matching, expected.split_whitespace().count(), "matches alone decides");
    }
}

#[test]
fn an_unknown_field_is_refused() {
    let fields = field::Selector::parse("metadata.name=a,spec.foo=1").expect("the grammar is fine");
    let refused = Filter::new(&schema(), true, None, label::Selector::default(), &fields);
    assert_eq!(refused.err(), Some(UnknownField { label: "spec.foo".into() }));
}

/// Goal: correct continue keys and remaining counts of a page. Method: table of limits and starts.
#[test]
fn a_page_says_what_follows() {
    let (_writer, reader) = state(&["a/p", "a/q", "a/r", "b/p"]);
    for (namespace, fields, start, limit, expected, next, remaining) in [
        (None, "", None, 2, "a/p a/q", Some("a/q\0"), Some(2)),
        (None, "", Some("a/q\0"), 2, "a/r b/p", None, None),
        (None, "", Some("a/q\0"), 1, "a/r", Some("a/r\0"), Some(1)),
        (None, "", Some("c"), 1, "", None, None),
        (None, "", None, 4, "a/p a/q a/r b/p", None, None),
        (None, "", None, 0, "a/p a/q a/r b/p", None, None),
        // Tokens are relative to the path's namespace.
        (Some("a"), "", None, 2, "a/p a/q", Some("q\0"), Some(1)),
        (Some("a"), "", Some("q\0"), 2, "a/r", None, None),
        (Some("a"), "", Some("../b/p"), 2, "a/p a/q", Some("q\0"), Some(1)),
        // With a selector the rest is not counted, and the last page may be empty.
        (None, "metadata.name=p", None, 1, "a/p", Some("a/p\0"), None),
        (None, "metadata.name!=p", None, 2, "a/q a/r", Some("a/r\0"), None),
        (None, "metadata.name!=p", Some("a/r\0"), 2, "", None, None),
        // A list of one name is not paged.
        (Some("a"), "metadata.name=p", None, 1, "a/p", None, None),
    ] {
        let mut page = Page::new(reader.snapshot(), filter(namespace, "", fields), start, Some(limit));
        let what = format!("{namespace:?} {fields} {start:?} {limit}");
        assert_eq!((page.next(), page.remaining()), (next, remaining), "{what}");
        assert_eq!(keys(&mut page), expected, "{what}");
    }
}

/// Goal: no page blocks a worker for long, even if little of it matches. Method: count the steps to find its end.
#[test]
fn the_end_of_a_page_is_found_in_steps() {
    let keys: Vec<String> = (0..5_000).map(|place| format!("a/{place:04}")).collect();
    let (_writer, reader) = state(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    for (namespace, fields, limit, steps, next, remaining) in [
        (None, "", None, 0, None, None),
        // A list of all objects takes their number from the snapshot; a list of a namespace counts them.
        (None, "", Some(1), 0, Some("a/0000\0"), Some(4_999)),
        (Some("a"), "", Some(1), 3, Some("0000\0"), Some(4_999)),
        (None, "metadata.name=4999", Some(1), 2, None, None),
        (None, "metadata.name=4998", Some(1), 2, Some("a/4998\0"), None),
        (None, "metadata.name=none", Some(1), 2, None, None),
    ] {
        let mut page = Page::begin(reader.snapshot(), filter(namespace, "", fields), None, limit);
        let mut count = 0;
        while page.look_ahead() {
            count += 1;
        }
        assert_eq!((count, page.next(), page.remaining()), (steps, next, remaining), "{fields} {limit:?}");
    }
    // With a count from the previous page only the page itself is walked; an impossible count is ignored.
    for (following, steps, remaining) in
        [(Some(5_000), 0, 4_999), (Some(7), 0, 6), (Some(1), 3, 4_999), (Some(0), 3, 4_999)]
    {
        let mut page = Page::begin(reader.snapshot(), Filter::all(), None, Some(1)).with_following(following);
        let mut count = 0;
        while page.look_ahead() {
            count += 1;
        }
        assert_eq!((count, page.next(), page.remaining()), (steps, Some("a/0000\0"), Some(remaining)), "{following:?}");
    }
    // A filter with more conditions per object examines fewer objects per step.
    let fields = vec!["metadata.name!=none"; limits::CONDITIONS_PER_OBJECT * 9].join(",");
    let mut page = Page::new(reader.snapshot(), filter(None, "", &fields), None, None);
    let mut shown = 0;
    assert!(page.visit(|_, _| {
        shown += 1;
        true
    }));
    assert_eq!(shown, limits::LOOKED_AT_PER_STEP.div_ceil(10));
}

/// Goal: a step processes few large objects. Method: objects of which two reach the bound.
#[test]
fn a_step_shows_so_many_bytes_of_objects_at_most() {
    let annotation = "x".repeat(limits::READ_PER_STEP / 2);
    let object = |name: String| {
        let object = format!(r#"{{"metadata":{{"name":"{name}","annotations":{{"a":"{annotation}"}}}}}}"#);
        watch_cache::Draft::new(&schema(), object.as_bytes()).expect("an object").commit(5)
    };
    let (mut writer, _waking, reader) = cache(schema(), Limits::default());
    writer.reset((0..5).map(|place| object(place.to_string())).collect(), 9, at(0));
    let mut page = Page::new(reader.snapshot(), Filter::all(), None, None);
    let mut shown = vec![0];
    while page.visit(|_, _| {
        *shown.last_mut().expect("never empty") += 1;
        true
    }) {
        shown.push(0);
    }
    assert_eq!(shown, [2, 2, 1]);
}

#[test]
fn cluster_scoped_objects_have_no_namespace() {
    let object = |name: &str| {
        let object = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        watch_cache::Draft::new(&schema(), object.as_bytes()).expect("an object").commit(5)
    };
    let (mut writer, _waking, reader) = cache(schema(), Limits::default());
    writer.reset([object("p"), object("q")].into_iter().collect(), 9, at(0));
    for (fields, expected) in [("metadata.name=p", 1), ("", 2), ("metadata.namespace=a", 0), ("metadata.namespace=", 2)]
    {
        let fields = field::Selector::parse(fields).expect("a selector");
        let filter = Filter::new(&schema(), false, None, label::Selector::default(), &fields).expect("known");
        let found = reader.snapshot().objects.iter().filter(|entry| filter.matches(entry)).count();
        let mut cursor = reader.cursor(watch_cache::CursorStart::Initial(reader.snapshot()), filter).expect("now");
        assert_eq!((found, drain(&mut cursor).0.len() - 1), (expected, expected), "{fields}");
    }
    assert_eq!(reader.get("p").map(|entry| entry.key().to_owned()), Some("p".to_owned()));
}

proptest! {
    /// Goal: the sketch and the text search agree with the decoded text. Method: random labels and nodes, some
    /// duplicated or escaped, against selectors evaluated on the decoded labels.
    #[test]
    fn a_filter_wants_what_its_selectors_want(
        labels in prop::collection::vec((0..6_usize, 0..6_usize), 0..8),
        node in 0..3_usize,
        requested in prop_oneof![
            prop::collection::vec((0..8_usize, 0..6_usize, 0..6_usize), 0..4),
            // More requirements than are searched for one by one, most of them negative.
            prop::collection::vec((2..4_usize, 0..6_usize, 0..60_usize), 9..14),
            prop::collection::vec((0..8_usize, 0..6_usize, 0..6_usize), 9..10),
        ],
        requested_node in prop::option::of(0..3_usize),
    ) {
        // Each name has a plain and an escaped spelling.
        let name = |place: usize| format!("{}{}", if place < 3 { "a" } else { "\\u0061" }, place % 3);
        let members: Vec<String> =
            labels.iter().map(|&(key, value)| format!(r#""{}":"{}""#, name(key), name(value))).collect();
        let object = format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","labels":{{{}}}}},"spec":{{"nodeName":"n{node}"}}}}"#,
            members.join(",")
        );
        let entry = watch_cache::Draft::new(&schema(), object.as_bytes()).expect("an object").commit(5);
        let plain = |place: usize| format!("a{}", place % 3);
        let terms: Vec<String> = requested
            .iter()
            .map(|&(how, key, value)| {
                let (key, value) = (plain(key), if value < 6 { plain(value) } else { format!("b{value}") });
                match how {
                    0 => key,
                    1 => format!("!{key}"),
                    2 => format!("{key}!={value}"),
                    3 => format!("{key} notin ({value},other)"),
                    4 => format!("{key} in ({value},other)"),
                    5 => format!("{key} in ({})", (0..30).map(|n| format!("v{n},")).collect::<String>() + &value),
                    _ => format!("{key}={value}"),
                }
            })
            .collect();
        let fields = requested_node.map_or_else(String::new, |node| format!("spec.nodeName=n{node}"));
        let filter = filter(None, &terms.join(","), &fields);
        let selector = label::Selector::parse(&terms.join(",")).expect("a selector");
        let expected = selector.matches(|key| entry.label(key)) && requested_node.is_none_or(|requested| requested == node);
        prop_assert_eq!(filter.matches(&entry), expected, "{} of {}", terms.join(","), object);
    }
}

/// One turn of the writer, by indexes of [`KEYS`] and [`NODES`].
#[derive(Clone, Debug)]
enum Turn {
    Put(usize, usize),
    Delete(usize),
    Batch(Vec<(usize, Option<usize>)>),
    Relist(Vec<(usize, usize)>),
    Trim,
}

const KEYS: [&str; 5] = ["a/p", "a/q", "a-b/p", "b/p", "b/q"];
const NODES: [&str; 3] = ["n", "", "m"];

fn names(entries: &[Arc<Entry>]) -> Vec<String> {
    entries.iter().map(|entry| entry.key().to_owned()).collect()
}

fn turns() -> impl Strategy<Value = Turn> {
    let (key, node) = (0..KEYS.len(), 0..NODES.len());
    let change = (key.clone(), proptest::option::of(node.clone()));
    prop_oneof![
        4 => (key.clone(), node.clone()).prop_map(|(key, node)| Turn::Put(key, node)),
        2 => key.clone().prop_map(Turn::Delete),
        2 => proptest::collection::vec(change, 1..6).prop_map(Turn::Batch),
        1 => proptest::collection::vec((key, node), 0..5).prop_map(Turn::Relist),
        1 => Just(Turn::Trim),
    ]
}

proptest! {
    /// Goal: an agent gets the pods of its node, whatever happened before. Method: the state of each node's pods is what the
    /// filter selects of the whole state, after each of many random turns; a state from before stays as it was.
    #[test]
    fn a_node_has_the_objects_that_its_filter_selects(turns in proptest::collection::vec(turns(), 1..24)) {
        let (mut writer, _waking, reader) = cache(schema(), Limits::default());
        writer.reset(Objects::new(), 1, at(0));
        let filters = ["n", "", "m", "none"].map(|node| filter(None, "", &format!("spec.nodeName={node}")));
        let mut before = Vec::new();
        for (turn, version) in turns.into_iter().zip(2..) {
            let entry = |key: usize, node: usize| pod(KEYS[key], NODES[node], "x", version);
            let change = |key: usize, node: Option<usize>| {
                node.map_or_else(|| deleted(KEYS[key], version), |node| put(&entry(key, node)))
            };
            match turn {
                Turn::Put(key, node) => drop(writer.apply(change(key, Some(node)), at(0)).expect("in order")),
                Turn::Delete(key) => drop(writer.apply(change(key, None), at(0)).expect("in order")),
                Turn::Batch(changes) => {
                    let changes: Vec<_> = changes.into_iter().map(|(key, node)| change(key, node)).collect();
                    writer.apply_batch(changes, at(0)).expect("in order");
                }
                Turn::Relist(pods) => {
                    let listed = pods.into_iter().map(|(key, node)| entry(key, node).entry(&schema())).collect();
                    writer.reset(listed, version, at(0));
                }
                Turn::Trim => writer.trim(at(0)),
            }
            // Some changes are read together.
            if version % 3 == 0 {
                continue;
            }
            let all = reader.snapshot();
            for filter in &filters {
                let selected = reader.selected(filter);
                let expected: Vec<_> = all.objects.iter().filter(|entry| filter.matches(entry)).cloned().collect();
                let found: Vec<_> = selected.objects.iter().cloned().collect();
                prop_assert_eq!(names(&found), names(&expected));
                prop_assert!(found.iter().zip(&expected).all(|(found, expected)| Arc::ptr_eq(found, expected)));
                prop_assert_eq!(
                    (selected.resource_version, selected.epoch, selected.history_id()),
                    (all.resource_version, all.epoch, all.history_id())
                );
                before.push((selected, names(&found)));
            }
        }
        for (state, found) in before {
            let still: Vec<_> = state.objects.iter().cloned().collect();
            prop_assert_eq!(names(&still), found);
        }
    }
}

/// Goal: reads of nodes index a large state part by part while it changes, and without such reads nothing is left of the
/// index. Method: read until the state of a node has only its own objects; then evict the objects that were read.
#[test]
fn a_large_state_is_indexed_while_its_nodes_are_read() {
    let count = 2 * limits::LOOKED_AT_PER_STEP + 1;
    let limits = Limits { window_events_max: 4, ..Limits::default() };
    let (mut writer, _waking, reader) = cache(schema(), limits);
    let entry = |name: usize, node: usize, version| pod(&format!("a/p{name}"), &format!("n{node}"), "x", version);
    writer.reset((0..count).map(|name| entry(name, name % 9, 1).entry(&schema())).collect(), 1, at(0));
    let on_node = filter(None, "", "spec.nodeName=n3");
    let searched = |reader: &Reader| {
        let (selected, all) = (reader.selected(&on_node), reader.snapshot());
        let matching = |objects: &Objects<Entry>| -> Vec<_> {
            objects.iter().filter(|entry| on_node.matches(entry)).cloned().collect()
        };
        assert_eq!(names(&matching(&selected.objects)), names(&matching(&all.objects)));
        assert_eq!(selected.resource_version, all.resource_version);
        selected.objects.len()
    };
    for version in 2..4 {
        writer.apply(put(&entry(3, 4, version)), at(0)).expect("in order");
        assert_eq!(searched(&reader), count, "not all objects are indexed");
    }
    let on_the_node = searched(&reader);
    assert!(on_the_node < count / 8, "{on_the_node}");
    let old = Arc::downgrade(&reader.get("a/p3").expect("an object"));
    for version in 4..9 {
        writer.apply(put(&entry(3, 3, version)), at(0)).expect("in order");
    }
    assert!(old.upgrade().is_some(), "the index has it");
    writer.trim(at(0));
    assert!(old.upgrade().is_none(), "neither the window nor the index has it");
    assert_eq!(searched(&reader), count, "the index begins again");
}
