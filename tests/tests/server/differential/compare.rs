//! Compares two responses.
//!
//! Positions and uids differ between servers, so they are paired: where one server repeats a value, the other must
//! repeat its own. This also distinguishes a no-op write from one that made a version.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::Answer;

/// One difference between two responses.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Dotted, with `[]` for each item of a list.
    pub(crate) path: String,
    pub(crate) stock: Option<Value>,
    pub(crate) ours: Option<Value>,
}

/// This server's values by the stock server's, and the reverse.
#[derive(Default)]
pub(crate) struct Pairs {
    ours: HashMap<String, String>,
    stock: HashMap<String, String>,
}

impl Pairs {
    /// Returns true if the two values are paired; pairs them if both are new.
    fn are_paired(&mut self, stock: &str, ours: &str) -> bool {
        let known = self.ours.get(stock).is_none_or(|known| known == ours);
        if known && self.stock.get(ours).is_none_or(|known| known == stock) {
            self.ours.insert(stock.to_owned(), ours.to_owned());
            self.stock.insert(ours.to_owned(), stock.to_owned());
            return true;
        }
        false
    }

    /// Replaces the stock server's positions and uids in a text by this server's.
    fn translate(&self, text: &str) -> String {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        let mut translated = String::new();
        for piece in text.split_inclusive(|letter| !is_part(letter)) {
            let word = piece.trim_end_matches(|letter| !is_part(letter));
            // A single digit is a count.
            let known = self.ours.get(word).filter(|_| word.len() > 1);
            translated.push_str(known.map_or(word, String::as_str));
            translated.push_str(&piece[word.len()..]);
        }
        translated
    }
}

/// Returns all differences between the responses of servers with objects of their own.
pub(crate) fn differences(stock: &Answer, ours: &Answer, pairs: &mut Pairs) -> Vec<Difference> {
    compared(stock, ours, &mut |path, stock, ours| is_same_text(path, stock, ours, pairs))
}

/// Returns all differences between the responses of servers with the same objects. Positions of lists are not compared,
/// and of continue tokens only that there is one.
pub(crate) fn differences_of_same(direct: &Answer, cached: &Answer) -> Vec<Difference> {
    compared(direct, cached, &mut |path, direct, cached| match path {
        "metadata.continue" => direct.is_empty() == cached.is_empty(),
        // A second may pass between the two.
        "rows[].cells[]" => direct == cached || is_age(direct) && is_age(cached),
        _ => direct == cached,
    })
}

/// True for the text of an age, such as `5s` or `2m10s`.
fn is_age(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h', 'd', 'y'])
        && text.chars().all(|letter| letter.is_ascii_alphanumeric())
}

/// Returns true if two texts at a path are equal: path, the first server's text, the second one's.
type IsSameText<'a> = &'a mut dyn FnMut(&str, &str, &str) -> bool;

fn compared(stock: &Answer, ours: &Answer, is_same: IsSameText<'_>) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differ = |path: &str, stock: Value, ours: Value| {
        if stock != ours {
            found.push(Difference { path: path.to_owned(), stock: Some(stock), ours: Some(ours) });
        }
    };
    differ("code", stock.code.into(), ours.code.into());
    if stock.code != ours.code {
        // Bodies of responses with different codes are not comparable.
        return found;
    }
    differ("warnings", stock.warnings.clone().into(), ours.warnings.clone().into());
    differ("content-type", stock.content_type.clone().into(), ours.content_type.clone().into());
    value("", &stock.body, &ours.body, is_same, &mut found);
    found
}

fn value(path: &str, stock: &Value, ours: &Value, is_same: IsSameText<'_>, found: &mut Vec<Difference>) {
    match (stock, ours) {
        (Value::Object(stock), Value::Object(ours)) => {
            let mut members: BTreeMap<&String, (Option<&Value>, Option<&Value>)> = BTreeMap::new();
            for (name, value) in stock {
                members.entry(name).or_default().0 = Some(value);
            }
            for (name, value) in ours {
                members.entry(name).or_default().1 = Some(value);
            }
            for (name, both) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match both {
                    (Some(stock), Some(ours)) => value(&path, stock, ours, is_same, found),
                    (stock, ours) => found.push(Difference { path, stock: stock.cloned(), ours: ours.cloned() }),
                }
            }
        }
        (Value::Array(stock), Value::Array(ours)) if stock.len() == ours.len() => {
            for (stock, ours) in stock.iter().zip(ours) {
                value(&format!("{path}[]"), stock, ours, is_same, found);
            }
        }
        (Value::String(one), Value::String(other)) if is_same(path, one, other) => {}
        _ if stock == ours => {}
        _ => found.push(Difference { path: path.to_owned(), stock: Some(stock.clone()), ours: Some(ours.clone()) }),
    }
}

fn is_same_text(path: &str, stock: &str, ours: &str, pairs: &mut Pairs) -> bool {
    if path == "metadata.continue" {
        // A token contains a position.
        return stock.is_empty() == ours.is_empty();
    }
    match path.rsplit_once("metadata.") {
        Some((before, "resourceVersion" | "uid")) if before.is_empty() || before == "items[]." => {
            pairs.are_paired(stock, ours)
        }
        // Both servers used their own clocks.
        Some((_, "creationTimestamp" | "deletionTimestamp")) => stock.len() == ours.len(),
        Some(_) | None => {
            path == "details.uid" && pairs.are_paired(stock, ours)
                || pairs.translate(stock) == ours
                || stock.contains("in record") && without_digits(stock) == without_digits(ours)
        }
    }
}

/// For messages about the present version of an object: no answer may have shown it since a collection was deleted.
fn without_digits(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
