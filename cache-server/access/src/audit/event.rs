//! Audit records: one line of JSON for each stage of a request, as `audit.k8s.io/v1` Event.
//!
//! Source: apiserver `apis/audit/v1/types.go`, `audit/request.go`; apimachinery `net/http.go`, `meta/v1/micro_time.go`.

use std::{borrow::Cow, collections::BTreeMap, fmt, net::IpAddr};

use informer_serving::status::{Details, Reason, Status};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::level::{AuditLevel, AuditStage};
use crate::{request_info::ResourceAttributes, user::User};

/// Bytes of a User-Agent that are recorded, as in kube-apiserver.
const USER_AGENT_BYTES_MAX: usize = 1024;

/// Annotation with the outcome of the authorization: `allow` or `forbid`.
pub const DECISION: &str = "authorization.k8s.io/decision";

/// Annotation with the authorizer's reason.
pub const REASON: &str = "authorization.k8s.io/reason";

/// Annotation of a record from which bodies are missing that its level would have.
pub const TRUNCATED: &str = "audit.k8s.io/truncated";

/// Annotation of a record whose client left: `before-response` or `during-response`.
pub const CLIENT_LEFT: &str = "audit.cache-server/client-left";

/// Text of a record whose client left before the response, in kube-apiserver's words.
pub const CLOSED_EARLY: &str = "Connection closed early";

/// A record. Its JSON has the members of `audit.k8s.io/v1` Event in kube-apiserver's order.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent<'a> {
    /// Always `Event`.
    pub kind: &'static str,
    /// Always `audit.k8s.io/v1`.
    pub api_version: &'static str,
    /// Level of detail.
    pub level: AuditLevel,
    /// Identifier of the request, equal in all its records.
    #[serde(rename = "auditID")]
    pub audit_id: &'a str,
    /// Stage of the request.
    pub stage: AuditStage,
    /// Path and query, as sent.
    #[serde(rename = "requestURI")]
    pub request_uri: &'a str,
    /// Kubernetes verb, or the method in lower case.
    pub verb: &'a str,
    /// The caller; without members if its credentials were refused.
    pub user: &'a User,
    /// The identity that the caller requested, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<&'a User>,
    /// Addresses of proxies and clients, and last the address of the connection.
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[_]>::is_empty")]
    pub source_ips: &'a [IpAddr],
    /// User-Agent, cut by [`user_agent`].
    #[serde(skip_serializing_if = "str::is_empty")]
    pub user_agent: &'a str,
    /// The object or type; `None` for documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference<'a>>,
    /// The outcome; `None` before the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<&'a ResponseStatus>,
    /// Body of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_object: Option<&'a Value>,
    /// Body of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_object: Option<&'a Value>,
    /// Time at which the request arrived.
    pub request_received_timestamp: MicroTime,
    /// Time of the stage.
    pub stage_timestamp: MicroTime,
    /// More facts, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: &'a BTreeMap<&'static str, String>,
}

/// The object or type of a request.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
}

/// Identity of the object in the body of a create or update. Empty texts are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectIdentity {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Version that an update requires.
    pub resource_version: String,
}

impl<'a> ObjectReference<'a> {
    /// Refers to the resource of a request. The path takes precedence over `sent`, the identity in its body.
    #[must_use]
    pub fn new(of: &'a ResourceAttributes, sent: &'a ObjectIdentity) -> Self {
        let or = |in_path: &'a str, sent: &'a str| if in_path.is_empty() { sent } else { in_path };
        Self {
            resource: &of.resource,
            namespace: or(&of.namespace, &sent.namespace),
            name: or(&of.name, &sent.name),
            uid: &sent.uid,
            api_group: &of.group,
            api_version: &of.version,
            resource_version: &sent.resource_version,
            subresource: &of.subresource,
        }
    }
}

/// Outcome of a request: a Status without kind and apiVersion, and with the code also of a success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResponseStatus {
    metadata: Empty,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "Reason::is_unknown")]
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
}

/// `{}`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Empty {}

impl ResponseStatus {
    /// A response with `code` and without a Status.
    #[must_use]
    pub fn of_code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    /// A response with `code` whose body is `status`.
    #[must_use]
    pub fn of_status(code: u16, status: Status) -> Self {
        let Status { status, message, reason, details, .. } = status;
        Self { status, message, reason, details, code, ..Self::default() }
    }

    /// No response: the client left before it.
    #[must_use]
    pub fn closed_early() -> Self {
        // kube-apiserver records these as a success too.
        Self { status: "Success".to_owned(), message: CLOSED_EARLY.to_owned(), code: 200, ..Self::default() }
    }

    /// No response: the handler panicked.
    #[must_use]
    pub fn panicked() -> Self {
        Self {
            status: "Failure".to_owned(),
            message: "the handler panicked".to_owned(),
            reason: Reason::InternalError,
            code: 500,
            ..Self::default()
        }
    }
}

/// A time in microseconds since 1970, written in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroTime(pub i64);

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns year, month and day of a day since 1970. Counts in eras of 400 years whose years begin in March, so that a leap
/// day is the last of its year.
const fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_ERA: i64 = 146_097;
    const MARCH_OF_YEAR_0: i64 = 719_468;
    let days = days + MARCH_OF_YEAR_0;
    let (era, day) = (days.div_euclid(DAYS_OF_ERA), days.rem_euclid(DAYS_OF_ERA));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (year + 400 * era, month, day)
}

