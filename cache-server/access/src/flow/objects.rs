//! FlowSchema and PriorityLevelConfiguration, as read from their JSON in any version of `flowcontrol.apiserver.k8s.io`.
//!
//! INVARIANT: an object that is read satisfies kube-apiserver's validation, apart from the syntax of names: they are only
//! compared.
//!
//! Source: `pkg/apis/flowcontrol` (defaults, conversions and validation of v1.36).

use serde_json::Value;

use super::{
    dealer::{HASH_BITS_MAX, entropy_bits},
    fields::{FieldReader, FlowObjectError},
};

/// Group of both types.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Name of the priority level without limits, and of the schema that leads to it.
pub const EXEMPT: &str = "exempt";

/// Name of the schema that matches whatever no other one matches, and of its priority level.
pub const CATCH_ALL: &str = "catch-all";

/// Queues of one priority level: 64 bytes each. kube-apiserver allows 10 million.
pub const QUEUES_MAX: i32 = 10_000;

const SCHEMA_KIND: &str = "FlowSchema";
const LEVEL_KIND: &str = "PriorityLevelConfiguration";

/// One of both types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowObject {
    /// A FlowSchema.
    Schema(FlowSchema),
    /// A PriorityLevelConfiguration.
    Level(PriorityLevel),
}

/// A FlowSchema: which requests belong to a priority level, and which of them form one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSchema {
    /// Its name.
    pub name: String,
    /// Its uid; may be empty.
    pub uid: String,
    /// Rank among all schemas: the lowest that matches is used, and of equal ones the first by name.
    pub precedence: i32,
    /// Name of the priority level.
    pub level: String,
    /// Attribute that distinguishes flows; `None` if all requests are one flow.
    pub distinguisher: Option<Distinguisher>,
    /// A request matches if one of them does.
    pub rules: Vec<FlowRule>,
}

/// Attribute that distinguishes the flows of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// The name of the user.
    User,
    /// The namespace of the request.
    Namespace,
}

/// Matches requests of certain users for certain resources or paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// The users; one of them suffices.
    pub subjects: Vec<FlowSubject>,
    /// The requests for resources.
    pub resources: Vec<FlowResourceRule>,
    /// The other requests.
    pub paths: Vec<FlowPathRule>,
}

/// One or more users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowSubject {
    /// A user name, or `*`.
    User(String),
    /// A group, or `*`.
    Group(String),
    /// A service account, or all of a namespace.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name, or `*`.
        name: String,
    },
}

/// Texts that match: all, or those of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextSet {
    /// Every text.
    All,
    /// The texts of the list.
    These(Vec<String>),
}

/// Matches requests for resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowResourceRule {
    /// The verbs.
    pub verbs: TextSet,
    /// The API groups.
    pub groups: TextSet,
    /// The resources, with their subresource: `pods` or `pods/status`.
    pub resources: TextSet,
    /// The namespaces.
    pub namespaces: TextSet,
    /// True if requests without a namespace match too.
    pub cluster_scope: bool,
}

/// Matches requests for paths that lead to no resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPathRule {
    /// The verbs.
    pub verbs: TextSet,
    /// The paths: `/healthz` also matches whatever is below it.
    pub paths: TextSet,
}

/// A PriorityLevelConfiguration: a share of the server's seats, and what happens to requests that find none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityLevel {
    /// Its name.
    pub name: String,
    /// Its uid; may be empty.
    pub uid: String,
    /// Treatment of requests that find no seat.
    pub response: LimitResponse,
    /// Its part of the server's seats, relative to the sum of all levels.
    pub shares: i32,
    /// Percentage of its seats that other levels may borrow.
    pub lendable_percent: i32,
    /// Percentage of its seats that it may borrow from others; `None` means no limit.
    pub borrowing_percent: Option<i32>,
}

/// Treatment of requests that find no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitResponse {
    /// They need none.
    Exempt,
    /// They get 429.
    Reject,
    /// They wait in queues.
    Queue(QueueSettings),
}

/// Settings of the queues of a priority level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Number of queues.
    pub queues: u32,
    /// Number of queues that one flow may use.
    pub hand_size: u32,
    /// Requests that may wait in one queue.
    pub length_limit: u32,
}

