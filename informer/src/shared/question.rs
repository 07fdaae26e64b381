//! Declarations compared by what they store: equal ones share a copy, and a wider copy can answer a narrower one.
//!
//! INVARIANT: a filter passes exactly the objects that the server would send for the narrower declaration, and skipped
//! objects that may be among them, so that no reader takes those for deleted.

use std::{any::TypeId, borrow::Cow, collections::BTreeSet, fmt, time::Duration};

use informer_core::{
    selector::field,
    store::{Entry, EntryFilter},
};

use crate::{
    readiness::{DeclaredObjects, name_of},
    representation::Representation,
    selection::Selection,
};

/// All settings that decide which objects a copy holds, and in which form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CopyQuestion {
    pub(crate) group_version_path: String,
    pub(crate) plural: String,
    pub(crate) selection: Selection,
    pub(crate) drop_paths: BTreeSet<String>,
    pub(crate) object_bytes_max: usize,
    /// The types of the transforms, in their order. Only the question of a copy that is not shared has a `None`.
    pub(crate) transforms: Vec<Option<TypeId>>,
    pub(crate) form: StoredForm,
}

/// The form in which objects are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct StoredForm {
    pub(crate) is_metadata: bool,
    pub(crate) representation: Representation,
    /// The type whose values are stored, if objects are stored decoded.
    pub(crate) decoded_to: Option<TypeId>,
    pub(crate) linger: Option<Duration>,
}

impl CopyQuestion {
    /// The questions about the objects of each watch.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Self> {
        self.selection.split().map(|selection| Self { selection, ..self.clone() })
    }

    /// Returns the filter that answers `self` from a copy of `wider`; `None` if the copy may lack an object or a field
    /// that the answer needs.
    pub(crate) fn filter_of(&self, wider: &Self) -> Option<EntryFilter> {
        let is_alike = self.group_version_path == wider.group_version_path
            && self.plural == wider.plural
            && self.drop_paths == wider.drop_paths
            && self.object_bytes_max == wider.object_bytes_max
            && self.transforms == wider.transforms
            && self.form == wider.form
            && self.form.linger.is_none();
        if !is_alike {
            return None;
        }
        // Without terms that hold for the wider copy's objects: they may not be readable here.
        let narrowed = self.selection.narrowed(&wider.selection)?;
        let is_readable = narrowed.parts().all(|(_, selectors)| {
            (selectors.labels.is_empty() || self.keeps("metadata.labels"))
                && selectors.fields.terms().iter().all(|term| self.reads(&term.field))
        });
        is_readable.then(|| {
            Box::new(move |entry: &Entry| {
                narrowed.of(entry.namespace()).is_some_and(|selectors| {
                    (entry.is_skipped() || selectors.labels.matches(|key| entry.label(key)))
                        && selectors.fields.terms().iter().all(|term| has_value(entry, term))
                })
            }) as EntryFilter
        })
    }

    /// Returns true if objects keep this path and all below it, as the server sent it.
    fn keeps(&self, path: &str) -> bool {
        if !self.transforms.is_empty() {
            return false;
        }
        let is_below = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
        !self.drop_paths.iter().any(|cut| cut == path || is_below(cut, path) || is_below(path, cut))
    }

    /// Returns true if the stored object shows this field as the server's selector sees it.
    fn reads(&self, field: &str) -> bool {
        match field {
            "metadata.name" | "metadata.namespace" => true,
            // A decoded object may lack the field, and would have to be serialized for each comparison.
            "spec.nodeName" => {
                let is_pod = self.group_version_path == "/api/v1" && self.plural == "pods";
                is_pod && !self.form.is_metadata && self.form.decoded_to.is_none() && self.keeps(field)
            }
            _ => false,
        }
    }
}

fn has_value(entry: &Entry, term: &field::Term) -> bool {
    let found: Option<Cow<'_, str>> = match term.field.as_str() {
        "metadata.name" => Some(Cow::Borrowed(entry.name())),
        "metadata.namespace" => Some(Cow::Borrowed(entry.namespace())),
        _ if entry.is_skipped() => return true,
        field => entry.field(field),
    };
    let is_equal = found.unwrap_or_default() == term.value;
    match term.op {
        field::Op::Eq => is_equal,
        field::Op::NotEq => !is_equal,
    }
}

impl From<&CopyQuestion> for DeclaredObjects {
    fn from(question: &CopyQuestion) -> Self {
        Self {
            resource: name_of(&question.group_version_path, &question.plural),
            namespaces: question.selection.namespaces(),
            labels: question.selection.labels(),
            fields: question.selection.fields(),
            shard: question.selection.shard(),
        }
    }
}

/// Names the objects: `namespace a, labels app=web`.
impl fmt::Display for CopyQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("namespace ", self.selection.namespaces().join(" or ")),
            ("labels ", self.selection.labels()),
            ("fields ", self.selection.fields()),
            ("shard ", self.selection.shard()),
        ];
        let shown: Vec<String> =
            parts.iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| format!("{name}{text}")).collect();
        f.write_str(&if shown.is_empty() { "all objects".to_owned() } else { shown.join(", ") })
    }
}

#[cfg(test)]
mod tests;
