//! Parses expressions, expands macros, and resolves names.

use super::{
    expression::{
        BinaryOperator, Element, Expression, FunctionCall, ItemSelection, Loop, LoopKind, MapEntry, MemberSelection,
        SelectKind,
    },
    functions,
    lex::{ExpressionToken, tokens},
};
use crate::limits::{
    EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, EXPRESSIONS_BYTES_MAX, PATTERN_STATES_MAX, VALUE_LEVELS_MAX,
};
use crate::pattern::Pattern;

/// A compiled expression.
pub(crate) struct CompiledExpression {
    pub(super) expression: Expression,
    /// True if it reads `oldSelf`.
    pub(in super::super) uses_old: bool,
    /// Its levels, with those of the named expressions that it reads.
    depth: usize,
    /// Levels that its value may have beyond the values that it reads.
    value_levels: usize,
}

/// An expression that others read as `variables.name`.
pub(crate) struct NamedExpression {
    pub(crate) name: String,
    /// The program, or the reason why there is none.
    pub(crate) program: Result<CompiledExpression, String>,
}

/// The names that an expression may read.
#[derive(Clone, Copy)]
pub(crate) struct ExpressionScope<'a> {
    /// Variables, in the order of their values.
    pub(crate) variables: &'a [&'a str],
    /// Expressions, each of which reads only earlier ones.
    pub(crate) named: &'a [NamedExpression],
}

/// The bytes and states of patterns left to the expressions of one schema, or of conditions of webhooks.
pub(crate) struct Allowance {
    bytes: usize,
    states: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { bytes: EXPRESSIONS_BYTES_MAX, states: PATTERN_STATES_MAX }
    }
}

/// Compiles an expression over `self` and `oldSelf`.
///
/// # Errors
/// The reason, for people.
pub(in super::super) fn compile(text: &str, allowance: &mut Allowance) -> Result<CompiledExpression, String> {
    compile_in(text, None, allowance)
}

/// Compiles an expression over other names than `self` and `oldSelf`.
///
/// # Errors
/// The reason, for people.
pub(crate) fn compile_over(
    text: &str,
    scope: ExpressionScope<'_>,
    allowance: &mut Allowance,
) -> Result<CompiledExpression, String> {
    compile_in(text, Some(scope), allowance)
}

fn compile_in(
    text: &str,
    scope: Option<ExpressionScope<'_>>,
    allowance: &mut Allowance,
) -> Result<CompiledExpression, String> {
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(format!("longer than {EXPRESSION_BYTES_MAX} bytes"));
    }
    let left = allowance.bytes.checked_sub(text.len());
    allowance.bytes = left.ok_or_else(|| format!("beyond the {EXPRESSIONS_BYTES_MAX} bytes of all expressions"))?;
    let (variables, named) = scope.map_or((&[][..], &[][..]), |scope| (scope.variables, scope.named));
    let mut parser = ExpressionParser {
        tokens: tokens(text)?,
        at: 0,
        scope: variables.iter().map(|name| (*name).to_owned()).collect(),
        named,
        has_self: scope.is_none(),
        nesting: 0,
        value_levels: 0,
        named_levels: 0,
        uses_old: false,
        allowance,
    };
    let Tree { expression, depth } = parser.expression()?;
    match parser.peek() {
        ExpressionToken::End => {
            let value_levels = parser.value_levels + parser.named_levels;
            Ok(CompiledExpression { expression, uses_old: parser.uses_old, depth, value_levels })
        }
        other => Err(unexpected(other)),
    }
}

/// An expression, and its levels.
struct Tree {
    expression: Expression,
    depth: usize,
}

type TreeResult = Result<Tree, String>;

struct ExpressionParser<'a> {
    tokens: Vec<ExpressionToken>,
    at: usize,
    /// Variables of the expression, and of the macros around.
    scope: Vec<String>,
    named: &'a [NamedExpression],
    /// True if `self` and `oldSelf` are variables.
    has_self: bool,
    nesting: usize,
    /// Parts so far whose value has one level more than the values in it.
    value_levels: usize,
    /// The most levels of a named expression so far.
    named_levels: usize,
    uses_old: bool,
    allowance: &'a mut Allowance,
}

