//! Goal: selectors are accepted, printed, matched and refused as by kube-apiserver. Method: tables, and random
//! selectors.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Labels = BTreeMap<String, String>;

fn matches(selector: &str, labels: &Labels) -> bool {
    Selector::parse(selector).unwrap().matches(|key| labels.get(key).map(|value| Cow::from(value.as_str())))
}

/// Parses `a=1,b` to a label `a` with `1` and a label `b` with an empty value.
fn labels(text: &str) -> Labels {
    text.split_terminator(',')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn canonical_text_is_what_kubernetes_prints() {
    for (text, expected) in [
        ("", ""),
        (" \t\r\n", ""),
        ("a", "a"),
        ("!a", "!a"),
        ("! a", "!a"),
        ("a=b", "a=b"),
        (" a\t== b ", "a==b"),
        ("a != b", "a!=b"),
        ("a=", "a="),
        ("a=,b=", "a=,b="),
        ("z,y=1,x in (b, a ,b)", "x in (a,b),y=1,z"),
        ("a notin(c,b)", "a notin (b,c)"),
        ("a in ()", "a in ()"),
        ("a in (,)", "a in ()"),
        ("a in (,x)", "a in (,x)"),
        ("a in (x,)", "a in (,x)"),
        ("a in (x,,y)", "a in (,x,y)"),
        ("a>5,b<07", "a>5,b<07"),
        ("in", "in"),
        ("!notin", "!notin"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("notin=in", "notin=in"),
        ("k8s.io/app=web", "k8s.io/app=web"),
        ("a=1,a=2", "a=1,a=2"),
        // A NUL byte ends the text.
        ("\0a", ""),
    ] {
        assert_eq!(Selector::parse(text).unwrap().to_string(), expected, "{text:?}");
    }
    assert!(Selector::parse("").unwrap().is_empty());
    // ... but inside an identifier it ends only that identifier.
    assert!(Selector::parse("a\0b").is_err());
}

#[test]
fn requirements_match_as_in_kubernetes() {
    for (selector, hits, misses) in [
        ("", &["", "a=1"][..], &[][..]),
        ("a", &["a=1", "a"], &["", "b=1"]),
        ("!a", &["", "b=1"], &["a=1", "a"]),
        ("a=1", &["a=1"], &["", "a=2", "a", "b=1"]),
        ("a==1", &["a=1"], &["", "a=2"]),
        ("a=", &["a"], &["", "a=1"]),
        // Absent keys satisfy the negations.
        ("a!=1", &["", "a=2", "a"], &["a=1"]),
        ("a notin (1,2)", &["", "a=3"], &["a=1", "a=2"]),
        ("a notin ()", &["", "a=1"], &["a"]),
        ("a in (1,2)", &["a=1", "a=2"], &["", "a=3", "a=12"]),
        ("a in ()", &["a"], &["", "a=1"]),
        ("a>5", &["a=6", "a=9223372036854775807"], &["", "a=5", "a=x", "a", "a=9223372036854775808"]),
        ("a<5", &["a=4", "a=-1", "a=+4"], &["", "a=5", "a=x", "a=4.0"]),
        ("a,b=2,!c", &["a=1,b=2"], &["a=1", "b=2", "a=1,b=2,c"]),
        ("a=1,a=2", &[], &["a=1", "a=2"]),
        ("example.com/a=1", &["example.com/a=1"], &["a=1"]),
    ] {
        for (texts, expected) in [(hits, true), (misses, false)] {
            for text in texts {
                assert_eq!(matches(selector, &labels(text)), expected, "{selector} on {text}");
            }
        }
    }
}

#[test]
fn requirements_can_be_read() {
    let selector = Selector::parse("b in (y,x),a").unwrap();
    let read: Vec<_> = selector
        .requirements()
        .map(|requirement| (requirement.key(), requirement.operator(), requirement.values().collect::<Vec<_>>()))
        .collect();
    assert_eq!(read, [("a", Operator::Exists, vec![]), ("b", Operator::In, vec!["x", "y"])]);
}

/// Goal: a selector's memory is close to the size of its text. Method: the longest ones that fit a request.
#[test]
fn a_long_selector_costs_its_text_and_little_more() {
    let many: Vec<String> = (0..9_000).map(|n| format!("a{n:04}")).collect();
    let values = (0..9_000).map(|n| format!("v{n:04}")).collect::<Vec<_>>().join(",");
    for text in [many.join(","), format!("!{}", many.join(",!")), format!("a in ({values})")] {
        let selector = Selector::parse(&text).unwrap();
        assert_eq!(selector.to_string(), text);
        let known = selector.requirements.as_ref().unwrap();
        let bytes = known.text.len() + size_of_val(&*known.places);
        assert!(bytes < 3 * text.len(), "{bytes} bytes for {}", text.len());
    }
}

#[test]
fn syntax_errors_have_the_api_servers_words() {
    for (text, expected) in [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a in (b) c", "found 'c', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("a=)", "unable to parse requirement: found ')', expected: identifier"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a IN (b)", "unable to parse requirement: found 'IN', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a notin", "unable to parse requirement: found '' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a in (,,)", "unable to parse requirement: found ')', expected: ',', or identifier"),
    ] {
        assert_eq!(Selector::parse(text), Err(ParseError(expected.into())), "{text}");
    }
}

#[test]
fn bad_keys_and_values_have_the_api_servers_words() {
    let name = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                 for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                     must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let (long, longer) = ("x".repeat(64), "x".repeat(254));
    let number = "for 'Gt', 'Lt' operators, the value must be an integer";
    for (text, expected) in [
        ("a=$$".to_owned(), format!("values[0][a]: Invalid value: \"$$\": {value}")),
        (format!("a={long}"), format!("values[0][a]: Invalid value: \"{long}\": must be no more than 63 bytes")),
        (
            "a in (ok,-,_)".to_owned(),
            format!("[values[0][a]: Invalid value: \"-\": {value}, values[1][a]: Invalid value: \"_\": {value}]"),
        ),
        ("a>x".to_owned(), format!("values[0]: Invalid value: \"x\": {number}")),
        ("a<".to_owned(), format!("values[0]: Invalid value: \"\": {number}")),
        (
            "a<$".to_owned(),
            format!("[values[0]: Invalid value: \"$\": {number}, values[0][a]: Invalid value: \"$\": {value}]"),
        ),
        ("-a".to_owned(), format!("<nil>: Invalid value: \"-a\": name part {name}")),
        (format!("!{long}"), format!("<nil>: Invalid value: \"{long}\": name part must be no more than 63 bytes")),
        ("x/".to_owned(), format!("<nil>: Invalid value: \"x/\": name part must be non-empty; name part {name}")),
        ("/a".to_owned(), "<nil>: Invalid value: \"/a\": prefix part must be non-empty".to_owned()),
        ("A/a".to_owned(), format!("<nil>: Invalid value: \"A/a\": prefix part {subdomain}")),
        ("a..b/a".to_owned(), format!("<nil>: Invalid value: \"a..b/a\": prefix part {subdomain}")),
        (
            format!("{longer}/a"),
            format!("<nil>: Invalid value: \"{longer}/a\": prefix part must be no more than 253 bytes"),
        ),
        (
            "a/b/c".to_owned(),
            format!(
                "<nil>: Invalid value: \"a/b/c\": a qualified name {name} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            ),
        ),
    ] {
        let expected = ParseError(format!("unable to parse requirement: {expected}"));
        assert_eq!(Selector::parse(&text), Err(expected), "{text}");
    }
}

fn requirement() -> impl Strategy<Value = String> {
    let key = prop_oneof!["[a-c]", Just("in".to_owned()), Just("notin".to_owned()), "[a-b]\\.io/[a-c]"];
    let value = prop_oneof!["[1-4x]{0,2}", Just("in".to_owned())];
    let space = "[ \t]{0,2}";
    prop_oneof![
        (key.clone(), space).prop_map(|(key, space)| format!("{space}{key}")),
        (key.clone(), space).prop_map(|(key, space)| format!("!{space}{key}")),
        (key.clone(), space, prop_oneof![Just("="), Just("=="), Just("!=")], value.clone())
            .prop_map(|(key, space, operator, value)| format!("{key}{space}{operator}{space}{value}")),
        (key.clone(), prop_oneof![Just("<"), Just(">")], 0..5_u8)
            .prop_map(|(key, operator, number)| format!("{key}{operator}{number}")),
        (key, prop_oneof![Just("in"), Just("notin")], prop::collection::vec(value, 1..4))
            .prop_map(|(key, operator, values)| format!("{key} {operator} ({})", values.join(", "))),
    ]
}

proptest! {
    #[test]
    fn canonical_text_means_the_same(
        requirements in prop::collection::vec(requirement(), 0..4),
        labels in prop::collection::btree_map("(in|[a-b]\\.io/)?[a-c]", "[1-4x]{0,2}", 0..4),
    ) {
        let text = requirements.join(",");
        // Kubernetes refuses three empty values in a row too.
        prop_assume!(Selector::parse(&text).is_ok());
        let canonical = Selector::parse(&text).unwrap().to_string();
        prop_assert_eq!(Selector::parse(&canonical).unwrap(), Selector::parse(&text).unwrap());
        prop_assert_eq!(Selector::parse(&canonical).unwrap().to_string(), &*canonical);
        prop_assert_eq!(matches(&text, &labels), matches(&canonical, &labels));
        let pairs = labels.iter().map(|(key, value)| (Cow::from(key.as_str()), Cow::from(value.as_str())));
        prop_assert_eq!(Selector::parse(&text).unwrap().matches_labels(pairs), matches(&text, &labels));
    }

    /// Goal: exactly the listed values are found. Method: random values, some of them prefixes of others.
    #[test]
    fn long_lists_of_values_are_searched(
        values in prop::collection::btree_set("[a-b1-3]{0,3}", 1..40),
        others in prop::collection::vec("[a-b1-3]{0,4}", 20),
    ) {
        let text = values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        for value in values.iter().chain(&others) {
            prop_assert_eq!(is_listed(&text, value), values.contains(value), "{} in ({})", value, &text);
        }
    }

    #[test]
    fn no_text_panics(text in "[ab\\x00-~ =!<>(),]{0,24}") {
        let _ = Selector::parse(&text);
    }
}
