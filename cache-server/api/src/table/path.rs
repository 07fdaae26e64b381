//! JSONPath of custom columns, as far as definitions use it.
//!
//! Supports fields (`.a.b`, `['x.y/z']`, `.x\.y`), items (`[0]`, `[-1]`, `[*]`, `[1:3]`), filters
//! (`[?(@.type=="Ready")]`) and descendants (`..a`). A column shows the first match.
//!
//! Source: client-go `util/jsonpath`.

use super::json::CellJson;

/// Longest accepted path, in bytes. As filters nest, this also bounds the recursion of the parser.
const PATH_BYTES_MAX: usize = 1 << 10;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path(Vec<PathStep>);

#[derive(Clone, Debug, PartialEq)]
enum PathStep {
    Field(String),
    /// Every member, or every item.
    All,
    /// Items from the first index up to the second, exclusive; negative indices count from the end.
    Items(Option<i64>, Option<i64>),
    Where(ItemCondition),
    /// The value itself and all its descendants.
    Within,
}

/// Condition on the items of a list.
#[derive(Clone, Debug, PartialEq)]
struct ItemCondition {
    field: Path,
    /// `None` if the field only has to exist.
    compared: Option<(CompareOperator, Literal)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompareOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Literal {
    Text(String),
    Number(f64),
    Bool(bool),
}

/// In matching order: the longer ones first.
const OPERATORS: [(&str, CompareOperator); 6] = [
    ("==", CompareOperator::Equal),
    ("!=", CompareOperator::NotEqual),
    ("<=", CompareOperator::LessOrEqual),
    (">=", CompareOperator::GreaterOrEqual),
    ("<", CompareOperator::Less),
    (">", CompareOperator::Greater),
];

impl Path {
    /// Parses a path; `None` if it is invalid or unsupported.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > PATH_BYTES_MAX {
            return None;
        }
        let mut rest = text.trim();
        rest = rest.strip_prefix(['$', '@']).unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            rest = if let Some(inner) = rest.strip_prefix('[') {
                let end = bracket_end(inner)?;
                steps.push(PathStep::parse(inner[..end].trim())?);
                &inner[end + 1..]
            } else if let Some(field) = rest.strip_prefix("..") {
                steps.push(PathStep::Within);
                if field.starts_with('[') { field } else { parse_field(field, &mut steps)? }
            } else {
                let field = rest.strip_prefix('.')?;
                if field.starts_with('[') { field } else { parse_field(field, &mut steps)? }
            };
        }
        (!steps.is_empty()).then_some(Self(steps))
    }

    /// Returns the first match. Visits at most `looks` values and members, and subtracts the visited ones: nested
    /// descendant steps have no other bound. A value that is not found within the bound counts as absent.
    pub(crate) fn find<'s, 'a>(&self, value: &'s CellJson<'a>, looks: &mut usize) -> Option<&'s CellJson<'a>> {
        find(&self.0, value, looks)
    }
}

/// Parses a field name, and returns the rest of the text.
fn parse_field<'t>(text: &'t str, steps: &mut Vec<PathStep>) -> Option<&'t str> {
    let (mut name, mut letters) = (String::new(), text.char_indices());
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.push(letters.next()?.1),
            ' ' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' => {
                end = at;
                break;
            }
            _ => name.push(letter),
        }
    }
    steps.push(match &*name {
        "" => return None,
        "*" => PathStep::All,
        _ => PathStep::Field(name),
    });
    Some(&text[end..])
}

/// Returns the position of the closing bracket, skipping quoted text and nested brackets.
fn bracket_end(text: &str) -> Option<usize> {
    let (mut quote, mut open) = (None, 0_usize);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(quoted), _) if letter == quoted => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => open += 1,
            (None, ']') if open == 0 => return Some(at),
            (None, ']') => open -= 1,
            (None, _) => {}
        }
    }
    None
}

impl PathStep {
    /// Parses the contents of brackets.
    fn parse(text: &str) -> Option<Self> {
        if let Some(filter) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
            return ItemCondition::parse(filter.trim()).map(Self::Where);
        }
        if let Some(name) = unquoted(text) {
            return Some(Self::Field(name.to_owned()));
        }
        let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
        match text.split_once(':') {
            None if text == "*" => Some(Self::All),
            None => {
                let at: i64 = text.parse().ok()?;
                Some(Self::Items(Some(at), (at != -1).then(|| at.saturating_add(1))))
            }
            Some((from, to)) => Some(Self::Items(number(from)?, number(to)?)),
        }
    }
}

