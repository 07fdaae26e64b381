//! Writes pods straight into etcd, as JSON, which kube-apiserver reads like its own encoding.
//!
//! To create 100,000 pods through kube-apiserver, each with its status, takes some ten minutes on two cores.

use std::sync::{Arc, Mutex, PoisonError};

use cache_server::populate::{self, GeneratedObjects, PopulateSpec};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{Failure, etcd};
use crate::{
    load::failure::{Failure as LoadFailure, Kind},
    numbers::{server::runtime, stock::Cluster},
};

/// Concurrent transactions.
const LANES: usize = 4;

/// Stores the generator's pods. No kube-apiserver may run meanwhile, because it would decode each of them.
pub(in crate::numbers) fn pods(cluster: &Cluster, spec: &PopulateSpec) -> Result<(), Failure> {
    let target = cluster.etcd().target()?;
    let objects = Arc::new(Mutex::new(populate::objects(spec)));
    runtime()?.block_on(async {
        let mut lanes = JoinSet::new();
        for _ in 0..LANES {
            let (target, objects) = (target.clone(), Arc::clone(&objects));
            lanes.spawn(async move {
                let mut connection = target.connect().await?;
                loop {
                    let puts = next(&objects)?;
                    if puts.is_empty() {
                        return Ok::<_, LoadFailure>(());
                    }
                    etcd::commit(&mut connection, &puts).await?;
                }
            });
        }
        while let Some(lane) = lanes.join_next().await {
            lane.map_err(|error| Failure::Server(error.to_string()))??;
        }
        Ok(())
    })
}

/// The operations that store the next pods.
fn next(objects: &Mutex<GeneratedObjects>) -> Result<Vec<Value>, LoadFailure> {
    let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
    let pods = objects.by_ref().filter(|object| object.plural == "pods").take(etcd::OPERATIONS_MAX);
    pods.map(|pod| Ok(etcd::put(&key(&pod.json)?, &pod.json))).collect()
}

/// The key of a pod in etcd.
fn key(json: &[u8]) -> Result<String, LoadFailure> {
    let pod: Value = serde_json::from_slice(json).map_err(|error| LoadFailure::new(Kind::Protocol, error))?;
    let text = |member: &str| pod["metadata"][member].as_str().unwrap_or_default();
    Ok(format!("/registry/pods/{}/{}", text("namespace"), text("name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_gets_a_key_of_its_own() {
        let spec = PopulateSpec { pods: 300, nodes: 3, namespaces: 2, seed: 1 };
        let objects = Mutex::new(populate::objects(&spec));
        let mut keys = std::collections::BTreeSet::new();
        loop {
            let puts = next(&objects).unwrap();
            if puts.is_empty() {
                break;
            }
            assert!(puts.len() <= etcd::OPERATIONS_MAX);
            keys.extend(puts.iter().map(|put| put["requestPut"]["key"].to_string()));
        }
        assert_eq!(keys.len(), 300);
        assert_eq!(key(br#"{"metadata":{"namespace":"a","name":"b"}}"#), Ok("/registry/pods/a/b".to_owned()));
    }
}
