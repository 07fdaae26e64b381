//! The rules that a user has, indexed by their values, for the comparison with rules that the user wants to grant.
//!
//! A combination of one verb, group, resource and name is covered if one held rule allows each of the four. The set of
//! such rules shrinks from list to list, so nothing is built for a combination but for those that are missing.

use std::collections::{BTreeSet, HashMap};

use super::RoleRule;

/// Held rules by the values that they list.
pub(super) struct HeldRules<'a> {
    verbs: RulesByValue<'a>,
    groups: RulesByValue<'a>,
    resources: RulesByValue<'a>,
    names: RulesByValue<'a>,
    /// By the whole pattern.
    paths: RulesByValue<'a>,
    /// By the text before the `*` at the end of a pattern.
    prefixes: RulesByValue<'a>,
    /// Lengths of these texts, of which few exist.
    prefix_lengths: BTreeSet<usize>,
    all: RuleSet,
    /// Rules for objects of any name.
    unnamed: RuleSet,
}

/// A set of held rules: one bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RuleSet(Vec<u64>);

/// The rules that list a value: by number while they are few, so that no look-up visits more than the words of a set.
enum ListingRules {
    Few(Vec<usize>),
    Many(RuleSet),
}

#[derive(Default)]
struct RulesByValue<'a>(HashMap<&'a str, ListingRules>);

impl RuleSet {
    fn none(rules: usize) -> Self {
        Self(vec![0; rules.div_ceil(64)])
    }

    fn insert(&mut self, rule: usize) {
        self.0[rule / 64] |= 1 << (rule % 64);
    }

    fn has(&self, rule: usize) -> bool {
        self.0[rule / 64] >> (rule % 64) & 1 == 1
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(own, other)| own & other != 0)
    }

    /// Returns those of its rules that list one of `values`.
    fn listing(&self, by: &RulesByValue<'_>, values: &[&str]) -> Self {
        let mut found = Self(vec![0; self.0.len()]);
        for listing in values.iter().filter_map(|value| by.0.get(value)) {
            match listing {
                ListingRules::Few(rules) => {
                    rules.iter().filter(|&&rule| self.has(rule)).for_each(|&rule| found.insert(rule));
                }
                ListingRules::Many(set) => {
                    for ((found, own), listing) in found.0.iter_mut().zip(&self.0).zip(&set.0) {
                        *found |= own & listing;
                    }
                }
            }
        }
        found
    }

    /// Returns true if one of its rules lists `value`.
    fn lists(&self, by: &RulesByValue<'_>, value: &str) -> bool {
        match by.0.get(value) {
            None => false,
            Some(ListingRules::Few(rules)) => rules.iter().any(|&rule| self.has(rule)),
            Some(ListingRules::Many(set)) => self.meets(set),
        }
    }
}

impl<'a> RulesByValue<'a> {
    /// Indexes the values of each rule.
    fn new<I: IntoIterator<Item = &'a str>>(rules: &'a [RoleRule], values: impl Fn(&'a RoleRule) -> I) -> Self {
        let mut by_value: HashMap<&str, Vec<usize>> = HashMap::new();
        for (rule, of) in rules.iter().enumerate() {
            for value in values(of) {
                let listing = by_value.entry(value).or_default();
                if listing.last() != Some(&rule) {
                    listing.push(rule);
                }
            }
        }
        let packed = |listing: Vec<usize>| {
            if listing.len() <= rules.len().div_ceil(64) {
                return ListingRules::Few(listing);
            }
            let mut set = RuleSet::none(rules.len());
            listing.into_iter().for_each(|rule| set.insert(rule));
            ListingRules::Many(set)
        };
        Self(by_value.into_iter().map(|(value, listing)| (value, packed(listing))).collect())
    }
}

/// Returns the text before the `*` at the end of a pattern of paths.
fn prefix(pattern: &str) -> Option<&str> {
    pattern.ends_with('*').then(|| pattern.trim_end_matches('*'))
}

impl<'a> HeldRules<'a> {
    /// Cost: one look-up for each value.
    pub(super) fn new(rules: &'a [RoleRule]) -> Self {
        fn texts(values: &[String]) -> impl Iterator<Item = &str> {
            values.iter().map(String::as_str)
        }
        let (mut all, mut unnamed) = (RuleSet::none(rules.len()), RuleSet::none(rules.len()));
        for (at, rule) in rules.iter().enumerate() {
            all.insert(at);
            if rule.resource_names.is_empty() {
                unnamed.insert(at);
            }
        }
        let prefixes = |rule: &'a RoleRule| texts(&rule.non_resource_urls).filter_map(prefix);
        Self {
            verbs: RulesByValue::new(rules, |rule| texts(&rule.verbs)),
            groups: RulesByValue::new(rules, |rule| texts(&rule.api_groups)),
            resources: RulesByValue::new(rules, |rule| texts(&rule.resources)),
            names: RulesByValue::new(rules, |rule| texts(&rule.resource_names)),
            paths: RulesByValue::new(rules, |rule| texts(&rule.non_resource_urls)),
            prefixes: RulesByValue::new(rules, prefixes),
            prefix_lengths: rules.iter().flat_map(prefixes).map(str::len).collect(),
            all,
            unnamed,
        }
    }

