//! Types that are served from the objects of another one, with other members.
//!
//! INVARIANT: such a type shares identifier, schema and etcd folder with the stored one, so that both have one cache and one
//! history. An object is converted where it is encoded for a reader, and where a write begins and ends: everything between
//! sees the members of the type in the request.
//!
//! Source: `pkg/apis/{events,autoscaling}/v1/conversion.go` of kubernetes/kubernetes 1.36.

mod autoscaling;

use std::sync::Arc;

use watch_cache::{Draft, Schema};

use super::{Object, ResourceType, table};

/// Converts between a type and the one that its objects are stored as.
#[derive(Debug)]
pub struct Conversion {
    kind: &'static str,
    api_version: &'static str,
    /// Pairs of a label in field selectors and the stored type's name of it.
    labels: &'static [(&'static str, &'static str)],
    /// Replaces the members of this type by those of the stored one. Annotations that do not fit it are dropped.
    pub to_stored: fn(&mut Object),
    /// Replaces the members of the stored type by those of this one.
    pub from_stored: fn(&mut Object),
}

impl Conversion {
    /// Returns the stored type's name of a label in field selectors.
    pub fn stored_label<'a>(&self, label: &'a str) -> &'a str {
        self.labels.iter().find(|(own, _)| *own == label).map_or(label, |(_, stored)| stored)
    }
}

impl watch_cache::Conversion for Conversion {
    fn convert(&self, stored: &[u8]) -> Option<Draft> {
        let mut object: Object = serde_json::from_slice(stored).ok()?;
        (self.from_stored)(&mut object);
        let (kind, api_version) = (self.kind.to_owned(), self.api_version.to_owned());
        let schema = Schema { kind, api_version, builtin: true, fields: Vec::new(), node_field: None };
        Draft::of_object(&schema, &object).ok()
    }
}

/// A type that is served from another one.
pub(super) struct ConvertedType {
    pub(super) group: table::Group,
    /// Group, version and plural of the stored type.
    pub(super) stored: (&'static str, &'static str, &'static str),
    conversion: &'static Conversion,
}

/// All of them.
pub(super) const CONVERTED: [ConvertedType; 2] = [
    ConvertedType {
        group: table::Group { name: "events.k8s.io", version: "v1", rows: &[] },
        stored: ("", "v1", "events"),
        conversion: &EVENTS,
    },
    ConvertedType {
        group: table::Group { name: "autoscaling", version: "v1", rows: &[] },
        stored: ("autoscaling", "v2", "horizontalpodautoscalers"),
        conversion: &autoscaling::CONVERSION,
    },
];

impl ConvertedType {
    /// Builds the type from the one that is stored.
    pub(super) fn ty(&self, stored: &Arc<ResourceType>) -> Option<ResourceType> {
        let of_stored = |group: &&table::Group| (group.name, group.version) == (&*stored.group, &*stored.version);
        let group = table::GROUPS.iter().find(of_stored)?;
        let row = group.rows.iter().find(|row| row.plural == stored.plural)?;
        let table::Group { name, version, .. } = self.group;
        Some(ResourceType {
            group: name.to_owned(),
            version: version.to_owned(),
            api_version: super::api_version(name, version),
            schema: Arc::clone(&stored.schema),
            field_labels: self.conversion.labels.iter().map(|(own, _)| (*own).to_owned()).collect(),
            conversion: Some(self.conversion),
            stored: Some(Arc::clone(stored)),
            ..ResourceType::built_in(group, row)
        })
    }
}

/// Events of `events.k8s.io`, whose objects are Events of the core group.
static EVENTS: Conversion = Conversion {
    kind: "Event",
    api_version: "events.k8s.io/v1",
    labels: &[
        ("regarding.kind", "involvedObject.kind"),
        ("regarding.namespace", "involvedObject.namespace"),
        ("regarding.name", "involvedObject.name"),
        ("regarding.uid", "involvedObject.uid"),
        ("regarding.apiVersion", "involvedObject.apiVersion"),
        ("regarding.resourceVersion", "involvedObject.resourceVersion"),
        ("regarding.fieldPath", "involvedObject.fieldPath"),
        ("reason", "reason"),
        ("reportingController", "reportingComponent"),
        ("type", "type"),
    ],
    to_stored: |event| {
        EVENT_MEMBERS.into_iter().for_each(|(own, stored)| rename(event, own, stored));
        // Go does not leave them out.
        for member in ["reportingComponent", "reportingInstance"] {
            event.entry(member).or_insert_with(|| "".into());
        }
    },
    from_stored: |event| {
        EVENT_MEMBERS.into_iter().for_each(|(own, stored)| rename(event, stored, own));
        for member in ["reportingController", "reportingInstance"] {
            if event.get(member).is_some_and(|text| text == "") {
                event.remove(member);
            }
        }
    },
};

/// The members of an Event that have another name in the core group.
const EVENT_MEMBERS: [(&str, &str); 7] = [
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
];

/// Renames a member. A value that has the new name already is lost: it is unknown to the type that is converted.
fn rename(object: &mut Object, from: &str, to: &str) {
    object.remove(to);
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::Registry, *};

