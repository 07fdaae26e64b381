//! One rule and one request.
//!
//! Source: Kubernetes `pkg/apis/rbac/v1/evaluation_helpers.go`.

use super::RoleRule;
use crate::request_info::{RequestInfo, ResourceAttributes};

/// The attributes of a request that rules compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleRequest<'a> {
    verb: &'a str,
    target: RuleTarget<'a>,
    sketch: RuleSketch,
}

#[derive(Clone, Copy, Debug)]
enum RuleTarget<'a> {
    Resource(&'a ResourceAttributes),
    Path(&'a str),
}

impl<'a> RuleRequest<'a> {
    pub(crate) fn new(info: &'a RequestInfo) -> Self {
        let (target, targets) = match &info.resource {
            Some(resource) => (RuleTarget::Resource(resource), bit_of(&resource.resource, &resource.subresource)),
            None => (RuleTarget::Path(&info.path), bit_of(&info.path, "")),
        };
        Self { verb: &info.verb, target, sketch: RuleSketch { verbs: bit_of(&info.verb, ""), targets } }
    }

    /// Returns true if a rule with this sketch may allow the request.
    pub(crate) const fn may_match(&self, sketch: RuleSketch) -> bool {
        self.sketch.verbs & sketch.verbs != 0 && self.sketch.targets & sketch.targets != 0
    }
}

/// A necessary condition of a match: bits of the verbs and targets of rules. Skips most rules without reading them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleSketch {
    verbs: u64,
    targets: u64,
}

impl RuleSketch {
    /// Sketch of several rules: it may match if one of theirs may.
    pub(crate) fn of<'a>(rules: impl IntoIterator<Item = &'a RoleRule>) -> Self {
        let mut sketch = Self::default();
        for rule in rules {
            let bits =
                |text: &String| if text.starts_with('*') || text.ends_with('*') { u64::MAX } else { bit_of(text, "") };
            let targets = rule.resources.iter().chain(&rule.non_resource_urls);
            sketch.targets |= targets.map(bits).fold(0, |all, bits| all | bits);
            sketch.verbs |= rule.verbs.iter().map(bits).fold(0, |all, bits| all | bits);
        }
        sketch
    }
}

/// Returns one of 64 bits for a resource with its subresource, or for another text (FNV-1a).
fn bit_of(text: &str, subresource: &str) -> u64 {
    let slash = if subresource.is_empty() { "" } else { "/" };
    let bytes = text.bytes().chain(slash.bytes()).chain(subresource.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    1 << (hash >> 58)
}

impl RoleRule {
    /// Returns true if this rule allows the request.
    pub(crate) fn allows(&self, request: &RuleRequest<'_>) -> bool {
        has_or_all(&self.verbs, request.verb)
            && match request.target {
                RuleTarget::Resource(resource) => self.allows_resource(resource),
                RuleTarget::Path(path) => self.non_resource_urls.iter().any(|pattern| path_matches(pattern, path)),
            }
    }

    fn allows_resource(&self, of: &ResourceAttributes) -> bool {
        has_or_all(&self.api_groups, &of.group)
            && self.resources.iter().any(|resource| resource_matches(resource, of))
            && (self.resource_names.is_empty() || self.resource_names.contains(&of.name))
    }
}

fn has_or_all(values: &[String], requested: &str) -> bool {
    values.iter().any(|value| value == "*" || value == requested)
}

fn resource_matches(pattern: &str, of: &ResourceAttributes) -> bool {
    if pattern == "*" {
        return true;
    }
    if of.subresource.is_empty() {
        return pattern == of.resource;
    }
    let is_subresource = |rest: &str| rest.strip_prefix('/') == Some(&of.subresource);
    ["*", &of.resource].into_iter().any(|resource| pattern.strip_prefix(resource).is_some_and(is_subresource))
}

/// Returns true if a path has the form of a pattern: equal, or with its beginning if the pattern ends with `*`.
fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}
