//! Columns of workload types: controllers of pods, jobs, revisions and disruption budgets.

use watch_cache::form::human_duration;

use super::{
    TypeColumns,
    column::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, boolean, integer, text},
    created,
    json::CellJson,
    labels, name,
    pods::is_met,
    row::RowWriter,
};

pub(crate) const KINDS: &[TypeColumns] = &[
    TypeColumns {
        id: "podtemplates",
        columns: &[
            NAME,
            text("Containers", "Names of the template's containers."),
            text("Images", "Images of the template's containers."),
            text("Pod Labels", "Labels of its pods."),
        ],
        print: |object, row| {
            row.text(name(object));
            containers(object.get("template"), row).text(&labels::map(object.at("template.metadata.labels")));
        },
    },
    TypeColumns {
        id: "replicationcontrollers",
        columns: REPLICAS,
        print: |object, row| {
            replicas(object, row);
            row.text(&labels::map(object.at("spec.selector")));
        },
    },
    TypeColumns {
        id: "replicasets.apps",
        columns: REPLICAS,
        print: |object, row| {
            replicas(object, row);
            row.text(&labels::selector(object.at("spec.selector")));
        },
    },
    TypeColumns {
        id: "deployments.apps",
        columns: &[
            NAME,
            READY,
            text("Up-to-date", "Number of pods with the latest template."),
            text("Available", "Number of pods that have been ready for the minimum time."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        print: deployment,
    },
    TypeColumns {
        id: "statefulsets.apps",
        columns: &[NAME, READY, AGE, CONTAINERS, IMAGES],
        print: |object, row| {
            let ready = object.at("status.readyReplicas").integer();
            row.text(name(object)).write(format_args!("{ready}/{}", desired(object))).age(created(object));
            containers(object.at("spec.template"), row);
        },
    },
    TypeColumns {
        id: "daemonsets.apps",
        columns: &[
            NAME,
            integer("Desired", "Number of nodes that should run a pod of the set."),
            integer("Current", "Number of nodes that run a pod of the set."),
            integer("Ready", "Number of nodes with a ready pod."),
            integer("Up-to-date", "Number of nodes with a pod of the latest template."),
            integer("Available", "Number of nodes with a pod that has been ready for the minimum time."),
            text("Node Selector", "Labels of the nodes that run its pods."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        print: daemon_set,
    },
    TypeColumns {
        id: "jobs.batch",
        columns: &[
            NAME,
            text("Status", "Status of the job."),
            text("Completions", "Number of successful pods, and of required ones."),
            text("Duration", "Duration of the job so far, or until its end."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        print: job,
    },
    TypeColumns {
        id: "cronjobs.batch",
        columns: &[
            NAME,
            text("Schedule", "Schedule of its jobs, in cron format."),
            text("Timezone", "Time zone of the schedule."),
            boolean("Suspend", "True if no further jobs are started."),
            integer("Active", "Number of running jobs."),
            text("Last Schedule", "Time since it last started a job."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        print: cron_job,
    },
    TypeColumns {
        id: "controllerrevisions.apps",
        columns: &[
            NAME,
            text("Controller", "Owner of this revision."),
            text("Revision", "Number of the revision."),
            AGE,
        ],
        print: controller_revision,
    },
    TypeColumns {
        id: "poddisruptionbudgets.policy",
        columns: &[
            NAME,
            text("Min Available", "Minimum number or share of available pods."),
            text("Max Unavailable", "Maximum number or share of unavailable pods."),
            integer("Allowed Disruptions", "Number of pods that may be disrupted now."),
            AGE,
        ],
        print: |object, row| {
            let given = |path: &str| object.at(path).plain_or("N/A");
            row.text(name(object)).text(&given("spec.minAvailable")).text(&given("spec.maxUnavailable"));
            row.integer(object.at("status.disruptionsAllowed").integer()).age(created(object));
        },
    },
];

/// Columns of `…/{name}/scale`, which is no type of its own.
pub(crate) const SCALE: TypeColumns = TypeColumns {
    id: "",
    columns: &[
        NAME,
        integer("Desired", "Number of desired pods."),
        integer("Available", "Number of existing pods."),
        AGE,
    ],
    print: |object, row| {
        row.text(name(object)).integer(object.at("spec.replicas").integer());
        row.integer(object.at("status.replicas").integer()).age(created(object));
    },
};

const READY: super::Column = text("Ready", "Number of ready pods, and of desired pods.");

const REPLICAS: &[super::Column] = &[
    NAME,
    integer("Desired", "Number of desired pods."),
    integer("Current", "Number of existing pods."),
    integer("Ready", "Number of ready pods."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

/// Writes all cells except the selector.
fn replicas(object: &CellJson<'_>, row: &mut RowWriter) {
    let status = object.get("status");
    row.text(name(object)).integer(desired(object)).integer(status.get("replicas").integer());
    row.integer(status.get("readyReplicas").integer()).age(created(object));
    containers(object.at("spec.template"), row);
}

/// Returns the wanted replicas. kube-apiserver defaults them to one.
fn desired(object: &CellJson<'_>) -> i64 {
    let spec = object.get("spec");
    spec.get("replicas").as_integer().unwrap_or_else(|| i64::from(!spec.is_null()))
}

fn deployment(object: &CellJson<'_>, row: &mut RowWriter) {
    let status = object.get("status");
    let ready = status.get("readyReplicas").integer();
    row.text(name(object)).write(format_args!("{ready}/{}", desired(object)));
    row.integer(status.get("updatedReplicas").integer()).integer(status.get("availableReplicas").integer());
    row.age(created(object));
    let selector = labels::text(object.at("spec.selector"));
    containers(object.at("spec.template"), row).text(selector.as_deref().unwrap_or("<invalid>"));
}

fn daemon_set(object: &CellJson<'_>, row: &mut RowWriter) {
    row.text(name(object));
    for count in
        ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"]
    {
        row.integer(object.get("status").get(count).integer());
    }
    row.text(&labels::map(object.at("spec.template.spec.nodeSelector"))).age(created(object));
    containers(object.at("spec.template"), row).text(&labels::selector(object.at("spec.selector")));
}

fn job(object: &CellJson<'_>, row: &mut RowWriter) {
    let (spec, status) = (object.get("spec"), object.get("status"));
    row.text(name(object)).text(if is_met(status, "Complete") {
        "Complete"
    } else if is_met(status, "Failed") {
        "Failed"
    } else if !object.at("metadata.deletionTimestamp").is_null() {
        "Terminating"
    } else if is_met(status, "Suspended") {
        "Suspended"
    } else if is_met(status, "FailureTarget") {
        "FailureTarget"
    } else {
        "Running"
    });
    let done = status.get("succeeded").integer();
    match (spec.get("completions").as_integer(), spec.get("parallelism").integer()) {
        (Some(completions), _) => row.write(format_args!("{done}/{completions}")),
        (_, parallelism @ 2..) => row.write(format_args!("{done}/1 of {parallelism}")),
        _ => row.write(format_args!("{done}/1")),
    };
    match (status.get("startTime").time(), status.get("completionTime").time()) {
        (None, _) => row.text(""),
        (Some(start), None) => row.age(Some(start)),
        // `human_duration` needs no escaping.
        (Some(start), Some(end)) => row.escaped(&human_duration(end.saturating_sub(start))),
    };
    row.age(created(object));
    containers(spec.get("template"), row).text(&labels::selector(spec.get("selector")));
}

fn cron_job(object: &CellJson<'_>, row: &mut RowWriter) {
    let (spec, status) = (object.get("spec"), object.get("status"));
    row.text(name(object)).text(spec.get("schedule").text()).text(spec.get("timeZone").as_text().unwrap_or("<none>"));
    row.text(if spec.get("suspend").is_true() { "True" } else { "False" });
    row.integer(count(status.get("active")));
    match status.get("lastScheduleTime").time() {
        Some(last) => row.age(Some(last)),
        None => row.text("<none>"),
    };
    row.age(created(object));
    let template = spec.at("jobTemplate.spec");
    containers(template.get("template"), row).text(&labels::selector(template.get("selector")));
}

fn controller_revision(object: &CellJson<'_>, row: &mut RowWriter) {
    row.text(name(object));
    let owners = object.at("metadata.ownerReferences").items();
    match owners.iter().find(|owner| owner.get("controller").is_true()) {
        None => row.text("<none>"),
        Some(owner) => {
            let kind = owner.get("kind").text().to_lowercase();
            let group = owner
                .get("apiVersion")
                .text()
                .split_once('/')
                .map_or(String::new(), |(group, _)| format!(".{}", group.to_lowercase()));
            row.write(format_args!("{kind}{group}/{}", owner.get("name").text()))
        }
    };
    row.integer(object.get("revision").integer()).age(created(object));
}

/// Writes the names and images of a template's containers.
fn containers<'r>(template: &CellJson<'_>, row: &'r mut RowWriter) -> &'r mut RowWriter {
    let containers = template.at("spec.containers").items();
    for field in ["name", "image"] {
        let texts: Vec<&str> = containers.iter().map(|container| container.get(field).text()).collect();
        row.text(&texts.join(","));
    }
    row
}

/// Returns the number of items or members.
pub(crate) fn count(value: &CellJson<'_>) -> i64 {
    i64::try_from(value.items().len().max(value.members().len())).unwrap_or(i64::MAX)
}
