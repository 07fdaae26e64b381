//! Expressions as trees, with names resolved to places.

use crate::pattern::Pattern;

/// An expression.
pub(super) enum Expression {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// `self`
    Subject,
    /// `oldSelf`
    OldSubject,
    /// A variable of a macro, by its place among those in scope.
    Local(usize),
    /// A named expression, by its place among those of the scope: `variables.name`.
    Named(usize),
    TypeName(&'static str),
    Select(Box<MemberSelection>),
    Index(Box<ItemSelection>),
    Call(Box<FunctionCall>),
    List(Vec<Element>),
    Map(Vec<MapEntry>),
    /// All of them are true: `&&`.
    And(Vec<Self>),
    /// One of them is true: `||`.
    Or(Vec<Self>),
    Not(Box<Self>),
    Negate(Box<Self>),
    Conditional(Box<[Self; 3]>),
    Binary(BinaryOperator, Box<[Self; 2]>),
    Loop(Box<Loop>),
    /// `optMap` and `optFlatMap`: an optional value, the body for it, and true if the body makes the optional result.
    OptionalMap(Box<[Self; 2]>, bool),
}

/// `operand.name`
pub(super) struct MemberSelection {
    pub operand: Expression,
    pub name: String,
    pub kind: SelectKind,
}

/// The result of a selection.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum SelectKind {
    Value,
    /// True if the member is there: `has(operand.name)`.
    Presence,
    /// The member, or no value: `operand.?name`.
    Optional,
}

/// `operand[at]`, or `operand[?at]`.
pub(super) struct ItemSelection {
    pub operand: Expression,
    pub at: Expression,
    pub is_optional: bool,
}

/// A call of a function, or of a method with its receiver as the first argument.
pub(super) struct FunctionCall {
    pub name: String,
    pub is_method: bool,
    pub arguments: Vec<Expression>,
    /// The pattern, if it is a constant.
    pub pattern: Option<Pattern>,
}

/// An item of a list; an optional one without a value is left out.
pub(super) struct Element {
    pub value: Expression,
    pub is_optional: bool,
}

/// A member of a map.
pub(super) struct MapEntry {
    pub key: Expression,
    pub element: Element,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BinaryOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A macro over the items of a list, or the keys of a map.
pub(super) struct Loop {
    pub kind: LoopKind,
    pub range: Expression,
    /// True if the body knows the index or key, and the value.
    pub has_two: bool,
    pub filter: Option<Expression>,
    pub body: Expression,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    /// `map` and `transformList`.
    Map,
    /// `transformMap`.
    MapValues,
}
