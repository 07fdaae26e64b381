//! The two manifests of the incident, as files for one server and as objects of a newer version for the other.

use std::{fs, path::Path};

use measured::Failure;
use serde_json::{Value, json};

const FLOW_SCHEMA: &str = include_str!("flow-control/flow-schema.yaml");
const PRIORITY_LEVEL: &str = include_str!("flow-control/priority-level.yaml");
/// Version that kube-apiserver 1.36 serves. It dropped v1beta1 in 1.26.
const SERVED_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// An object and the collection to create it in.
pub(crate) struct FlowObject {
    pub(crate) collection: &'static str,
    pub(crate) json: Value,
}

/// Writes both files as they are into a folder.
pub(crate) fn write(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("flow-schema.yaml"), FLOW_SCHEMA)?;
    fs::write(folder.join("priority-level.yaml"), PRIORITY_LEVEL)?;
    Ok(())
}

/// Both objects in the version that a current kube-apiserver serves, the priority level first.
pub(crate) fn served() -> Result<[FlowObject; 2], Failure> {
    let mut level: Value = serde_saphyr::from_str(PRIORITY_LEVEL)?;
    let mut schema: Value = serde_saphyr::from_str(FLOW_SCHEMA)?;
    for object in [&mut level, &mut schema] {
        object["apiVersion"] = json!(SERVED_VERSION);
    }
    let limited = level["spec"]["limited"].as_object_mut().ok_or("the priority level is not limited")?;
    let shares = limited.remove("assuredConcurrencyShares").ok_or("the priority level has no shares")?;
    limited.insert("nominalConcurrencyShares".to_owned(), shares);
    Ok([
        FlowObject { collection: "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", json: level },
        FlowObject { collection: "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", json: schema },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identities::{AGENT, user_name};

    /// Goal: the conversion keeps everything but the renamed field. Method: compare with the published values.
    #[test]
    fn the_manifests_are_converted_to_v1() {
        let [level, schema] = served().unwrap();
        assert_eq!(level.json["apiVersion"], "flowcontrol.apiserver.k8s.io/v1");
        let limited = &level.json["spec"]["limited"];
        assert_eq!((&limited["nominalConcurrencyShares"], limited.get("assuredConcurrencyShares")), (&json!(5), None));
        assert_eq!(limited["limitResponse"]["queuing"], json!({"handSize": 4, "queueLengthLimit": 50, "queues": 16}));
        assert_eq!(schema.json["spec"]["priorityLevelConfiguration"]["name"], level.json["metadata"]["name"]);
    }

    #[test]
    fn the_schema_names_the_agents() {
        let [_, schema] = served().unwrap();
        let account = &schema.json["spec"]["rules"][0]["subjects"][0]["serviceAccount"];
        let name = |member: &str| account[member].as_str().unwrap().to_owned();
        assert_eq!(user_name(AGENT), format!("system:serviceaccount:{}:{}", name("namespace"), name("name")));
    }
}