impl FlowObject {
    /// Reads one object. `strict` refuses unknown fields, as for files; objects of an API server may be newer.
    ///
    /// # Errors
    /// [`FlowObjectError`] names the object and the first field that is wrong.
    pub fn read(value: &Value, strict: bool) -> Result<Self, FlowObjectError> {
        let member = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let metadata = |name: &str| {
            let value = value.get("metadata").and_then(|metadata| metadata.get(name));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (kind, name, uid) = (member("kind"), metadata("name"), metadata("uid"));
        let object = format!("{kind} {name:?}");
        let fields = FieldReader::root(&object, value, strict)?;
        fields.only(&["apiVersion", "kind", "metadata", "spec", "status"])?;
        if name.is_empty() {
            return Err(fields.error("metadata.name", "name or generateName is required"));
        }
        let version = member("apiVersion").strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
        let version = version.and_then(ObjectVersion::read);
        let version = version
            .ok_or_else(|| fields.error("apiVersion", format!("must be {GROUP}/v1, v1beta3, v1beta2 or v1beta1")))?;
        let spec = fields.object("spec")?.ok_or_else(|| fields.error("spec", "must not be empty"))?;
        match kind {
            SCHEMA_KIND => read_schema(name, uid, &spec).map(Self::Schema),
            LEVEL_KIND => {
                let version = if version == ObjectVersion::V1Beta3 && preserves_zero(value) {
                    ObjectVersion::V1
                } else {
                    version
                };
                read_level(name, uid, &spec, version).map(Self::Level)
            }
            _ => Err(fields.error("kind", format!("must be {SCHEMA_KIND} or {LEVEL_KIND}"))),
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Schema(schema) => &schema.name,
            Self::Level(level) => &level.name,
        }
    }
}

/// Versions that differ in a field or a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectVersion {
    V1,
    V1Beta3,
    /// v1beta1 and v1beta2.
    Assured,
}

impl ObjectVersion {
    fn read(version: &str) -> Option<Self> {
        match version {
            "v1" => Some(Self::V1),
            "v1beta3" => Some(Self::V1Beta3),
            "v1beta2" | "v1beta1" => Some(Self::Assured),
            _ => None,
        }
    }
}

/// Returns true if zero shares of a v1beta3 object mean zero, and not the default.
fn preserves_zero(value: &Value) -> bool {
    let annotations = value.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.is_some_and(|all| all.get("flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares").is_some())
}

fn read_schema(name: String, uid: String, spec: &FieldReader<'_>) -> Result<FlowSchema, FlowObjectError> {
    const PRECEDENCE: &str = "matchingPrecedence";
    spec.only(&["priorityLevelConfiguration", PRECEDENCE, "distinguisherMethod", "rules"])?;
    let precedence = spec.number(PRECEDENCE)?.filter(|&number| number != 0).unwrap_or(1_000);
    match precedence {
        ..=0 => return Err(spec.error(PRECEDENCE, "must be a positive value")),
        1 if name != EXEMPT => {
            return Err(spec.error(PRECEDENCE, "only the schema named 'exempt' may have matchingPrecedence 1"));
        }
        10_001.. => return Err(spec.error(PRECEDENCE, "must not be greater than 10000")),
        _ => {}
    }
    let level = match spec.object("priorityLevelConfiguration")? {
        Some(level) => {
            level.only(&["name"])?;
            level.text("name")?
        }
        None => "",
    };
    if level.is_empty() {
        return Err(spec.error("priorityLevelConfiguration.name", "must reference a priority level"));
    }
    let distinguisher = spec.object("distinguisherMethod")?.map(|method| {
        method.only(&["type"])?;
        match method.text("type")? {
            "ByUser" => Ok(Distinguisher::User),
            "ByNamespace" => Ok(Distinguisher::Namespace),
            _ => Err(method.error("type", "must be ByUser or ByNamespace")),
        }
    });
    let distinguisher = distinguisher.transpose()?;
    let rules = spec.objects("rules")?.iter().map(read_rule).collect::<Result<_, _>>()?;
    Ok(FlowSchema { name, uid, precedence, level: level.to_owned(), distinguisher, rules })
}