    /// Goal: both types of each pair have one identity, and are found by their own names. Method: all pairs.
    #[test]
    fn a_converted_type_shares_the_identity_of_the_stored_one() {
        let registry = Registry::of_cluster();
        for (group, version, stored) in [("events.k8s.io", "v1", "v1"), ("autoscaling", "v1", "autoscaling/v2")] {
            let ty = registry.group(group, version).expect("is served").types.first().expect("a type").clone();
            let of_cache = registry.by_id(ty.id()).expect("is stored");
            assert_eq!((of_cache.api_version(), ty.kind.as_str()), (stored, of_cache.kind.as_str()));
            assert!(Arc::ptr_eq(&ty.schema, &of_cache.schema) && ty.is_swapped() && !of_cache.is_swapped());
            assert!(Arc::ptr_eq(ResourceType::stored_as(&ty), &of_cache));
            assert_eq!(crate::etcd::key_prefix(&ty), crate::etcd::key_prefix(&of_cache));
            assert!(Arc::ptr_eq(&ty, &registry.by_kind(ty.api_version(), &ty.kind).expect("by kind")));
        }
        assert!(Registry::builtin().group("events.k8s.io", "v1").is_none());
    }

    /// Goal: each member of an Event has its value in both groups. Method: an Event with all of them, there and back.
    #[test]
    fn events_keep_all_members() {
        let object = |value: &Value| value.as_object().expect("an object").clone();
        let core = json!({"metadata": {"name": "a"}, "involvedObject": {"kind": "Pod"}, "reason": "R", "message": "m",
            "source": {"component": "c"}, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:01Z",
            "count": 2, "type": "Normal", "eventTime": null, "series": {"count": 3}, "action": "A", "related": {"kind": "Node"},
            "reportingComponent": "rc", "reportingInstance": "ri"});
        let mut event = object(&core);
        (EVENTS.from_stored)(&mut event);
        let expected = json!({"metadata": {"name": "a"}, "regarding": {"kind": "Pod"}, "reason": "R", "note": "m",
            "deprecatedSource": {"component": "c"}, "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
            "deprecatedLastTimestamp": "2026-01-01T00:00:01Z", "deprecatedCount": 2, "type": "Normal", "eventTime": null,
            "series": {"count": 3}, "action": "A", "related": {"kind": "Node"}, "reportingController": "rc",
            "reportingInstance": "ri"});
        assert_eq!(Value::Object(event.clone()), expected);
        (EVENTS.to_stored)(&mut event);
        assert_eq!(Value::Object(event), core);
        let mut short = object(&json!({"metadata": {"name": "a"}, "message": "unknown to this group"}));
        (EVENTS.to_stored)(&mut short);
        assert_eq!(
            Value::Object(short.clone()),
            json!({"metadata": {"name": "a"}, "reportingComponent": "", "reportingInstance": ""})
        );
        (EVENTS.from_stored)(&mut short);
        assert_eq!(Value::Object(short), json!({"metadata": {"name": "a"}}));
    }
}
