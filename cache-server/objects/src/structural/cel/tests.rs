//! Expressions that are hostile, and those that the language has and the table of rules has not.

use serde_json::{Value as Json, json};

use super::*;
use crate::limits::{
    EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, EXPRESSIONS_BYTES_MAX, PATTERN_STATES, PATTERN_STATES_MAX,
    VALUE_LEVELS_MAX,
};

/// Evaluates an expression over a text.
fn evaluate(expression: &str, subject: &str) -> Result<String, String> {
    evaluate_over(expression, &subject.into(), &json!({"type": "string"}))
}

/// Evaluates an expression over a value with a schema.
fn evaluate_over(expression: &str, subject: &Json, schema: &Json) -> Result<String, String> {
    let program = compile(expression, &mut Allowance::default())?;
    let schema = schema.as_object().expect("an object");
    let subject = typed(subject, schema, false).map_err(|failure| format!("{failure:?}"))?;
    match Evaluation::run(&program, subject, None, &mut StepBudget::of_object()) {
        Ok(value) => Ok(conversions::as_text(&value).unwrap_or_else(|| value.type_name().to_owned())),
        Err(EvaluationFailure::Error(text)) => Err(text.into()),
        Err(failure) => Err(format!("{failure:?}")),
    }
}

#[test]
fn expressions_have_values() {
    for (expression, expected) in [
        ("1 + 2 * 3 - 4 / 2 % 3", "5"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("--3", "3"),
        ("!!true", "true"),
        ("true ? 1 : false ? 2 : 3", "1"),
        ("1 < 2 && 2u <= 2u && 1.5 > 1 && 1 == 1.0", "true"),
        ("0x1F + 1", "32"),
        ("1e3", "1000"),
        (".5 + .5", "1"),
        (r#""a\n\x41\u00e4\101" + 'b' + r'\d' + """c"d""""#, "a\nA\u{e4}Ab\\dc\"d"),
        ("b'\\xff'.size()", "1"),
        ("// nothing\n 1 // one", "1"),
        ("[1, 2, 3,].size() + {'a': 1,}.size()", "4"),
        ("{'a': 1, ?'b': optional.none()}.size()", "1"),
        ("[?optional.of(1), 2][0]", "1"),
        ("type(1) == int && type('a') == string && type([]) == list && type(type(1)) == type", "true"),
        ("type(timestamp('2024-01-01T00:00:00Z')) == google.protobuf.Timestamp", "true"),
        ("type(ip('::1')) == net.IP", "true"),
        ("{'a': {'b': 1}}.a.b", "1"),
        ("has({'a': 1}.a) && !has({'a': 1}.b)", "true"),
        ("optional.of({'a': 1}).a.value()", "1"),
        ("optional.of(2).optMap(x, x + 1).orValue(0)", "3"),
        ("optional.none().or(optional.of(4)).value()", "4"),
        (
            "string(duration('1h30m')) + string(timestamp('2024-01-01T00:00:00Z') + duration('1s'))",
            "5400s2024-01-01T00:00:01Z",
        ),
        ("[[1], [2, 3]].flatten().sum()", "6"),
        ("lists.range(3).map(i, i * i)[2]", "4"),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v * 2)['b']", "4"),
        ("[1, 2].map(x, [3, 4].map(y, x * y))[1][1]", "8"),
        ("[1, 2].exists(x, [x].all(y, y == x && x == 2))", "true"),
        ("'%s %b %o %X %e'.format([true, 5, 8, 255, 1234.5])", "true 101 10 FF 1.234500e+03"),
        ("'100%%'.format([])", "100%"),
        ("['a', 'b'].join('-') + ['c', 'd'].join()", "a-bcd"),
        ("matches('abc', 'b')", "true"),
        ("'{{a}}'.matches('^{{.*}}$') && '<a.>'.matches(r'^\\<\\Qa.\\E>$')", "true"),
        ("'\u{e4}b'.findAll('').size()", "3"),
        ("strings.quote('a\"b')", "\"a\\\"b\""),
        ("int('0') == 0 && uint(3) == 3u && double('1.5') == 1.5 && bool('true')", "true"),
        ("format.named('dns1123Label').hasValue()", "true"),
        ("false && 1 / 0 == 1 || true", "true"),
    ] {
        assert_eq!(evaluate(expression, ""), Ok(expected.to_owned()), "{expression}");
    }
}

#[test]
fn expressions_fail_with_the_texts_of_cel_go() {
    for (expression, expected) in [
        ("1 + 'a' == 1", "no such overload"),
        ("1 && true", "no such overload"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("1u - 2u", "unsigned integer overflow"),
        ("optional.none().value()", "optional.none() dereference"),
        ("{'a': 1}['b']", "no such key: b"),
        ("int('x') == 1", "type conversion error from 'string' to 'int'"),
        ("[1][1]", "index out of bounds: 1"),
        ("'%s'.format([])", "index 0 out of range"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("true || 1 / 0 == 1 ? 1 / 0 : 2", "division by zero"),
    ] {
        assert_eq!(evaluate(expression, ""), Err(expected.to_owned()), "{expression}");
    }
}

#[test]
fn unknown_parts_of_the_language_do_not_compile() {
    for expression in [
        "",
        "1 +",
        "(1",
        "[1",
        "{1}",
        "a",
        "self.f()",
        "f(self)",
        "self.matches('(')",
        "'a",
        "'\\q'",
        "1 2",
        "has(self)",
        "self.all(x)",
        "timestamp('x').getHours('UTC')",
        "semver('1.0.0')",
        "99999999999999999999",
        "a.b.c",
        "T{x: 1}",
        "`a`",
        "[1].sortBy(x, x)",
        "x.map(x, x)",
        "[1].map(x, 1) == x",
        "$",
        "\u{e4}",
    ] {
        assert!(compile(expression, &mut Allowance::default()).is_err(), "{expression}");
    }
}

/// Goal: no text uses up the stack. Method: each way to nest, far beyond the limit, and as deep as the limit allows.
#[test]
fn nesting_is_bounded() {
    let ways: [(&str, &str, &str); 10] = [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{1: ", "1", "}"),
        ("!", "true", ""),
        ("-(", "1", ")"),
        ("", "1", " + 1"),
        ("", "self", ".a"),
        ("", "[1]", "[0]"),
        ("true ? 1 : ", "1", ""),
        ("[1].map(x, ", "1", ")"),
    ];
    for (before, inner, after) in ways {
        let text = |levels: usize| format!("{}{inner}{}", before.repeat(levels), after.repeat(levels));
        for levels in [EXPRESSION_DEPTH_MAX / 2 - 2, EXPRESSION_DEPTH_MAX - 2, EXPRESSION_DEPTH_MAX, 1_000] {
            // Whatever the outcome is, there is one.
            drop(evaluate(&text(levels), ""));
        }
    }
    assert!(compile(&"(".repeat(EXPRESSION_BYTES_MAX), &mut Allowance::default()).is_err());
    assert!(evaluate(&format!("{}true", "!".repeat(EXPRESSION_BYTES_MAX - 4)), "").is_ok());
    let long_chain = vec!["true"; 2_000].join(" && ");
    assert_eq!(evaluate(&long_chain, ""), Ok("true".to_owned()), "alternatives do not nest");
}

/// Goal: values nest in bounded levels too. Method: variables that each hold the one before in lists, up to the limit and beyond.
#[test]
fn nesting_of_values_is_bounded() {
    let wrapped = |macros: usize, lists: usize| {
        let body = format!("v{macros} == v{macros} && '%s'.format([v{macros}]) != ''");
        (0..macros).rev().fold(body, |body, level| {
            let of = if level == 0 { "self".to_owned() } else { format!("v{level}") };
            format!("{}{of}{}.all(v{}, {body})", "[".repeat(lists), "]".repeat(lists), level + 1)
        })
    };
    assert_eq!(evaluate(&wrapped(50, 4), ""), Ok("true".to_owned()));
    for (macros, lists) in [(50, 30), (90, 3)] {
        let error = evaluate(&wrapped(macros, lists), "").expect_err("too many levels");
        assert_eq!(error, format!("more than {VALUE_LEVELS_MAX} lists, maps, macros and optional values"));
    }
}

/// Goal: reading a member with a format is not free. Method: a long text, decoded again and again.
#[test]
fn decoded_texts_end_at_their_limit() {
    for (format, text) in
        [("byte", "a".repeat(1 << 20)), ("duration", "1s".repeat(100_000)), ("byte", "!".repeat(1 << 20))]
    {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "format": format}}});
        let found = evaluate_over("lists.range(900).all(x, has(self.a))", &json!({"a": text}), &schema);
        assert_eq!(found, Err("CallLimit".to_owned()), "{format}");
    }
}

