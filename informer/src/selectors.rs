//! The forms in which builders accept a label selector: text, or kube's types.

use std::borrow::Cow;

use informer_core::selector::label::{ParseError, Selector};

/// A label selector in any of its forms: text such as `app in (web,api),!legacy`, a parsed
/// [`LabelSelector`](crate::LabelSelector), or kube's `Selector` and `Expression`.
///
/// kube's `Selector` has a `TryFrom` for the `LabelSelector` of API objects.
///
/// ```
/// # #[cfg(feature = "kube-5")] {
/// # use informer::IntoLabelSelector;
/// # use kube::core::Expression;
/// let typed = Expression::In("app".into(), ["web".into(), "api".into()].into()).into_label_selector()?;
/// assert_eq!(typed, "app in (api,web)".into_label_selector()?);
/// # }
/// # Ok::<(), informer::LabelSelectorError>(())
/// ```
pub trait IntoLabelSelector {
    /// Returns the parsed selector.
    ///
    /// # Errors
    /// [`LabelSelectorError`](crate::LabelSelectorError) if the text does not parse, or a key or value is not valid.
    fn into_label_selector(self) -> Result<Selector, ParseError>;
}

impl IntoLabelSelector for &str {
    fn into_label_selector(self) -> Result<Selector, ParseError> {
        Selector::parse(self)
    }
}

impl IntoLabelSelector for String {
    fn into_label_selector(self) -> Result<Selector, ParseError> {
        Selector::parse(&self)
    }
}

impl IntoLabelSelector for &String {
    fn into_label_selector(self) -> Result<Selector, ParseError> {
        Selector::parse(self)
    }
}

impl IntoLabelSelector for Cow<'_, str> {
    fn into_label_selector(self) -> Result<Selector, ParseError> {
        Selector::parse(&self)
    }
}

impl IntoLabelSelector for Selector {
    fn into_label_selector(self) -> Result<Selector, ParseError> {
        Ok(self)
    }
}

impl IntoLabelSelector for &Selector {
    fn into_label_selector(self) -> Result<Selector, ParseError> {
        Ok(self.clone())
    }
}
