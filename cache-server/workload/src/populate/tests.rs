//! Promises of the generator: counts, sizes, names, randomness, and equal bytes for equal seeds.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn spec(text: &str) -> PopulateSpec {
    text.parse().unwrap()
}

/// The objects of one resource type, as JSON bytes and decoded.
fn of(spec: &PopulateSpec, plural: &str) -> Vec<(Vec<u8>, Value)> {
    let objects = objects(spec).filter(|object| object.plural == plural);
    objects.map(|object| (object.json.clone(), serde_json::from_slice(&object.json).unwrap())).collect()
}

fn pods(spec: &PopulateSpec) -> Vec<(Vec<u8>, Value)> {
    of(spec, "pods")
}

#[test]
fn specifications_are_read_or_refused_in_one_line() {
    let usual = PopulateSpec::default();
    let good = [
        ("pods=7130,nodes=80", usual.clone()),
        ("seed=9", PopulateSpec { seed: 9, ..usual.clone() }),
        ("pods=0,nodes=0,namespaces=0", PopulateSpec { pods: 0, nodes: 0, namespaces: 0, seed: 1 }),
    ];
    for (text, expected) in good {
        assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
        assert_eq!(expected.to_string().parse(), Ok(expected));
    }
    let bad = [
        ("", "\"\" is not key=number; for example pods=7130,nodes=80,namespaces=40,seed=1"),
        ("pods", "\"pods\" is not key=number; for example pods=7130,nodes=80,namespaces=40,seed=1"),
        ("cats=3", "unknown key \"cats\"; known are pods, nodes, namespaces and seed"),
        ("pods=many", "pods=many is not a number from 0 to 10000000"),
        ("pods=-1", "pods=-1 is not a number from 0 to 10000000"),
        ("pods=99999999999", "pods=99999999999 is not a number from 0 to 10000000"),
        ("pods=1,pods=2", "pods is given twice"),
        ("pods=1,nodes=0", "pods need at least one node and one namespace"),
    ];
    for (text, expected) in bad {
        assert_eq!(text.parse::<PopulateSpec>().unwrap_err().to_string(), expected);
    }
}

#[test]
fn counts_are_exact() {
    for text in ["pods=2000,nodes=80", "pods=1,nodes=1,namespaces=1", "pods=333,nodes=7,namespaces=90", "pods=0"] {
        let spec = spec(text);
        let mut counts = BTreeMap::<&str, u32>::new();
        for object in objects(&spec) {
            *counts.entry(object.plural).or_default() += 1;
        }
        let count = |plural| counts.get(plural).copied().unwrap_or_default();
        assert_eq!((count("pods"), count("nodes"), count("namespaces")), (spec.pods, spec.nodes, spec.namespaces));
        assert!(count("deployments") <= spec.pods.max(1), "{counts:?}");
        assert_eq!(count("deployments"), count("replicasets"));
    }
}

#[test]
fn keys_are_unique_and_names_valid() {
    let valid = |name: &str| {
        (1..=63).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-')
    };
    let mut keys = BTreeSet::new();
    let mut uids = BTreeSet::new();
    for (resource, object) in generate(&spec("pods=2000,nodes=80,namespaces=120")) {
        let metadata = &object["metadata"];
        let (namespace, name) =
            (metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap());
        assert!(valid(name) && (namespace.is_empty() || valid(namespace)), "{namespace}/{name}");
        for label in metadata["labels"].as_object().into_iter().flatten() {
            assert!(label.1.as_str().is_some_and(|value| value.len() <= 63), "{label:?}");
        }
        assert!(keys.insert((resource, namespace.to_owned(), name.to_owned())), "{namespace}/{name} twice");
        assert!(uids.insert(metadata["uid"].as_str().unwrap().to_owned()), "uid of {namespace}/{name} twice");
        assert!(metadata["resourceVersion"].is_null(), "the storage assigns it");
    }
}