impl ItemCondition {
    fn parse(text: &str) -> Option<Self> {
        let found = OPERATORS.into_iter().find_map(|(sign, operator)| {
            let mut quotes = text.match_indices(['"', '\'']).map(|(at, _)| at).peekable();
            let mut is_outside = true;
            // One pass over quotes and operators, as a path may consist of them: rescanning would take quadratic time.
            let (at, _) = text.match_indices(sign).find(|&(at, _)| {
                while quotes.next_if(|&quote| quote < at).is_some() {
                    is_outside = !is_outside;
                }
                is_outside
            })?;
            Some((at, sign.len(), operator))
        });
        let (field, compared) = match found {
            None => (text, None),
            Some((at, len, operator)) => (&text[..at], Some((operator, Literal::parse(text[at + len..].trim())?))),
        };
        let field = field.trim();
        field.starts_with('@').then_some(())?;
        Some(Self { field: Path::parse(field)?, compared })
    }

    fn takes(&self, item: &CellJson<'_>, looks: &mut usize) -> bool {
        match (find(&self.field.0, item, looks), &self.compared) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(value), Some((operator, literal))) => operator.holds(value, literal),
        }
    }
}

impl CompareOperator {
    fn holds(self, value: &CellJson<'_>, literal: &Literal) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "numbers of columns are small")]
        let order = match (value, literal) {
            (CellJson::Text(text), Literal::Text(other)) => Some((**text).cmp(other)),
            (CellJson::Integer(number), Literal::Number(other)) => (*number as f64).partial_cmp(other),
            (CellJson::Float(number), Literal::Number(other)) => number.partial_cmp(other),
            (CellJson::Bool(value), Literal::Bool(other)) => Some(value.cmp(other)),
            _ => None,
        };
        order.is_some_and(|order| match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        })
    }
}

impl Literal {
    fn parse(text: &str) -> Option<Self> {
        match (unquoted(text), text) {
            (Some(text), _) => Some(Self::Text(text.to_owned())),
            (None, "true") => Some(Self::Bool(true)),
            (None, "false") => Some(Self::Bool(false)),
            (None, number) => number.parse().ok().map(Self::Number),
        }
    }
}

/// Returns the text between two quotes.
fn unquoted(text: &str) -> Option<&str> {
    let between = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    between('\'').or_else(|| between('"'))
}

/// Recursive step of [`Path::find`]; subtracts visited values from `looks`.
fn find<'s, 'a>(steps: &[PathStep], value: &'s CellJson<'a>, looks: &mut usize) -> Option<&'s CellJson<'a>> {
    *looks = looks.checked_sub(1)?;
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        PathStep::Field(name) => {
            *looks = looks.checked_sub(value.members().len())?;
            let (_, member) = value.members().iter().find(|(key, _)| key == name)?;
            find(rest, member, looks)
        }
        PathStep::All => parts(value).find_map(|part| find(rest, part, looks)),
        PathStep::Items(from, to) => {
            let items = value.items();
            let place = |at: i64| {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                usize::try_from(if at < 0 { at + length } else { at }).ok()
            };
            let from = from.map_or(Some(0), place)?;
            let to = to.map_or(Some(items.len()), place)?;
            items.get(from..to)?.iter().find_map(|item| find(rest, item, looks))
        }
        PathStep::Where(filter) => value.items().iter().find_map(|item| {
            let taken = filter.takes(item, looks);
            taken.then(|| find(rest, item, looks)).flatten()
        }),
        PathStep::Within => find(rest, value, looks).or_else(|| parts(value).find_map(|part| find(steps, part, looks))),
    }
}

