//! Label selectors of kube's types.
//!
//! INVARIANT: a selector made of typed expressions has exactly these requirements, whatever text their values contain.

use informer_core::selector::label::{ParseError, Requirement, Selector};

use super::kube::core::{self, Expression};
use crate::selectors::IntoLabelSelector;

impl IntoLabelSelector for Expression {
    fn into_label_selector(self) -> Result<Selector, ParseError> {
        Selector::parse(&text_of(&self)?)
    }
}

impl IntoLabelSelector for core::Selector {
    fn into_label_selector(self) -> Result<Selector, ParseError> {
        let texts: Result<Vec<String>, ParseError> = self.into_iter().map(|expression| text_of(&expression)).collect();
        Selector::parse(&texts?.join(","))
    }
}

/// The text of one expression, which parses to exactly this requirement: a comma in a value would otherwise select
/// other objects without an error.
fn text_of(expression: &Expression) -> Result<String, ParseError> {
    let text = expression.to_string();
    let parsed = Selector::parse(&text)?;
    let mut requirements = parsed.requirements();
    match (requirements.next(), requirements.next()) {
        (Some(only), None) if is_of(only, expression) => Ok(text),
        _ => Err(ParseError(format!("not a label's key and values: {text}"))),
    }
}

fn is_of(requirement: Requirement<'_>, expression: &Expression) -> bool {
    let values = requirement.values();
    let (key, has_values) = match expression {
        Expression::In(key, expected) | Expression::NotIn(key, expected) => (key, values.eq(expected)),
        Expression::Equal(key, value) | Expression::NotEqual(key, value) => (key, values.eq([value])),
        Expression::Exists(key) | Expression::DoesNotExist(key) => (key, values.eq([""; 0])),
    };
    has_values && requirement.key() == key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_kube_are_their_requirements_and_nothing_else() {
        let of = |key: &str| key.to_owned();
        for (expression, text) in [
            (Expression::Equal(of("app"), of("web")), "app=web"),
            (Expression::Equal(of("app"), of("")), "app="),
            (Expression::NotEqual(of("app"), of("web")), "app!=web"),
            (Expression::In(of("app"), [of("web"), of("api")].into()), "app in (api,web)"),
            (Expression::NotIn(of("app"), [of("web")].into()), "app notin (web)"),
            (Expression::Exists(of("example.com/a")), "example.com/a"),
            (Expression::DoesNotExist(of("app")), "!app"),
        ] {
            assert_eq!(expression.into_label_selector().map(|parsed| parsed.to_string()), Ok(of(text)));
        }
        for expression in [
            Expression::Equal(of("app"), of("web,tier=db")),
            Expression::Equal(of("app"), of("=web")),
            Expression::Equal(of("app "), of("web")),
            Expression::In(of("app"), [of("web,api")].into()),
            Expression::In(of("app"), [].into()),
            Expression::Exists(of("app=web")),
            Expression::Exists(of("a,b")),
            Expression::Exists(of("!app")),
            Expression::DoesNotExist(of("")),
        ] {
            assert!(expression.clone().into_label_selector().is_err(), "{expression:?}");
        }
    }

    #[test]
    fn a_selector_of_kube_has_all_of_its_expressions() {
        let selector: core::Selector =
            [Expression::Exists("tier".into()), Expression::Equal("app".into(), "web".into())].into_iter().collect();
        let parsed = selector.into_label_selector().unwrap();
        assert_eq!(parsed.to_string(), "app=web,tier");
        assert!(core::Selector::default().into_label_selector().unwrap().is_empty());
    }
}
