//! The pods that churn has listed or created, and the choice of the next write.
//!
//! INVARIANT: a pod with a write in flight is not in the list, so it is not picked again before the response.

use std::{collections::BTreeSet, fmt};

use bytes::Bytes;
use fastrand::Rng;
use informer_core::object::Meta;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::{Ask, ClientError, Connection, collection},
    config::PopulateSpec,
    limits::{CHURN_PAGE, POPULATE_MAX},
    populate::{self, GeneratedObject},
};

/// Percent of writes that create a pod.
const CREATES: u32 = 10;
/// Percent of writes that delete a pod. Equal to [`CREATES`], so that the number of pods stays about constant.
const DELETES: u32 = 10;

/// The label and annotation that updates write.
const MARK: &str = "churn.example.com/write";

/// Prefix of the names of created pods.
const NAME_BASE: &str = "churn-";

/// A write and the pod it concerns.
#[derive(Debug)]
pub(super) enum PodWrite {
    Update { pod: Pod, ask: Ask },
    Create { namespace: String, ask: Ask },
    Delete { pod: Pod, ask: Ask },
}

impl PodWrite {
    pub(super) const fn ask(&self) -> &Ask {
        match self {
            Self::Update { ask, .. } | Self::Create { ask, .. } | Self::Delete { ask, .. } => ask,
        }
    }
}

impl fmt::Display for PodWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Update { pod, .. } => write!(f, "update {pod}"),
            Self::Create { namespace, .. } => write!(f, "create a pod in {namespace}"),
            Self::Delete { pod, .. } => write!(f, "delete {pod}"),
        }
    }
}

/// Key of a pod. Memory: about 100 bytes.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    namespace: Box<str>,
    name: Box<str>,
}

impl Pod {
    fn path(&self) -> String {
        format!("{}/{}", pods_of(&self.namespace), self.name)
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn pods_of(namespace: &str) -> String {
    collection("", "v1", "pods", namespace)
}

/// The pods without a write in flight.
pub(super) struct Pods {
    random: Rng,
    /// Makes every written value differ from values of earlier runs.
    mark: String,
    writes: u64,
    known: Vec<Pod>,
    /// Namespace and node of each listed pod; new pods are created in these.
    places: Vec<(String, String)>,
    seed: u64,
    templates: Box<dyn Iterator<Item = GeneratedObject> + Send>,
}

impl Pods {
    pub(super) fn new(seed: u64, mark: String) -> Self {
        let (known, places) = (Vec::new(), Vec::new());
        Self { random: Rng::with_seed(seed), mark, writes: 0, known, places, seed, templates: templates(seed) }
    }

    /// Adds all pods of the server to the list, in pages.
    ///
    /// # Errors
    /// The error of the first page that fails.
    pub(super) async fn list(&mut self, connection: &mut Connection) -> Result<(), ClientError> {
        let mut places = BTreeSet::new();
        let mut token = String::new();
        loop {
            let answer = connection.send(&Ask::get(page_path(&token))).await?;
            let page: PodPage = serde_json::from_slice(&answer).map_err(|_| ClientError::Unreadable)?;
            for Item { metadata: ItemMeta { namespace, name }, spec } in page.items.unwrap_or_default() {
                places.insert((namespace.clone(), spec.node_name));
                self.known.push(Pod { namespace: namespace.into(), name: name.into() });
            }
            match page.metadata.continue_token {
                Some(next) if !next.is_empty() => token = next,
                Some(_) | None => break,
            }
        }
        if places.is_empty() {
            places.insert(("default".to_owned(), "node-0".to_owned()));
        }
        self.places = places.into_iter().collect();
        Ok(())
    }

    /// The next write. Its pod is not in the list until [`Self::settle`].
    pub(super) fn next_write(&mut self) -> PodWrite {
        self.writes += 1;
        let dice = self.random.u32(0..100);
        if dice < CREATES || self.known.is_empty() {
            return self.create();
        }
        let pod = self.known.swap_remove(self.random.usize(0..self.known.len()));
        if dice < CREATES + DELETES {
            let ask = Ask::delete(pod.path());
            return PodWrite::Delete { pod, ask };
        }
        let ask = self.patch(&pod);
        PodWrite::Update { pod, ask }
    }

    /// A patch of a label, an annotation or the status, always with a new value.
    fn patch(&mut self, pod: &Pod) -> Ask {
        let value = format!("{}-{}", self.mark, self.writes);
        let status_path = || format!("{}/status", pod.path());
        let (path, patch) = match self.random.u32(0..3) {
            0 => (pod.path(), json!({"metadata": {"labels": {MARK: value}}})),
            1 => (pod.path(), json!({"metadata": {"annotations": {MARK: value}}})),
            _ => (status_path(), json!({"status": {"message": value}})),
        };
        Ask::merge(path, patch.to_string())
    }

    fn create(&mut self) -> PodWrite {
        let (namespace, node) = self.places[self.random.usize(0..self.places.len())].clone();
        let mut pod = self.template();
        // Drop the name, which may be taken, the owner, which does not exist, and all fields that the server sets.
        pod["metadata"] = json!({
            "annotations": pod["metadata"]["annotations"].take(),
            "generateName": NAME_BASE,
            "labels": pod["metadata"]["labels"].take(),
            "managedFields": pod["metadata"]["managedFields"].take(),
        });
        pod["spec"]["nodeName"] = node.into();
        let ask = Ask::post(pods_of(&namespace), pod.to_string());
        PodWrite::Create { namespace, ask }
    }

    fn template(&mut self) -> Value {
        loop {
            if let Some(pod) = self.templates.next() {
                return serde_json::from_slice(&pod.json).expect("the generator makes JSON");
            }
            self.templates = templates(self.seed);
        }
    }

    /// Returns the pod of a finished write to the list, unless it was deleted or not found; adds the pod of a create.
    pub(super) fn settle(&mut self, write: PodWrite, answer: &Result<Bytes, ClientError>) {
        match (write, answer) {
            (PodWrite::Delete { .. }, Ok(_)) | (PodWrite::Create { .. }, Err(_)) => {}
            (PodWrite::Update { .. } | PodWrite::Delete { .. }, Err(error)) if error.not_found() => {}
            (PodWrite::Update { pod, .. }, Ok(_) | Err(_)) | (PodWrite::Delete { pod, .. }, Err(_)) => {
                self.known.push(pod)
            }
            (PodWrite::Create { .. }, Ok(created)) => {
                if let Ok(meta) = Meta::read(created) {
                    self.known.push(Pod { namespace: (&*meta.namespace).into(), name: (&*meta.name).into() });
                }
            }
        }
    }
}

/// An endless supply, in practice, of generated pods.
fn templates(seed: u64) -> Box<dyn Iterator<Item = GeneratedObject> + Send> {
    let spec = PopulateSpec { pods: POPULATE_MAX, seed, ..PopulateSpec::default() };
    Box::new(populate::objects(&spec).filter(|object| object.plural == "pods"))
}

fn page_path(token: &str) -> String {
    let path = format!("{}?limit={CHURN_PAGE}", pods_of(""));
    // Tokens are opaque: percent-encode every byte outside the unreserved set of RFC 3986.
    token.bytes().fold(if token.is_empty() { path } else { path + "&continue=" }, |path, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path + char::from(byte).encode_utf8(&mut [0; 1])
        } else {
            path + &format!("%{byte:02X}")
        }
    })
}