#[test]
fn durations_of_members_are_those_of_their_format() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "format": "duration"}}});
    for (text, expected) in [("1d", "86400s"), ("2 days", "172800s"), ("1h", "3600s"), ("1w 1 hr", "608400s")] {
        assert_eq!(evaluate_over("string(self.a)", &json!({"a": text}), &schema), Ok(expected.to_owned()), "{text}");
    }
}

#[test]
fn a_schema_takes_bounded_expressions() {
    let mut allowance = Allowance::default();
    assert!(compile(&format!("'{}'", "a".repeat(EXPRESSION_BYTES_MAX)), &mut allowance).is_err(), "too long");
    let text = format!("'{}'", "a".repeat(EXPRESSION_BYTES_MAX - 2));
    let compiled = (0..100).take_while(|_| compile(&text, &mut allowance).is_ok()).count();
    assert_eq!(compiled, EXPRESSIONS_BYTES_MAX / EXPRESSION_BYTES_MAX);
    let mut allowance = Allowance::default();
    let compiled = (0..1_000).take_while(|_| compile("self.matches('a{1000}')", &mut allowance).is_ok()).count();
    assert_eq!(compiled, PATTERN_STATES_MAX / (PATTERN_STATES + 1_001));
}

/// Goal: an expression costs bounded time and memory. Method: each way to multiply work or values.
#[test]
fn hostile_expressions_end_at_their_limit() {
    let digits = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let nested =
        |body: &str| ('a'..='i').rev().fold(body.to_owned(), |body, name| format!("{digits}.all({name}, {body})"));
    let doubled = |first: &str, levels: usize| {
        (0..levels).rev().fold("true".to_owned(), |body, level| {
            let of = if level == 0 { first.to_owned() } else { format!("v{}", level - 1) };
            format!("[{of} + {of}].all(v{level}, {body})")
        })
    };
    let long = "a".repeat(1 << 20);
    for (expression, subject) in [
        (nested("true"), ""),
        (nested("a + b + c + d + e + f + g + h + i >= 0"), ""),
        (doubled("self", 45), &*long),
        (doubled("[1]", 45), ""),
        ("self.replace('', self) == ''".to_owned(), &long),
        ("self.replace('a', self) == ''".to_owned(), &long),
        ("self.split('').map(x, self.split('')).size() == 1".to_owned(), &long),
        ("self.split('').distinct().size() == 1 && self.split('').exists(x, self.split('') == [x])".to_owned(), &long),
        ("lists.range(1000000000).size() == 1".to_owned(), ""),
        ("lists.range(100000).map(x, lists.range(100000)).size() == 1".to_owned(), ""),
        ("lists.range(5000).distinct().size() == 1".to_owned(), ""),
        ("lists.range(900).all(x, !self.matches('(a*)*b'))".to_owned(), &long),
        ("lists.range(900).all(x, !self.matches('a{' + string(x + 1) + '}'))".to_owned(), ""),
        ("lists.range(900000).map(x, {x: x}).size() == lists.range(900000).size()".to_owned(), ""),
        ("'%s%s%s%s%s%s%s%s%s%s%s%s'.format(lists.range(12).map(x, self)) == ''".to_owned(), &long),
        ("lists.range(900).map(x, self).join() == ''".to_owned(), &long),
        (format!("lists.range(300000).map(x, b'{}').size() == 1", "a".repeat(10_000)), ""),
        ("lists.range(900).all(x, ''.indexOf(self) == -1)".to_owned(), &long),
        ("lists.range(900).all(x, self <= self)".to_owned(), &long),
        ("[self].map(y, lists.range(900).map(x, y)).all(y, y.isSorted())".to_owned(), &long),
        ("[bytes(self)].all(y, lists.range(900).all(x, string(y) != ''))".to_owned(), &long),
        ("[url('https://h/' + self)].all(y, lists.range(900).all(x, y.getEscapedPath() != ''))".to_owned(), &long),
        ("[url('https://h/' + self)].all(y, lists.range(900).all(x, y != url('https://h/')))".to_owned(), &long),
        ("[cidr('10.0.0.0/8')].all(y, lists.range(900).all(x, !y.containsIP(self)))".to_owned(), &long),
        ("lists.range(20).all(x, !self.matches('[ab]*a[ab]{1000}c'))".to_owned(), &long),
        ("lists.range(900).all(x, !''.matches('^\\\\pL{100}' + string(x)))".to_owned(), &long),
        ("self.findAll('a|.*c').size() == 0".to_owned(), &long),
        (format!("lists.range(1000).all(x, {})", vec!["true"; 1_500].join("&&")), ""),
    ] {
        let shown: String = expression.chars().take(60).collect();
        assert_eq!(evaluate(&expression, subject), Err("CallLimit".to_owned()), "{shown}");
    }
}