#[test]
fn pods_are_spread_over_the_nodes_and_live_in_namespaces_that_exist() {
    let spec = spec("pods=2030,nodes=80");
    let names = |plural: &str| -> BTreeSet<String> {
        of(&spec, plural).iter().map(|(_, object)| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("nodes"), (0..80).map(|index| format!("node-{index}")).collect());
    let namespaces = names("namespaces");
    let mut on = BTreeMap::<String, u32>::new();
    for (_, pod) in pods(&spec) {
        *on.entry(pod["spec"]["nodeName"].as_str().unwrap().to_owned()).or_default() += 1;
        assert!(namespaces.contains(pod["metadata"]["namespace"].as_str().unwrap()));
    }
    assert_eq!(on.keys().cloned().collect::<BTreeSet<_>>(), names("nodes"));
    assert!(on.values().all(|count| (25..=26).contains(count)), "{on:?}");
}

#[test]
fn pods_look_like_pods() {
    let (mut containers, mut kinds) = (0, BTreeSet::new());
    let pods = pods(&spec("pods=1500,nodes=80"));
    for (_, pod) in &pods {
        assert_eq!((&pod["kind"], &pod["apiVersion"]), (&"Pod".into(), &"v1".into()));
        assert_eq!(pod["metadata"]["managedFields"].as_array().unwrap().len(), 3);
        assert_eq!(pod["status"]["conditions"].as_array().unwrap().len(), 4);
        let specified = pod["spec"]["containers"].as_array().unwrap();
        assert_eq!(pod["status"]["containerStatuses"].as_array().unwrap().len(), specified.len());
        containers += specified.len();
        for container in specified {
            assert!(!container["env"].as_array().unwrap().is_empty());
        }
        kinds.insert(pod["metadata"]["ownerReferences"][0]["kind"].as_str().unwrap().to_owned());
        assert!(!pod["spec"]["volumes"].as_array().unwrap().is_empty());
    }
    assert!(containers * 10 > pods.len() * 13, "many pods have several containers");
    assert_eq!(Vec::from_iter(kinds), ["DaemonSet", "Job", "ReplicaSet", "StatefulSet"]);
}

#[test]
fn a_pod_is_about_five_kilobytes_and_two_fifths_of_it_managed_fields() {
    let pods = pods(&spec("pods=2000,nodes=80"));
    let all: usize = pods.iter().map(|(json, _)| json.len()).sum();
    let managed: usize = pods.iter().map(|(_, pod)| pod["metadata"]["managedFields"].to_string().len()).sum();
    let (mean, percent) = (all / pods.len(), managed * 100 / all);
    assert!((4_500..=5_500).contains(&mean), "{mean} bytes a pod");
    assert!((35..=45).contains(&percent), "{percent} % managedFields");
}

/// Goal: pods have as much entropy as real ones. Method: compress each pod alone with zstd level 1 and no dictionary.
#[test]
fn a_pod_does_not_compress_below_a_fifth() {
    let pods = pods(&spec("pods=1000,nodes=80"));
    let ratio = |json: &Vec<u8>| zstd::bulk::compress(json, 1).unwrap().len() as f64 / json.len() as f64;
    let mean = pods.iter().map(|(json, _)| ratio(json)).sum::<f64>() / pods.len() as f64;
    assert!((0.2..0.5).contains(&mean), "{mean}");
}

#[test]
fn the_seed_decides_every_byte() {
    // FNV-1a over plural and JSON of all objects. Must change only with an intended change of the generator.
    let hash = |seed| {
        objects(&PopulateSpec { pods: 500, nodes: 10, namespaces: 8, seed }).fold(
            0xcbf2_9ce4_8422_2325_u64,
            |hash, object| {
                let bytes = object.plural.bytes().chain(object.json);
                bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
            },
        )
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
    assert_eq!(format!("{:016x}", hash(1)), "5fe85d1500c45886");
}

/// Goal: validation loses no field of real objects. Method: every object of the generator.
#[test]
fn generated_objects_have_no_fields_but_known_ones() {
    use api_rules::object::validation::{Findings, check};
    let registry = cache_server_caches::registry::Registry::builtin();
    let spec = "pods=600,nodes=10,namespaces=4".parse().expect("a specification");
    let mut bytes = 0;
    for object in objects(&spec) {
        let ty = registry.find(object.group, object.version, object.plural).expect("a built-in type");
        let read: Value = serde_json::from_slice(&object.json).expect("JSON");
        let mut left = read.as_object().expect("an object").clone();
        assert_eq!(check(&ty, &mut left), Findings::default(), "{}", object.plural);
        assert_eq!(Value::Object(left), read, "{}", object.plural);
        bytes += object.json.len();
    }
    assert!(bytes > 1_000_000, "{bytes}");
}