/// The fields of a list page that churn reads.
#[derive(Deserialize)]
struct PodPage {
    #[serde(default)]
    metadata: PageMeta,
    items: Option<Vec<Item>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMeta,
    #[serde(default)]
    spec: ItemSpec,
}

#[derive(Deserialize)]
struct ItemMeta {
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
struct ItemSpec {
    #[serde(default, rename = "nodeName")]
    node_name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(count: usize) -> Pods {
        let mut pods = Pods::new(7, "run".to_owned());
        pods.known = (0..count).map(|at| Pod { namespace: "ns".into(), name: format!("pod-{at}").into() }).collect();
        pods.places = vec![("ns".to_owned(), "node-3".to_owned())];
        pods
    }

    #[test]
    fn most_writes_are_updates_and_each_is_another() {
        let mut pods = pods(50);
        let (mut updates, mut creates, mut deletes) = (0, 0, 0);
        let mut bodies = BTreeSet::new();
        for _ in 0..1_000 {
            let write = pods.next_write();
            match &write {
                PodWrite::Update { ask, .. } => {
                    updates += 1;
                    assert!(bodies.insert(ask.body.clone()), "{:?}", ask.body);
                }
                PodWrite::Create { .. } => creates += 1,
                PodWrite::Delete { .. } => deletes += 1,
            }
            let made = json!({"metadata": {"namespace": "ns", "name": format!("made-{creates}")}}).to_string();
            pods.settle(write, &Ok(made.into()));
        }
        assert!((750..850).contains(&updates), "{updates}");
        assert!((70..130).contains(&creates) && (70..130).contains(&deletes), "{creates} {deletes}");
        assert_eq!(pods.known.len(), 50 + creates - deletes);
    }

    #[test]
    fn a_pod_has_one_write_at_a_time() {
        let mut pods = pods(3);
        let open: Vec<PodWrite> = (0..100).map(|_| pods.next_write()).collect();
        let creates = open.iter().filter(|write| matches!(write, PodWrite::Create { .. })).count();
        assert_eq!((creates, pods.known.len()), (97, 0));
        let gone = || ClientError::Refused { code: 404, reason: None, message: "gone".to_owned() };
        for write in open {
            pods.settle(write, &Err(gone()));
        }
        assert!(pods.known.is_empty(), "what is not found is not picked again");
    }

    #[test]
    fn created_pods_live_where_others_do() {
        let PodWrite::Create { namespace, ask } = pods(0).next_write() else { panic!("there is nothing to update") };
        let pod: Value = serde_json::from_slice(&ask.body).unwrap();
        assert_eq!((&*namespace, &pod["spec"]["nodeName"]), ("ns", &json!("node-3")));
        assert_eq!(ask.path, "/api/v1/namespaces/ns/pods");
        assert_eq!(pod["metadata"]["generateName"], NAME_BASE);
        assert!(ask.body.len() > 2_000 && pod["metadata"].get("name").is_none());
    }

    #[test]
    fn tokens_are_escaped() {
        assert_eq!(page_path(""), "/api/v1/pods?limit=500");
        assert_eq!(page_path("a+/="), "/api/v1/pods?limit=500&continue=a%2B%2F%3D");
    }
}
