//! Commands that only read: get, explain, api-resources.

use std::time::Duration;

use serde_json::Value;
use tests::objects::configmap;
use tokio::time::timeout;

use super::{scenes, scenes_with, table, team_manifest};
use crate::faults::Plan;

const POPULATED: &[&str] = &["--populate", "pods=700,nodes=8,namespaces=5,seed=1"];

#[tokio::test]
async fn pods_of_all_namespaces_are_listed_in_chunks() {
    for scene in scenes_with(POPULATED, &Plan::default()).await {
        let all = scene.run("get pods -A").await;
        assert_eq!(all.lines().count(), 701, "{}", scene.name);
        assert_eq!(table(&all)[0][..2], ["NAMESPACE", "NAME"], "{}", scene.name);
        let asked = scene.proxy.take();
        let lists: Vec<_> = asked.iter().filter(|request| request.starts_with("GET /api/v1/pods")).collect();
        assert_eq!(lists[0], "GET /api/v1/pods?limit=500", "{}", scene.name);
        assert!(lists.len() == 2 && lists[1].contains("continue="), "{lists:?}");
        assert_eq!(scene.run("get pods -A -o name --chunk-size=0").await.lines().count(), 700, "{}", scene.name);
        assert_eq!(scene.run("get nodes -o name").await.lines().count(), 8, "{}", scene.name);
    }
}

#[tokio::test]
async fn objects_are_shown_in_the_columns_that_people_know() {
    for scene in scenes_with(POPULATED, &Plan::default()).await {
        for (line, expected) in [
            ("get pods -A", "NAMESPACE NAME READY STATUS RESTARTS AGE"),
            ("get pods -A -o wide", "NAMESPACE NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"),
            ("get nodes", "NAME STATUS ROLES AGE VERSION"),
            ("get namespaces", "NAME STATUS AGE"),
        ] {
            let printed = scene.run(line).await;
            let header = printed.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(header, expected, "{}: {line}", scene.name);
        }
        let team = scene.file("team.yaml", &team_manifest());
        scene.run(&format!("create --validate=false -f {team}")).await;
        scene.prints("get -n team all -o name", "service/web\ndeployment.apps/web\n").await;
        let printed = scene.run("get -n team deployments,services,configmaps").await;
        let headers: Vec<String> =
            table(&printed).iter().filter(|row| row.first() == Some(&"NAME")).map(|row| row.join(" ")).collect();
        assert_eq!(
            headers,
            ["NAME READY UP-TO-DATE AVAILABLE AGE", "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE", "NAME DATA AGE"],
            "{}",
            scene.name
        );
    }
}

#[tokio::test]
async fn objects_are_printed_in_every_format() {
    for scene in scenes().await {
        for (name, value) in [("a", "1"), ("b", "0")] {
            scene.client().create(&configmap(name).label("app", name).data(value)).await;
        }
        scene.prints("get cm -o name", "configmap/a\nconfigmap/b\n").await;
        scene.prints("get cm -l app=b -o name", "configmap/b\n").await;
        scene.prints("get cm -l app!=b -o jsonpath={.items[*].data.k}", "1").await;
        scene.prints("get cm --field-selector metadata.name=a -o name", "configmap/a\n").await;
        scene.prints("get cm --sort-by=.data.k -o name", "configmap/b\nconfigmap/a\n").await;
        let json: Value = serde_json::from_str(&scene.run("get cm a -o json").await).expect("is JSON");
        assert_eq!((&json["kind"], &json["data"]["k"]), (&"ConfigMap".into(), &"1".into()), "{}", scene.name);
        let list: Value = serde_json::from_str(&scene.run("get cm -o json").await).expect("is JSON");
        assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&"List".into(), Some(2)));
        let yaml = scene.run("get cm a -o yaml").await;
        assert!(yaml.starts_with("apiVersion: v1\ndata:\n  k: \"1\"\nkind: ConfigMap\n"), "{yaml}");
        let sorted = scene.run("get cm --sort-by=.data.k").await;
        let names: Vec<&str> = table(&sorted).iter().map(|row| row[0]).collect();
        assert_eq!(names, ["NAME", "b", "a"], "{}", scene.name);
        let complaint = scene.fail("get cm none").await;
        assert!(complaint.contains("Error from server (NotFound): configmaps \"none\" not found"), "{complaint}");
        let described = scene.run("describe cm a").await;
        assert!(described.contains("Name:         a\nNamespace:    default\n"), "{described}");
    }
}