impl<'a> AuditEvent<'a> {
    /// A record without optional members.
    #[must_use]
    pub const fn new(
        level: AuditLevel,
        stage: AuditStage,
        audit_id: &'a str,
        user: &'a User,
        annotations: &'a BTreeMap<&'static str, String>,
        received: MicroTime,
    ) -> Self {
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level,
            audit_id,
            stage,
            request_uri: "",
            verb: "",
            user,
            impersonated_user: None,
            source_ips: &[],
            user_agent: "",
            object_ref: None,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: received,
            stage_timestamp: received,
            annotations,
        }
    }

    /// Returns the record as one line, with its end.
    ///
    /// # Panics
    /// Never: texts and numbers are JSON.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("texts and numbers are JSON");
        line.push(b'\n');
        line
    }
}

/// Returns the User-Agent as records have it.
#[must_use]
pub fn user_agent(text: &str) -> Cow<'_, str> {
    if text.len() <= USER_AGENT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    format!("{}...TRUNCATED", &text[..text.floor_char_boundary(USER_AGENT_BYTES_MAX)]).into()
}

/// Returns the addresses of proxies and clients, by `X-Forwarded-For` and `X-Real-Ip`, and last the address of the
/// connection. All but the last are chosen by the client.
#[must_use]
pub fn source_ips(forwarded_for: &str, real_ip: &str, remote: Option<IpAddr>) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = forwarded_for.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    if let Ok(real) = real_ip.parse()
        && !found.contains(&real)
    {
        found.push(real);
    }
    found.extend(remote.filter(|remote| found.last() != Some(remote)));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399_999_999, "2000-02-28T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (951_868_800_000_001, "2000-03-01T00:00:00.000001Z"),
            (1_709_251_199_000_000, "2024-02-29T23:59:59.000000Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(MicroTime(micros).to_string(), text);
        }
    }

    /// Goal: programs that read kube-apiserver's log read ours. Method: the members of one record, in order.
    #[test]
    fn a_record_is_a_line_in_the_order_of_kube_apiserver() {
        let user = User::authenticated("alice", []);
        let annotations = BTreeMap::from([(DECISION, "allow".to_owned()), (REASON, String::new())]);
        let of = ResourceAttributes {
            group: "apps".into(),
            version: "v1".into(),
            resource: "deployments".into(),
            namespace: "a".into(),
            ..ResourceAttributes::default()
        };
        let sent = ObjectIdentity { namespace: "other".into(), name: "b".into(), ..ObjectIdentity::default() };
        let (status, object) = (ResponseStatus::of_code(201), json!({"kind": "Deployment"}));
        let ips = source_ips("", "", "127.0.0.1".parse().ok());
        let event = AuditEvent {
            request_uri: "/apis/apps/v1/namespaces/a/deployments?x=1",
            verb: "create",
            source_ips: &ips,
            user_agent: "kubectl",
            object_ref: Some(ObjectReference::new(&of, &sent)),
            response_status: Some(&status),
            request_object: Some(&object),
            stage_timestamp: MicroTime(1),
            ..AuditEvent::new(
                AuditLevel::Request,
                AuditStage::ResponseComplete,
                "id",
                &user,
                &annotations,
                MicroTime(0),
            )
        };
        let line = String::from_utf8(event.line()).unwrap();
        let expected = concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"id","#,
            r#""stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/a/deployments?x=1","verb":"create","#,
            r#""user":{"username":"alice","groups":["system:authenticated"]},"sourceIPs":["127.0.0.1"],"#,
            r#""userAgent":"kubectl","objectRef":{"resource":"deployments","namespace":"a","name":"b","#,
            r#""apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"#,
            r#""requestObject":{"kind":"Deployment"},"#,
            r#""requestReceivedTimestamp":"1970-01-01T00:00:00.000000Z","#,
            r#""stageTimestamp":"1970-01-01T00:00:00.000001Z","#,
            r#""annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}"#,
            "\n"
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn sources_end_with_the_connection() {
        let remote: IpAddr = "10.0.0.9".parse().unwrap();
        for (forwarded, real, expected) in [
            ("", "", vec!["10.0.0.9"]),
            ("1.1.1.1, x, ::1", "", vec!["1.1.1.1", "::1", "10.0.0.9"]),
            ("1.1.1.1", "1.1.1.1", vec!["1.1.1.1", "10.0.0.9"]),
            ("1.1.1.1", "2.2.2.2", vec!["1.1.1.1", "2.2.2.2", "10.0.0.9"]),
            ("1.1.1.1,10.0.0.9", "", vec!["1.1.1.1", "10.0.0.9"]),
        ] {
            let found: Vec<String> = source_ips(forwarded, real, Some(remote)).iter().map(IpAddr::to_string).collect();
            assert_eq!(found, expected, "{forwarded} {real}");
        }
        assert!(source_ips("", "", None).is_empty());
    }

    #[test]
    fn long_user_agents_are_cut() {
        assert_eq!(user_agent("curl"), "curl");
        let cut = user_agent(&"ä".repeat(1_000)).into_owned();
        assert!(cut.len() < 1_040 && cut.ends_with("ä...TRUNCATED"), "{cut}");
    }
}
