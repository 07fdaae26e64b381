//! The table, parsed once. Its head says what the rows mean.

use std::{collections::HashMap, sync::LazyLock};

use api_rules::registry::ResourceType;

use super::{
    by_hand,
    checks::{self, ValueCheck},
    found::FoundCauses,
    place::Place,
    texts,
};

const TEXT: &str = include_str!("table.txt");

/// All rows, by type.
pub(super) struct ValidationTable {
    /// Places of the types by their names.
    places: HashMap<String, usize>,
    types: Vec<Vec<RuleRow>>,
}

/// A rule for a value.
struct RuleRow {
    steps: Vec<RowStep>,
    when: RowCondition,
    rule: RowRule,
}

/// A step from an object to the value.
enum RowStep {
    Member(String),
    Items,
    Values,
}

/// Which values a rule is for.
#[derive(Clone, Copy)]
enum RowCondition {
    Always,
    /// Those that are present.
    Present,
    /// Those that are not empty.
    Filled,
    /// Those that are not empty; an empty one is a required value.
    Required,
}

enum RowRule {
    /// The rows of the type at this place. An absent value has none.
    Type(usize),
    Text(texts::TextRule),
    Check(ValueCheck, RowArguments),
}

/// The text behind the check of a row.
#[derive(Default)]
pub(super) struct RowArguments {
    pub(super) text: String,
    pub(super) words: Vec<String>,
}

impl RowArguments {
    fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            words: text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        }
    }

    pub(super) fn number(&self, at: usize) -> i64 {
        self.words.get(at).and_then(|word| word.parse().ok()).unwrap_or_default()
    }
}

impl ValidationTable {
    pub(super) fn get() -> &'static Self {
        static TABLE: LazyLock<ValidationTable> = LazyLock::new(|| ValidationTable::parse(TEXT));
        &TABLE
    }

    /// Returns the place of the rules for new objects of a kind, or for updates.
    pub(super) fn kind(&self, ty: &ResourceType, is_update: bool) -> Option<usize> {
        let dot = if ty.group.is_empty() { "" } else { "." };
        let kind = format!("{}{dot}{}", ty.kind, ty.group);
        let update = is_update.then(|| self.places.get(&format!("update of {kind}"))).flatten();
        update.or_else(|| self.places.get(&kind)).copied()
    }

    pub(super) fn run_named(&self, name: &str, place: &Place<'_>, found: &mut FoundCauses) {
        if let Some(rows) = self.places.get(name) {
            self.run(*rows, place, found);
        }
    }

    pub(super) fn run(&self, rows: usize, place: &Place<'_>, found: &mut FoundCauses) {
        if place.is_retained() {
            return;
        }
        for row in &self.types[rows] {
            self.walk(row, &row.steps, place, found);
        }
    }

    fn walk(&self, row: &RuleRow, steps: &[RowStep], place: &Place<'_>, found: &mut FoundCauses) {
        let Some((step, further)) = steps.split_first() else { return self.apply(row, place, found) };
        match step {
            RowStep::Member(name) => {
                let inner = place.member(name);
                if !inner.is_retained() && (further.is_empty() || inner.is_set()) {
                    self.walk(row, further, &inner, found);
                }
            }
            RowStep::Items => place.items().for_each(|item| self.walk(row, further, &item, found)),
            RowStep::Values => place.entries().for_each(|(_, value)| self.walk(row, further, &value, found)),
        }
    }

    fn apply(&self, row: &RuleRow, place: &Place<'_>, found: &mut FoundCauses) {
        match row.when {
            RowCondition::Present if !place.is_set() => return,
            RowCondition::Filled if place.is_empty() => return,
            RowCondition::Required if place.is_empty() => return found.required(place, ""),
            RowCondition::Always | RowCondition::Present | RowCondition::Filled | RowCondition::Required => {}
        }
        match &row.rule {
            RowRule::Type(rows) if place.is_set() => self.run(*rows, place, found),
            RowRule::Type(_) => {}
            RowRule::Text(rule) => found.refuse(place, &rule(place.text())),
            RowRule::Check(check, arguments) => check(found, place, arguments),
        }
    }

    /// Rows of another form are left out: a test compares the number of rows.
    fn parse(text: &str) -> Self {
        let mut table = Self { places: HashMap::new(), types: Vec::new() };
        let mut current = 0;
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.strip_prefix(' ') {
                None => current = table.place_of(line),
                Some(row) => {
                    if let Some(row) = table.row(row) {
                        table.types[current].push(row);
                    }
                }
            }
        }
        table
    }

    fn place_of(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.types.push(Vec::new());
        self.places.insert(name.to_owned(), self.types.len() - 1);
        self.types.len() - 1
    }

    fn row(&mut self, row: &str) -> Option<RuleRow> {
        let (path, rule) = row.split_once(' ')?;
        let (name, arguments) = rule.split_once(' ').unwrap_or((rule, ""));
        let (when, name) = match name.split_at_checked(1) {
            Some(("~", name)) => (RowCondition::Present, name),
            Some(("?", name)) => (RowCondition::Filled, name),
            Some(("!", name)) => (RowCondition::Required, name),
            _ => (RowCondition::Always, name),
        };
        let rule = if name.starts_with(|first: char| first.is_ascii_uppercase()) {
            RowRule::Type(self.place_of(name))
        } else if let Some(rule) = texts::find(name) {
            RowRule::Text(rule)
        } else {
            let check = name.strip_prefix('@').map_or_else(|| checks::find(name), by_hand::find)?;
            RowRule::Check(check, RowArguments::new(arguments))
        };
        Some(RuleRow { steps: steps(path), when, rule })
    }

    #[cfg(test)]
    pub(super) fn rows(&self) -> usize {
        self.types.iter().map(Vec::len).sum()
    }
}

fn steps(path: &str) -> Vec<RowStep> {
    let mut steps = Vec::new();
    for part in path.split('.').filter(|part| *part != "-") {
        let (name, holder) = match (part.strip_suffix("[]"), part.strip_suffix("{}")) {
            (Some(name), _) => (name, Some(RowStep::Items)),
            (_, Some(name)) => (name, Some(RowStep::Values)),
            _ => (part, None),
        };
        steps.push(RowStep::Member(name.to_owned()));
        steps.extend(holder);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_understood() {
        let table = ValidationTable::get();
        let rows = TEXT.lines().filter(|line| line.starts_with(' ')).count();
        assert_eq!(table.rows(), rows);
        let empty = table.places.iter().filter(|(_, place)| table.types[**place].is_empty()).map(|(name, _)| name);
        assert_eq!(empty.collect::<Vec<_>>(), Vec::<&String>::new(), "types without rows");
    }
}