#[tokio::test]
async fn a_watch_shows_changes_as_they_happen() {
    for scene in scenes().await {
        let client = scene.client();
        client.create(&configmap("p")).await;
        let template = "get cm --watch --output-watch-events -o jsonpath={.type}={.object.metadata.name}{\"\\n\"}";
        let (mut child, mut lines) = scene.start(template);
        assert_eq!(lines.line().await, "ADDED=p");
        client.update(&configmap("p").label("a", "b")).await;
        assert_eq!(lines.line().await, "MODIFIED=p");
        client.remove(&configmap("p")).await;
        assert_eq!(lines.line().await, "DELETED=p");
        child.kill().await.expect("it was running");
        let asked = scene.proxy.take();
        let reads: Vec<&String> = asked.iter().filter(|request| request.contains("/configmaps?")).collect();
        assert_eq!(reads[0], "GET /api/v1/namespaces/default/configmaps?limit=500", "{}", scene.name);
        assert!(reads[1].contains("resourceVersion=") && reads[1].contains("watch=true"), "{reads:?}");
    }
}

#[tokio::test]
async fn a_watch_shows_rows_as_they_change() {
    for scene in scenes().await {
        let client = scene.client();
        client.create(&configmap("a")).await;
        for line in ["get cm -w", "get cm a -w"] {
            let (mut child, mut lines) = scene.start(line);
            let header: Vec<String> = lines.line().await.split_whitespace().map(str::to_owned).collect();
            assert_eq!(header, ["NAME", "DATA", "AGE"], "{}: {line}", scene.name);
            assert!(lines.line().await.starts_with("a "), "{}: {line}", scene.name);
            let row = loop {
                // A watch of one object begins with its initial ADDED event, which kubectl drops as already shown.
                client.update(&configmap("a").data(&fastrand::u64(..).to_string())).await;
                if let Ok(row) = timeout(Duration::from_millis(500), lines.line()).await {
                    break row;
                }
            };
            assert_eq!(table(&row)[0][..2], ["a", "1"], "{}: {line}", scene.name);
            child.kill().await.expect("it was running");
            client.update(&configmap("a")).await;
        }
    }
}

#[tokio::test]
async fn types_are_discovered() {
    for scene in scenes().await {
        let resources = scene.run("api-resources --no-headers").await;
        let words = |name: &str| {
            let row = resources.lines().find(|row| row.split_whitespace().next() == Some(name));
            row.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        for (name, expected) in [
            ("pods", "pods po v1 true Pod"),
            ("deployments", "deployments deploy apps/v1 true Deployment"),
            ("nodes", "nodes no v1 false Node"),
            ("leases", "leases coordination.k8s.io/v1 true Lease"),
        ] {
            assert_eq!(words(name).as_deref(), Some(expected), "{}", scene.name);
        }
        let versions = scene.run("api-versions").await;
        assert!(versions.lines().any(|line| line == "apps/v1"), "{}: {versions}", scene.name);
        let version = scene.run("version").await;
        assert!(version.contains("Server Version: v1.36.0"), "{}: {version}", scene.name);
        scene.prints("get --raw /readyz", "ok").await;
    }
}

#[tokio::test]
async fn fields_are_explained() {
    for scene in scenes().await {
        let printed = scene.run("explain pod.spec").await;
        for part in [
            "KIND:       Pod\n",
            "VERSION:    v1\n",
            "FIELD: spec <PodSpec>",
            "  containers\t<[]Container> -required-\n",
        ] {
            assert!(printed.contains(part), "{}: {part} in {printed}", scene.name);
        }
        let printed = scene.run("explain deployment.spec.strategy.rollingUpdate").await;
        assert!(printed.contains("GROUP:      apps\n") && printed.contains("maxSurge"), "{}: {printed}", scene.name);
    }
}