    fn with_group(&self, among: &RuleSet, group: &str) -> RuleSet {
        among.listing(&self.groups, &["*", group])
    }

    fn with_resource(&self, among: &RuleSet, resource: &str) -> RuleSet {
        let in_every = resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        among.listing(&self.resources, &["*", resource, in_every.as_deref().unwrap_or(resource)])
    }

    fn with_verb(&self, among: &RuleSet, verb: &str) -> RuleSet {
        among.listing(&self.verbs, &["*", verb])
    }

    /// A rule for certain names has no paths.
    fn with_path(&self, among: &RuleSet, path: &str) -> RuleSet {
        let mut found = among.listing(&self.paths, &[path]);
        // A length within a character is that of no prefix of the path.
        for prefix in self.prefix_lengths.range(..=path.len()).filter_map(|&length| path.get(..length)) {
            let matching = among.listing(&self.prefixes, &[prefix]);
            found.0.iter_mut().zip(matching.0).for_each(|(found, matching)| *found |= matching);
        }
        found.0.iter_mut().zip(&self.unnamed.0).for_each(|(found, unnamed)| *found &= unnamed);
        found
    }

    /// Returns true if one held rule covers all of `rule`. Cost: the values of `rule`, however many combinations they have.
    pub(super) fn covers_by_one(&self, rule: &RoleRule) -> bool {
        let verbs = rule.verbs.iter().fold(self.all.clone(), |among, verb| self.with_verb(&among, verb));
        let of_paths = rule.non_resource_urls.iter().fold(verbs.clone(), |among, path| self.with_path(&among, path));
        let among = rule.api_groups.iter().fold(verbs, |among, group| self.with_group(&among, group));
        let among = rule.resources.iter().fold(among, |among, resource| self.with_resource(&among, resource));
        let with_name = |among: RuleSet, name: &String| {
            let mut found = among.listing(&self.names, &[name]);
            let unnamed = among.0.iter().zip(&self.unnamed.0).map(|(among, unnamed)| among & unnamed);
            found.0.iter_mut().zip(unnamed).for_each(|(found, unnamed)| *found |= unnamed);
            found
        };
        let of_resources = match &*rule.resource_names {
            [] => among.meets(&self.unnamed),
            names => !names.iter().fold(among, with_name).is_empty(),
        };
        let is_of_resources = !rule.api_groups.is_empty() && !rule.resources.is_empty();
        (of_resources || !is_of_resources) && (rule.non_resource_urls.is_empty() || !of_paths.is_empty())
    }

    /// Calls `report` with each combination of `rule` that is not covered, until it returns false.
    pub(super) fn missing(&self, rule: &RoleRule, mut report: impl FnMut(RoleRule) -> bool) {
        for group in &rule.api_groups {
            let with_group = self.with_group(&self.all, group);
            for resource in &rule.resources {
                let with_resource = self.with_resource(&with_group, resource);
                let part = |verb: &String, names: Vec<String>| RoleRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names: names,
                    non_resource_urls: Vec::new(),
                };
                for verb in &rule.verbs {
                    let with_verb = self.with_verb(&with_resource, verb);
                    if with_verb.meets(&self.unnamed) {
                        continue;
                    }
                    if rule.resource_names.is_empty() && !report(part(verb, Vec::new())) {
                        return;
                    }
                    for name in rule.resource_names.iter().filter(|name| !with_verb.lists(&self.names, name)) {
                        if !report(part(verb, vec![name.clone()])) {
                            return;
                        }
                    }
                }
            }
        }
        for path in &rule.non_resource_urls {
            let with_path = self.with_path(&self.all, path);
            for verb in rule.verbs.iter().filter(|verb| self.with_verb(&with_path, verb).is_empty()) {
                let (verbs, non_resource_urls) = (vec![verb.clone()], vec![path.clone()]);
                if !report(RoleRule { verbs, non_resource_urls, ..RoleRule::default() }) {
                    return;
                }
            }
        }
    }
}