fn read_rule(rule: &FieldReader<'_>) -> Result<FlowRule, FlowObjectError> {
    rule.only(&["subjects", "resourceRules", "nonResourceRules"])?;
    let subjects: Vec<_> = rule.objects("subjects")?.iter().map(read_subject).collect::<Result<_, _>>()?;
    if subjects.is_empty() {
        return Err(rule.error("subjects", "subjects must contain at least one value"));
    }
    let resources: Vec<_> = rule.objects("resourceRules")?.iter().map(read_resource_rule).collect::<Result<_, _>>()?;
    let paths: Vec<_> = rule.objects("nonResourceRules")?.iter().map(read_path_rule).collect::<Result<_, _>>()?;
    if resources.is_empty() && paths.is_empty() {
        return Err(rule.error("", "at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    Ok(FlowRule { subjects, resources, paths })
}

fn read_subject(subject: &FieldReader<'_>) -> Result<FlowSubject, FlowObjectError> {
    subject.only(&["kind", "user", "group", "serviceAccount"])?;
    let kind = subject.text("kind")?;
    let member = match kind {
        "User" => "user",
        "Group" => "group",
        "ServiceAccount" => "serviceAccount",
        _ => return Err(subject.error("kind", "must be User, Group or ServiceAccount")),
    };
    if let Some(other) =
        ["user", "group", "serviceAccount"].into_iter().find(|name| *name != member && subject.has(name))
    {
        return Err(subject.error(other, format!("{other} is forbidden when subject kind is '{kind}'")));
    }
    let named = subject.object(member)?;
    let named =
        named.ok_or_else(|| subject.error(member, format!("{member} is required when subject kind is '{kind}'")))?;
    let required = |field: &str| match named.text(field)? {
        "" => Err(named.error(field, "must not be empty")),
        text => Ok(text.to_owned()),
    };
    if member == "serviceAccount" {
        named.only(&["namespace", "name"])?;
        return Ok(FlowSubject::ServiceAccount { namespace: required("namespace")?, name: required("name")? });
    }
    named.only(&["name"])?;
    Ok(if member == "user" { FlowSubject::User(required("name")?) } else { FlowSubject::Group(required("name")?) })
}

fn read_resource_rule(rule: &FieldReader<'_>) -> Result<FlowResourceRule, FlowObjectError> {
    rule.only(&["verbs", "apiGroups", "resources", "namespaces", "clusterScope"])?;
    let (verbs, groups) = (read_verbs(rule)?, read_texts(rule, "apiGroups")?);
    let resources = read_texts(rule, "resources")?;
    let cluster_scope = rule.flag("clusterScope")?;
    let namespaces = match rule.texts("namespaces")? {
        none if none.is_empty() && cluster_scope => TextSet::These(none),
        namespaces => text_set(rule, "namespaces", namespaces)?,
    };
    Ok(FlowResourceRule { verbs, groups, resources, namespaces, cluster_scope })
}

fn read_path_rule(rule: &FieldReader<'_>) -> Result<FlowPathRule, FlowObjectError> {
    const PATHS: &str = "nonResourceURLs";
    rule.only(&["verbs", PATHS])?;
    let (verbs, paths) = (read_verbs(rule)?, read_texts(rule, PATHS)?);
    let texts = match &paths {
        TextSet::All => &[],
        TextSet::These(texts) => &texts[..],
    };
    for (at, path) in texts.iter().enumerate() {
        if let Some(problem) = path_problem(path) {
            return Err(rule.error(&format!("{PATHS}[{at}]"), problem));
        }
    }
    Ok(FlowPathRule { verbs, paths })
}

fn path_problem(path: &str) -> Option<&'static str> {
    match path {
        "" => Some("must not be empty"),
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if path.strip_suffix("/*").unwrap_or(path).contains('*') => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

fn read_verbs(rule: &FieldReader<'_>) -> Result<TextSet, FlowObjectError> {
    let verbs = read_texts(rule, "verbs")?;
    match &verbs {
        TextSet::These(texts) if !texts.iter().all(|verb| VERBS.contains(&verb.as_str())) => {
            Err(rule.error("verbs", format!("must be '*' or among {}", VERBS.join(", "))))
        }
        TextSet::These(_) | TextSet::All => Ok(verbs),
    }
}

fn read_texts(rule: &FieldReader<'_>, name: &str) -> Result<TextSet, FlowObjectError> {
    text_set(rule, name, rule.texts(name)?)
}

fn text_set(rule: &FieldReader<'_>, name: &str, texts: Vec<String>) -> Result<TextSet, FlowObjectError> {
    match &texts[..] {
        [] => Err(rule.error(name, format!("{name} must contain at least one value"))),
        [all] if all == "*" => Ok(TextSet::All),
        more if more.iter().any(|text| text == "*") => {
            Err(rule.error(name, format!("if '*' is present, must not specify other {name}")))
        }
        _ => Ok(TextSet::These(texts)),
    }
}

fn read_level(
    name: String,
    uid: String,
    spec: &FieldReader<'_>,
    version: ObjectVersion,
) -> Result<PriorityLevel, FlowObjectError> {
    spec.only(&["type", "limited", "exempt"])?;
    let kind = spec.text("type")?;
    if (name == EXEMPT) != (kind == "Exempt") {
        return Err(spec.error("type", "must be 'Exempt' if and only if `name` is 'exempt'"));
    }
    match kind {
        "Exempt" if spec.has("limited") => Err(spec.error("limited", "must be nil if the type is not Limited")),
        "Exempt" => {
            let exempt = spec.object("exempt")?;
            let number = |field: &str| match &exempt {
                Some(exempt) => exempt.number(field),
                None => Ok(None),
            };
            let (shares, lendable) = (number("nominalConcurrencyShares")?, number("lendablePercent")?);
            if let Some(exempt) = &exempt {
                exempt.only(&["nominalConcurrencyShares", "lendablePercent"])?;
                check_shares(exempt, "nominalConcurrencyShares", shares)?;
                check_percent(exempt, lendable)?;
            }
            let (shares, lendable_percent) = (shares.unwrap_or(0), lendable.unwrap_or(0));
            let response = LimitResponse::Exempt;
            Ok(PriorityLevel { name, uid, response, shares, lendable_percent, borrowing_percent: None })
        }
        "Limited" if spec.has("exempt") => Err(spec.error("exempt", "must be nil if the type is Limited")),
        "Limited" => {
            let limited = spec.object("limited")?;
            let limited = limited.ok_or_else(|| spec.error("limited", "must not be empty when type is Limited"))?;
            read_limited(name, uid, &limited, version)
        }
        _ => Err(spec.error("type", "must be Exempt or Limited")),
    }
}

fn read_limited(
    name: String,
    uid: String,
    limited: &FieldReader<'_>,
    version: ObjectVersion,
) -> Result<PriorityLevel, FlowObjectError> {
    let field = match version {
        ObjectVersion::V1 | ObjectVersion::V1Beta3 => "nominalConcurrencyShares",
        ObjectVersion::Assured => "assuredConcurrencyShares",
    };
    limited.only(&[field, "lendablePercent", "borrowingLimitPercent", "limitResponse"])?;
    // Before v1, zero means the default.
    let given = limited.number(field)?.filter(|&shares| shares != 0 || version == ObjectVersion::V1);
    check_shares(limited, field, given)?;
    let lendable = limited.number("lendablePercent")?;
    check_percent(limited, lendable)?;
    let borrowing_percent = limited.number("borrowingLimitPercent")?;
    check_shares(limited, "borrowingLimitPercent", borrowing_percent)?;
    let response = limited.object("limitResponse")?;
    let response = response.ok_or_else(|| limited.error("limitResponse.type", "must be Queue or Reject"))?;
    let response = read_response(&response)?;
    let (shares, lendable_percent) = (given.unwrap_or(30), lendable.unwrap_or(0));
    Ok(PriorityLevel { name, uid, response, shares, lendable_percent, borrowing_percent })
}

fn check_shares(fields: &FieldReader<'_>, name: &str, shares: Option<i32>) -> Result<(), FlowObjectError> {
    match shares {
        Some(..0) => Err(fields.error(name, "must be a non-negative integer")),
        _ => Ok(()),
    }
}

fn check_percent(fields: &FieldReader<'_>, percent: Option<i32>) -> Result<(), FlowObjectError> {
    match percent {
        Some(..0 | 101..) => Err(fields.error("lendablePercent", "must be between 0 and 100, inclusive")),
        _ => Ok(()),
    }
}

fn read_response(response: &FieldReader<'_>) -> Result<LimitResponse, FlowObjectError> {
    response.only(&["type", "queuing"])?;
    let queuing = response.object("queuing")?;
    match (response.text("type")?, queuing) {
        ("Reject", None) => Ok(LimitResponse::Reject),
        ("Reject", Some(_)) => Err(response.error("queuing", "must be nil if type is not Queue")),
        ("Queue", Some(queuing)) => read_queuing(&queuing).map(LimitResponse::Queue),
        ("Queue", None) => Err(response.error("queuing", "must not be empty if type is Queue")),
        _ => Err(response.error("type", "must be Queue or Reject")),
    }
}

fn read_queuing(queuing: &FieldReader<'_>) -> Result<QueueSettings, FlowObjectError> {
    queuing.only(&["queues", "handSize", "queueLengthLimit"])?;
    let number = |name: &str, default: i32| {
        let number = queuing.number(name)?.filter(|&number| number != 0).unwrap_or(default);
        u32::try_from(number).map_err(|_| queuing.error(name, "must be positive"))
    };
    let (queues, hand_size) = (number("queues", 64)?, number("handSize", 8)?);
    let length_limit = number("queueLengthLimit", 50)?;
    if queues > QUEUES_MAX.unsigned_abs() {
        return Err(queuing.error("queues", format!("must not be greater than {QUEUES_MAX}")));
    }
    if hand_size > queues {
        return Err(queuing.error("handSize", format!("should not be greater than queues ({queues})")));
    }
    if entropy_bits(queues, hand_size) > HASH_BITS_MAX {
        let problem = format!(
            "required entropy bits of deckSize {queues} and handSize {hand_size} should not be greater than 60"
        );
        return Err(queuing.error("handSize", problem));
    }
    Ok(QueueSettings { queues, hand_size, length_limit })
}

#[cfg(test)]
mod tests;
