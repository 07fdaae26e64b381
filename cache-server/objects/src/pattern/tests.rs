//! Expressions beside Go's, with its errors: answers of Go 1.26.

use super::*;

fn compile(text: &str) -> Result<Pattern, String> {
    Pattern::compile(text, &mut 1_000_000).map_err(|error| error.to_string())
}

/// Goal: each expression matches as in Go. Method: expressions, texts that match and texts that do not.
#[test]
fn expressions_match_as_in_go() {
    for (expression, matching, others) in [
        (r"^\d+$", vec!["12"], vec!["\u{661}", "a"]),
        (r"^\w+$", vec!["a_1"], vec!["é"]),
        (r"^\s$", vec!["\t", " "], vec!["\u{b}", "\u{a0}"]),
        (r"^\S$", vec!["\u{a0}", "é"], vec![" "]),
        (r"^[\d\-x]+$", vec!["1-x"], vec!["y"]),
        (r"^[^\d]$", vec!["é"], vec!["1"]),
        (r"^[\D1]$", vec!["1", "é"], vec!["2"]),
        (r"^[a-z&&[^b]]$", vec!["a]", "&]", "b]", "[]"], vec!["a", "]"]),
        (r"^[+--~~]+$", vec!["+,-~"], vec!["b"]),
        (r"^[]a^-]+$", vec!["]a^-"], vec!["b"]),
        (r"^[[:alpha:]_]+$", vec!["aZ_"], vec!["1", "é"]),
        (r"^[[:^alpha:]]+$", vec!["1é"], vec!["a"]),
        (r"\bab\b", vec!["é ab", "éab"], vec!["cab"]),
        (r"^a{,2}$", vec!["a{,2}"], vec!["aa"]),
        (r"^a{2$", vec!["a{2"], vec!["aa"]),
        (r"^a{02}$", vec!["a{02}"], vec!["aa"]),
        (r"^x{2,3}?$", vec!["xx", "xxx"], vec!["x", "xxxx"]),
        (r"^\Qa.b*\E+$", vec!["a.b*", "a.b**"], vec!["aab"]),
        (r"^\<\>\_\-\/$", vec!["<>_-/"], vec!["a"]),
        (r"^\101\x42\x{43}\0$", vec!["ABC\0"], vec!["ABC"]),
        (r"^(?i)straße$", vec!["STRAßE"], vec!["strasse"]),
        (r"(?i:A)b", vec!["ab", "Ab"], vec!["aB"]),
        (r"(?im-s)^a$", vec!["b\nA"], vec!["b"]),
        (r"^(?P<n>a)(?<m>b)(?:c)(?)$", vec!["abc"], vec!["ab"]),
        (r"^\p{Greek}\pL\P{L}\p{^L}$", vec!["\u{3b1}a11"], vec!["aa11"]),
        (r"^a.c$", vec!["aéc"], vec!["a\nc"]),
        (r"^$", vec![""], vec!["\n"]),
        (r"a|", vec![""], vec![]),
        (r"^(a|b)*$", vec!["", "abba"], vec!["c"]),
    ] {
        let pattern = compile(expression).expect(expression);
        matching.iter().for_each(|text| assert!(pattern.is_match(text), "{expression} {text}"));
        others.iter().for_each(|text| assert!(!pattern.is_match(text), "{expression} {text}"));
    }
}

#[test]
fn errors_are_those_of_go() {
    for (expression, error) in [
        ("(", "missing closing ): `(`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[]", "missing closing ]: `[]`"),
        ("x[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a|*?", "missing argument to repetition operator: `*?`"),
        ("(+)", "missing argument to repetition operator: `+`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*??b", "invalid nested repetition operator: `*??`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("a{99999999999999999999999}", "invalid repeat count: `{99999999999999999999999}`"),
        ("(a{100}){11}", "invalid repeat count: `{11}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?<=a)b", "invalid named capture: `(?<=a)b`"),
        ("(?P<a-b>c)", "invalid named capture: `(?P<a-b>`"),
        (r"a\", "trailing backslash at end of expression: ``"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        (r"[\b]", r"invalid escape sequence: `\b`"),
    ] {
        assert_eq!(compile(expression).err(), Some(format!("error parsing regexp: {error}")), "{expression}");
    }
}

/// Goal: a short text does not cost much memory. Method: repeated classes, until the bound is met.
#[test]
fn expressions_of_many_states_are_refused() {
    let mut left = 100_000;
    for expression in ["^.{1,1000}$", r"^[\p{L}]{1,63}$"] {
        let pattern = Pattern::compile(expression, &mut left).expect("as in definitions in use");
        assert!(pattern.is_match("abc"));
    }
    let error = Pattern::compile(r"\p{L}{1000}", &mut left).expect_err("has half a million states").to_string();
    assert_eq!(error, r"error parsing regexp: expression too large: `\p{L}{1000}`");
}
