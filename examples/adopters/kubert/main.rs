//! Fifteen watches on kubert's runtime and into its indexes, as Linkerd's policy controller has them. Prints a line for
//! each type whenever its contents have changed: plural, number of objects, and the sum of the hashes of their
//! `namespace/name@resourceVersion`.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, Endpoints, Namespace, Node, Pod, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
};
use kube::{Resource, ResourceExt as _};
use kubert::{
    Runtime, admin,
    client::{ClientArgs, ResponseHeadersTimeout},
    index::{self, IndexClusterResource, IndexNamespacedResource},
};
use parking_lot::RwLock;

/// Time between two comparisons of the contents with those that were printed.
const PRINT_EVERY: Duration = Duration::from_millis(100);

/// Versions of the objects of one type, by namespace and name.
#[derive(Default)]
struct Seen(HashMap<(String, String), String>);

impl<T: Resource> IndexNamespacedResource<T> for Seen {
    fn apply(&mut self, object: T) {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        self.0.insert(key, object.resource_version().unwrap_or_default());
    }

    fn delete(&mut self, namespace: String, name: String) {
        self.0.remove(&(namespace, name));
    }
}

impl<T: Resource> IndexClusterResource<T> for Seen {
    fn apply(&mut self, object: T) {
        IndexNamespacedResource::apply(self, object);
    }

    fn delete(&mut self, name: String) {
        self.0.remove(&(String::new(), name));
    }
}

impl Seen {
    /// Number of objects, and the sum of their hashes: FNV-1a of 64 bits.
    fn summary(&self) -> (usize, u64) {
        let hash = |text: String| {
            text.bytes()
                .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        };
        let hashes = self.0.iter().map(|((namespace, name), version)| hash(format!("{namespace}/{name}@{version}")));
        (self.0.len(), hashes.fold(0, u64::wrapping_add))
    }
}

/// Watches all objects of the listed types into an index each, by the index function for their scope.
macro_rules! follow {
    ($runtime:ident, $all:ident, $index:path, $($of:ty),+) => {$(
        let seen = Arc::new(RwLock::new(Seen::default()));
        $all.insert(<$of>::plural(&()).into_owned(), Arc::clone(&seen));
        tokio::spawn($index(seen, $runtime.watch_all::<$of>(Default::default())));
    )+};
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kubeconfig = std::env::args().nth(1).map(PathBuf::from).ok_or("the path of a kubeconfig is missing")?;
    let client = ClientArgs {
        cluster: None,
        context: None,
        user: None,
        kubeconfig: Some(kubeconfig),
        impersonate_user: None,
        impersonate_group: None,
        response_headers_timeout: ResponseHeadersTimeout::default(),
    };
    let admin = admin::Builder::new(([127, 0, 0, 1], 0).into());
    let mut runtime = Runtime::builder()
        .with_admin(admin)
        .with_client(client)
        .with_fixed_delay_on_error(Duration::from_secs(5))
        .build()
        .await?;
    let mut all = BTreeMap::new();
    follow!(
        runtime,
        all,
        index::namespaced,
        Pod,
        Service,
        ConfigMap,
        Secret,
        Endpoints,
        ServiceAccount,
        Deployment,
        ReplicaSet,
        DaemonSet,
        StatefulSet,
        Job,
        CronJob,
        NetworkPolicy
    );
    follow!(runtime, all, index::cluster, Namespace, Node);
    tokio::spawn(async move {
        let mut printed = HashMap::new();
        loop {
            for (plural, seen) in &all {
                let now = seen.read().summary();
                if printed.insert(plural, now) != Some(now) {
                    println!("{plural} {} {:016x}", now.0, now.1);
                }
            }
            tokio::time::sleep(PRINT_EVERY).await;
        }
    });
    Ok(runtime.run().await?)
}
