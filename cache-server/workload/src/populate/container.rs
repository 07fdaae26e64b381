//! The containers of a workload's pods: their specification, and the status that the kubelet reports.

use serde_json::{Value, json};

use super::{
    pod::{PodHealth, PodTemplateInputs, push},
    random::Random,
    template::CONTAINERS_MAX,
};

const SIDECARS: &[&str] = &["envoy", "log-shipper", "metrics-exporter"];
const REGISTRIES: &[&str] = &["registry.example.com", "ghcr.io/example", "quay.io/example"];
const SETTINGS: &[(&str, &str)] = &[
    ("LOG_LEVEL", "info"),
    ("HTTP_PORT", "8080"),
    ("CACHE_TTL_SECONDS", "300"),
    ("OTEL_SERVICE_NAME", "{app}"),
    ("UPSTREAM_URL", "http://{app}-upstream.{namespace}.svc:8080"),
    ("MAX_CONNECTIONS", "64"),
    ("FEATURE_FLAGS", "async-writes,strict-mode"),
];

/// Draws the number of containers of a pod.
pub(super) fn count(random: &mut Random) -> usize {
    let count = match random.between(0, 15) {
        0..=9 => 1,
        10..=14 => 2,
        _ => 3,
    };
    count.min(CONTAINERS_MAX)
}

/// Draws the specification and status of a container. Index 0 is the app, the others are sidecars.
pub(super) fn draw(
    plan: &PodTemplateInputs<'_>,
    index: usize,
    configured: bool,
    random: &mut Random,
) -> (Value, Value) {
    let name = if index == 0 { plan.app.to_owned() } else { format!("{}-{index}", random.pick(SIDECARS)) };
    let repository = format!("{}/{name}", random.pick(REGISTRIES));
    let version = (random.between(1, 4), random.between(0, 30), random.between(0, 9));
    let image = format!("{repository}:v{}.{}.{}", version.0, version.1, version.2);
    let (cpu, memory) = (50 * random.between(1, 20), 64 << random.between(1, 5));
    // The shortest forms, as API servers store them.
    let cpu = if cpu == 1000 { "1".to_owned() } else { format!("{cpu}m") };
    let memory = if memory >= 1024 { format!("{}Gi", memory / 1024) } else { format!("{memory}Mi") };
    let mut spec = json!({
        "image": image,
        "name": name,
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    });
    spec["env"] = env(plan, index, random).into();
    if index == 0 && plan.health != PodHealth::Completed {
        let port = 8000 + random.between(0, 999);
        spec["ports"] = json!([{"containerPort": port, "protocol": "TCP"}]);
        if random.chance(70) {
            spec["readinessProbe"] = probe("/ready", port);
        }
        if random.chance(20) {
            spec["livenessProbe"] = probe("/live", port);
        }
    }
    if index == 0 && configured {
        push(&mut spec["volumeMounts"], json!({"mountPath": "/etc/config", "name": "config"}));
    }
    let runs = plan.health == PodHealth::Running;
    let mut status = json!({
        "containerID": format!("containerd://{{{{container-{index}}}}}"),
        "image": image,
        "imageID": format!("{repository}@sha256:{}", random.hex(64)),
        "name": name,
        "ready": runs,
        "restartCount": if plan.health == PodHealth::Crashing { random.between(5, 900) } else { 0 },
        "started": runs,
    });
    status["state"] = state(plan.health);
    (spec, status)
}

fn env(plan: &PodTemplateInputs<'_>, index: usize, random: &mut Random) -> Vec<Value> {
    let mut env = Vec::new();
    if index == 0 && random.chance(30) {
        let field = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}});
        env.push(json!({"name": "POD_NAME", "valueFrom": field}));
    }
    let first = random.between(0, 6) as usize;
    for (name, value) in SETTINGS.iter().cycle().skip(first).take(if random.chance(40) { 2 } else { 1 }) {
        let value = value.replace("{app}", plan.app).replace("{namespace}", plan.namespace);
        env.push(json!({"name": name, "value": value}));
    }
    if index == 0 && random.chance(20) {
        let secret = json!({"secretKeyRef": {"key": "password", "name": format!("{}-db", plan.app)}});
        env.push(json!({"name": "DATABASE_PASSWORD", "valueFrom": secret}));
    }
    env
}

fn state(health: PodHealth) -> Value {
    match health {
        PodHealth::Running => json!({"running": {"startedAt": "{{started}}"}}),
        PodHealth::Crashing => json!({"waiting": {
            "message": "back-off 5m0s restarting failed container",
            "reason": "CrashLoopBackOff",
        }}),
        PodHealth::Completed => json!({"terminated": {
            "exitCode": 0, "finishedAt": "{{ready}}", "reason": "Completed", "startedAt": "{{started}}",
        }}),
    }
}

fn probe(path: &str, port: u32) -> Value {
    json!({"failureThreshold": 3, "httpGet": {"path": path, "port": port}, "periodSeconds": 10})
}