/// Operators by precedence, the weakest first.
const OPERATORS: [&[(&str, BinaryOperator)]; 3] = [
    &[
        ("==", BinaryOperator::Equal),
        ("!=", BinaryOperator::NotEqual),
        ("<", BinaryOperator::Less),
        ("<=", BinaryOperator::LessOrEqual),
        (">", BinaryOperator::Greater),
        (">=", BinaryOperator::GreaterOrEqual),
        ("in", BinaryOperator::In),
    ],
    &[("+", BinaryOperator::Add), ("-", BinaryOperator::Subtract)],
    &[("*", BinaryOperator::Multiply), ("/", BinaryOperator::Divide), ("%", BinaryOperator::Remainder)],
];

/// Names of types, as expressions write them.
const TYPES: [&str; 14] = [
    "bool",
    "bytes",
    "double",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "net.IP",
    "net.CIDR",
    "kubernetes.Quantity",
];

/// First parts of the names of functions.
const NAMESPACES: [&str; 6] = ["optional", "sets", "format", "ip", "strings", "lists"];

impl ExpressionParser<'_> {
    fn peek(&self) -> &ExpressionToken {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> &ExpressionToken {
        self.tokens.get(self.at + count).unwrap_or(&ExpressionToken::End)
    }

    fn next(&mut self) -> ExpressionToken {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn is_symbol(&self, count: usize, symbol: &str) -> bool {
        matches!(self.ahead(count), ExpressionToken::Symbol(found) if *found == symbol)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(0, symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        if self.take(symbol) { Ok(()) } else { Err(unexpected(self.peek())) }
    }

    /// Counts a part that puts values into another one. Variables pass values on, so the levels of values add up over a whole
    /// expression, beyond its own levels.
    fn add_value_level(&mut self) -> Result<(), String> {
        self.value_levels += 1;
        self.check_value_levels()
    }

    fn check_value_levels(&self) -> Result<(), String> {
        if self.value_levels + self.named_levels > VALUE_LEVELS_MAX {
            return Err(format!("more than {VALUE_LEVELS_MAX} lists, maps, macros and optional values"));
        }
        Ok(())
    }

    /// Parses a whole expression, at most [`EXPRESSION_DEPTH_MAX`] in each other.
    fn expression(&mut self) -> TreeResult {
        self.nesting += 1;
        let parsed = if self.nesting > EXPRESSION_DEPTH_MAX { Err(too_deep()) } else { self.conditional() };
        self.nesting -= 1;
        parsed
    }

    fn conditional(&mut self) -> TreeResult {
        let condition = self.alternatives()?;
        if !self.take("?") {
            return Ok(condition);
        }
        let then = self.expression()?;
        self.expect(":")?;
        let other = self.expression()?;
        let depth = condition.depth.max(then.depth).max(other.depth);
        let parts = [condition.expression, then.expression, other.expression];
        tree(Expression::Conditional(Box::new(parts)), depth)
    }

    fn alternatives(&mut self) -> TreeResult {
        self.chain("||", Expression::Or, Self::conjunction)
    }

    fn conjunction(&mut self) -> TreeResult {
        self.chain("&&", Expression::And, |parser| parser.binary(0))
    }

    fn chain(
        &mut self,
        symbol: &str,
        make: fn(Vec<Expression>) -> Expression,
        part: impl Fn(&mut Self) -> TreeResult,
    ) -> TreeResult {
        let first = part(self)?;
        if !self.is_symbol(0, symbol) {
            return Ok(first);
        }
        let (mut depth, mut parts) = (first.depth, vec![first.expression]);
        while self.take(symbol) {
            let next = part(self)?;
            depth = depth.max(next.depth);
            parts.push(next.expression);
        }
        tree(make(parts), depth)
    }

    fn binary(&mut self, level: usize) -> TreeResult {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let symbol = match self.peek() {
                ExpressionToken::Symbol(symbol) => *symbol,
                ExpressionToken::Name(name) if name == "in" => "in",
                _ => return Ok(left),
            };
            let Some((_, operator)) = operators.iter().find(|(known, _)| *known == symbol) else { return Ok(left) };
            self.at += 1;
            let right = self.binary(level + 1)?;
            let depth = left.depth.max(right.depth);
            left = tree(Expression::Binary(*operator, Box::new([left.expression, right.expression])), depth)?;
        }
    }

    fn unary(&mut self) -> TreeResult {
        let (mut nots, mut minuses) = (0, 0);
        while self.take("!") {
            nots += 1;
        }
        while nots == 0 && self.take("-") {
            minuses += 1;
        }
        if minuses % 2 == 1
            && let ExpressionToken::Int(number) = *self.peek()
        {
            // The lowest number has no positive counterpart.
            let number = 0_i64.checked_sub_unsigned(number).ok_or("invalid int literal")?;
            self.at += 1;
            return self.members(Tree { expression: Expression::Int(number), depth: 1 });
        }
        let operand = self.primary()?;
        let operand = self.members(operand)?;
        let depth = operand.depth;
        match (nots, minuses) {
            (0, 0) => Ok(operand),
            (0, _) if minuses % 2 == 1 => tree(Expression::Negate(Box::new(operand.expression)), depth),
            (0, _) => Ok(operand),
            (_, _) if nots % 2 == 1 => tree(Expression::Not(Box::new(operand.expression)), depth),
            (_, _) => {
                let inner = Expression::Not(Box::new(operand.expression));
                tree(Expression::Not(Box::new(inner)), depth + 1)
            }
        }
    }

    /// Parses what follows a value: its members, items and methods.
    fn members(&mut self, mut operand: Tree) -> TreeResult {
        loop {
            if self.take(".") {
                let is_optional = self.take("?");
                let ExpressionToken::Name(name) = self.next() else { return Err("a member without a name".to_owned()) };
                if !is_optional && self.take("(") {
                    operand = self.method(operand, &name)?;
                    continue;
                }
                let kind = if is_optional { SelectKind::Optional } else { SelectKind::Value };
                let selection = MemberSelection { operand: operand.expression, name, kind };
                operand = tree(Expression::Select(Box::new(selection)), operand.depth)?;
            } else if self.take("[") {
                let is_optional = self.take("?");
                let at = self.expression()?;
                self.expect("]")?;
                let depth = operand.depth.max(at.depth);
                let indexing = ItemSelection { operand: operand.expression, at: at.expression, is_optional };
                operand = tree(Expression::Index(Box::new(indexing)), depth)?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn primary(&mut self) -> TreeResult {
        let leaf = |expression| Ok(Tree { expression, depth: 1 });
        match self.next() {
            ExpressionToken::Int(number) => {
                leaf(Expression::Int(number.try_into().map_err(|_| "invalid int literal")?))
            }
            ExpressionToken::Uint(number) => leaf(Expression::Uint(number)),
            ExpressionToken::Double(number) => leaf(Expression::Double(number)),
            ExpressionToken::Text(text) => leaf(Expression::Text(text)),
            ExpressionToken::Bytes(bytes) => leaf(Expression::Bytes(bytes)),
            ExpressionToken::Name(name) => self.named(name),
            ExpressionToken::Symbol("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            ExpressionToken::Symbol("[") => self.list(),
            ExpressionToken::Symbol("{") => self.map(),
            other @ (ExpressionToken::Symbol(_) | ExpressionToken::End) => Err(unexpected(&other)),
        }
    }

    /// Parses a literal, a variable, a type, or a call.
    fn named(&mut self, name: String) -> TreeResult {
        let leaf = |expression| Ok(Tree { expression, depth: 1 });
        match &*name {
            "true" | "false" => return leaf(Expression::Bool(name == "true")),
            "null" => return leaf(Expression::Null),
            _ => {}
        }
        if let Some(place) = self.scope.iter().rposition(|known| *known == name) {
            return leaf(Expression::Local(place));
        }
        if self.take("(") {
            return if name == "has" { self.presence() } else { self.function(&name) };
        }
        if name == "variables" && !self.named.is_empty() && self.take(".") {
            return self.named_expression();
        }
        if self.has_self && name == "self" {
            return leaf(Expression::Subject);
        }
        if self.has_self && name == "oldSelf" {
            self.uses_old = true;
            return leaf(Expression::OldSubject);
        }
        if let (true, ExpressionToken::Name(member)) = (self.is_symbol(0, "."), self.ahead(1).clone()) {
            let full = format!("{name}.{member}");
            if NAMESPACES.contains(&&*name) && self.is_symbol(2, "(") {
                self.at += 3;
                return self.function(&full);
            }
            if let Some(ty) = TYPES.iter().find(|ty| **ty == full) {
                self.at += 2;
                return leaf(Expression::TypeName(ty));
            }
            if let Some(ty) = self.protobuf_type(&full) {
                return leaf(Expression::TypeName(ty));
            }
        }
        match TYPES.iter().find(|ty| **ty == name) {
            Some(ty) => leaf(Expression::TypeName(ty)),
            None => Err(format!("unknown name '{name}'")),
        }
    }

    /// Parses the name of a named expression, whose levels are below those of this one.
    fn named_expression(&mut self) -> TreeResult {
        let ExpressionToken::Name(name) = self.next() else { return Err("a member without a name".to_owned()) };
        let place = self.named.iter().rposition(|known| known.name == name);
        let place = place.ok_or_else(|| format!("undefined field '{name}'"))?;
        let program = self.named[place].program.as_ref().ok();
        self.named_levels = self.named_levels.max(program.map_or(0, |program| program.value_levels));
        self.check_value_levels()?;
        tree(Expression::Named(place), program.map_or(0, |program| program.depth))
    }

    fn protobuf_type(&mut self, full: &str) -> Option<&'static str> {
        let ExpressionToken::Name(last) = self.ahead(3) else { return None };
        let ty = match (full, &**last) {
            ("google.protobuf", "Timestamp") => "google.protobuf.Timestamp",
            ("google.protobuf", "Duration") => "google.protobuf.Duration",
            _ => return None,
        };
        self.at += 4;
        Some(ty)
    }

    /// Parses the rest of `has(…)`.
    fn presence(&mut self) -> TreeResult {
        let argument = self.expression()?;
        self.expect(")")?;
        match argument.expression {
            Expression::Select(mut selection) if selection.kind == SelectKind::Value => {
                selection.kind = SelectKind::Presence;
                Ok(Tree { expression: Expression::Select(selection), depth: argument.depth })
            }
            // It is there, whatever its value.
            Expression::Named(_) => Ok(Tree { expression: Expression::Bool(true), depth: 1 }),
            _ => Err("invalid argument to has() macro".to_owned()),
        }
    }

    fn function(&mut self, name: &str) -> TreeResult {
        let (arguments, depth) = self.arguments()?;
        self.call(name, false, arguments, depth)
    }

    /// Parses the rest of a call of a method, or of a macro.
    fn method(&mut self, target: Tree, name: &str) -> TreeResult {
        let has_variable = matches!(self.peek(), ExpressionToken::Name(_)) && self.is_symbol(1, ",");
        let kind = match name {
            "all" => Some(LoopKind::All),
            "exists" => Some(LoopKind::Exists),
            "exists_one" | "existsOne" => Some(LoopKind::ExistsOne),
            "filter" => Some(LoopKind::Filter),
            "map" | "transformList" => Some(LoopKind::Map),
            "transformMap" => Some(LoopKind::MapValues),
            _ => None,
        };
        if let Some(kind) = kind.filter(|_| has_variable) {
            return self.looping(target, kind, name.starts_with("transform"));
        }
        if ["optMap", "optFlatMap"].contains(&name) && has_variable {
            self.add_value_level()?;
            let ExpressionToken::Name(variable) = self.next() else {
                return Err("a variable without a name".to_owned());
            };
            self.expect(",")?;
            let body = self.scoped(vec![variable], Self::expression)?;
            self.expect(")")?;
            let depth = target.depth.max(body.depth);
            let parts = Box::new([target.expression, body.expression]);
            return tree(Expression::OptionalMap(parts, name == "optFlatMap"), depth);
        }
        let (mut arguments, depth) = self.arguments()?;
        arguments.insert(0, target.expression);
        self.call(name, true, arguments, depth.max(target.depth))
    }

    fn scoped<T>(&mut self, variables: Vec<String>, parse: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.scope.len();
        self.scope.extend(variables);
        let parsed = parse(self);
        self.scope.truncate(outer);
        parsed
    }

    fn looping(&mut self, range: Tree, kind: LoopKind, needs_two: bool) -> TreeResult {
        self.add_value_level()?;
        let mut variables = Vec::new();
        let may_have_two = needs_two || matches!(kind, LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne);
        while let (ExpressionToken::Name(name), true) = (self.peek().clone(), self.is_symbol(1, ",")) {
            if variables.len() == if may_have_two { 2 } else { 1 } {
                break;
            }
            variables.push(name);
            self.at += 2;
        }
        let has_two = variables.len() == 2;
        if needs_two != has_two && needs_two {
            return Err("a macro without its variables".to_owned());
        }
        let mut bodies = self.scoped(variables, |parser| {
            let mut bodies = vec![parser.expression()?];
            if parser.take(",") {
                bodies.push(parser.expression()?);
            }
            Ok::<_, String>(bodies)
        })?;
        self.expect(")")?;
        let depth = bodies.iter().map(|body| body.depth).fold(range.depth, usize::max);
        let Some(body) = bodies.pop() else { return Err("a macro without a body".to_owned()) };
        let filter = bodies.pop().map(|filter| filter.expression);
        if filter.is_some() && !matches!(kind, LoopKind::Map | LoopKind::MapValues) {
            return Err("a macro with too many arguments".to_owned());
        }
        let looping = Loop { kind, range: range.expression, has_two, filter, body: body.expression };
        tree(Expression::Loop(Box::new(looping)), depth)
    }

    fn call(&mut self, name: &str, is_method: bool, arguments: Vec<Expression>, depth: usize) -> TreeResult {
        if !functions::is_known(name, is_method, arguments.len()) {
            return Err(format!("unknown function '{name}'"));
        }
        if name.starts_with("optional.") {
            self.add_value_level()?;
        }
        let pattern = match (name, arguments.get(1)) {
            ("matches" | "find" | "findAll", Some(Expression::Text(text))) => Some(self.pattern(text)?),
            _ => None,
        };
        tree(Expression::Call(Box::new(FunctionCall { name: name.to_owned(), is_method, arguments, pattern })), depth)
    }

    fn pattern(&mut self, text: &str) -> Result<Pattern, String> {
        Pattern::compile(text, &mut self.allowance.states).map_err(|error| error.to_string())
    }

    /// Parses arguments and the closing bracket.
    fn arguments(&mut self) -> Result<(Vec<Expression>, usize), String> {
        let (mut arguments, mut depth) = (Vec::new(), 0);
        if self.take(")") {
            return Ok((arguments, depth));
        }
        loop {
            let argument = self.expression()?;
            depth = depth.max(argument.depth);
            arguments.push(argument.expression);
            if !self.take(",") {
                break;
            }
        }
        self.expect(")")?;
        Ok((arguments, depth))
    }

    fn list(&mut self) -> TreeResult {
        self.add_value_level()?;
        let (mut elements, mut depth) = (Vec::new(), 0);
        while !self.take("]") {
            let is_optional = self.take("?");
            let value = self.expression()?;
            depth = depth.max(value.depth);
            elements.push(Element { value: value.expression, is_optional });
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
        }
        tree(Expression::List(elements), depth)
    }

    fn map(&mut self) -> TreeResult {
        self.add_value_level()?;
        let (mut entries, mut depth) = (Vec::new(), 0);
        while !self.take("}") {
            let is_optional = self.take("?");
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            depth = depth.max(key.depth).max(value.depth);
            let element = Element { value: value.expression, is_optional };
            entries.push(MapEntry { key: key.expression, element });
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        tree(Expression::Map(entries), depth)
    }
}

fn tree(expression: Expression, below: usize) -> TreeResult {
    if below >= EXPRESSION_DEPTH_MAX { Err(too_deep()) } else { Ok(Tree { expression, depth: below + 1 }) }
}

fn too_deep() -> String {
    format!("nested more than {EXPRESSION_DEPTH_MAX} levels")
}

fn unexpected(token: &ExpressionToken) -> String {
    match token {
        ExpressionToken::End => "unexpected end".to_owned(),
        ExpressionToken::Symbol(symbol) => format!("unexpected '{symbol}'"),
        ExpressionToken::Name(name) => format!("unexpected '{name}'"),
        ExpressionToken::Int(_)
        | ExpressionToken::Uint(_)
        | ExpressionToken::Double(_)
        | ExpressionToken::Text(_)
        | ExpressionToken::Bytes(_) => "unexpected literal".to_owned(),
    }
}