/// Iterates over member values or items.
fn parts<'s, 'a>(value: &'s CellJson<'a>) -> impl Iterator<Item = &'s CellJson<'a>> {
    value.members().iter().map(|(_, member)| member).chain(value.items())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKS: usize = 100_000;

    const OBJECT: &str = r#"{
        "metadata": {"annotations": {"x.y/z": "noted"}},
        "spec": {"a": {"b": 3}, "list": ["p", "q", "r"], "nested": [{"deep": {"er": "d"}}], "none": null},
        "status": {"conditions": [
            {"type": "Synced", "status": "False", "weight": 1},
            {"type": "Ready", "status": "True", "weight": 5, "message": "a \"b\" ]"}
        ]}
    }"#;

    #[test]
    fn a_path_leads_to_the_first_value_it_means() {
        let object = CellJson::read(OBJECT.as_bytes());
        for (path, expected) in [
            (".spec.a.b", Some("3")),
            ("$.spec.a.b", Some("3")),
            (".spec['a'].b", Some("3")),
            (r#".spec["a"]["b"]"#, Some("3")),
            (".metadata.annotations['x.y/z']", Some("noted")),
            (r".metadata.annotations.x\.y/z", Some("noted")),
            (".spec.list[0]", Some("p")),
            (".spec.list[-1]", Some("r")),
            (".spec.list[1:]", Some("q")),
            (".spec.list[1:2]", Some("q")),
            (".spec.list[*]", Some("p")),
            (".spec.list.[2]", Some("r")),
            (".spec.list[3]", None),
            (".spec.list[-4]", None),
            (".spec.list[2:1]", None),
            (".spec.list.length", None),
            (".spec.a[0]", None),
            (".spec.missing.b", None),
            (r#".status.conditions[?(@.type=="Ready")].status"#, Some("True")),
            (r#".status.conditions[?(@.type == 'Ready')].status"#, Some("True")),
            (r#".status.conditions[?(@.type=="Other")].status"#, None),
            (r#".status.conditions[?(@.type!="Ready")].status"#, Some("False")),
            (".status.conditions[?(@.weight>2)].type", Some("Ready")),
            (".status.conditions[?(@.weight<=1)].type", Some("Synced")),
            (".status.conditions[?(@.message)].type", Some("Ready")),
            (r#".status.conditions[?(@.message=='a "b" ]')].type"#, Some("Ready")),
            (".status.conditions[*].message", Some("a \"b\" ]")),
            ("..er", Some("d")),
            (".spec..deep.er", Some("d")),
            (".spec.*.b", Some("3")),
        ] {
            let found = Path::parse(path).expect(path);
            assert_eq!(
                found.find(&object, &mut LOOKS.clone()).and_then(CellJson::plain).as_deref(),
                expected,
                "{path}"
            );
        }
        assert!(
            Path::parse(".spec.none").expect("a path").find(&object, &mut LOOKS.clone()).is_some_and(CellJson::is_null)
        );
    }

    #[test]
    fn what_is_no_path_is_told() {
        for text in ["", ".", "spec", ".a.", ".a[", ".a[]", ".a[x]", ".a[?(b)]", ".a[?(@.b==)]", ".a b", ".a[0,1]", "$"]
        {
            assert_eq!(Path::parse(text), None, "{text}");
        }
    }

    /// Goal: no definition delays or crashes the server. Method: paths with extreme indices or nesting, in objects made
    /// for them.
    #[test]
    fn a_path_that_leads_nowhere_ends_soon() {
        let object = CellJson::read(OBJECT.as_bytes());
        for path in [format!(".spec.list[{}]", i64::MAX), format!(".spec.list[{}]", i64::MIN)] {
            assert_eq!(Path::parse(&path).expect("a path").find(&object, &mut LOOKS.clone()), None, "{path}");
        }
        let nested = |levels: usize| [&".a[?(@".repeat(levels), ".b", &")]".repeat(levels)].concat();
        assert!(Path::parse(&nested(100)).is_some_and(|path| path.find(&object, &mut LOOKS.clone()).is_none()));
        assert_eq!(Path::parse(&nested(300_000)), None);
        let deep = [&r#"{"a":"#.repeat(90), "1", &"}".repeat(90)].concat();
        let path = Path::parse(&["..a".repeat(12), ".b".to_owned()].concat()).expect("a path");
        let mut looks = 200_000;
        assert_eq!(path.find(&CellJson::read(deep.as_bytes()), &mut looks), None);
        assert_eq!(looks, 0, "and is charged for its way");
    }

    /// Goal: no path causes a panic. Method: random texts of the syntax's characters.
    #[test]
    fn any_text_is_read_without_panic() {
        const LETTERS: &[char] =
            &['.', '[', ']', '?', '(', ')', '@', '\'', '"', '=', '<', '*', 'a', '0', ':', '\\', 'é', '-'];
        let (mut random, object) = (fastrand::Rng::with_seed(4), CellJson::read(OBJECT.as_bytes()));
        for _ in 0..20_000 {
            let text: String = (0..random.usize(..24)).map(|_| LETTERS[random.usize(..LETTERS.len())]).collect();
            if let Some(path) = Path::parse(&text) {
                let _ = path.find(&object, &mut LOOKS.clone());
            }
        }
    }
}
