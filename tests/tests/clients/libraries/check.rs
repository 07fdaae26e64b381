//! Checks a client's output against the history.
//!
//! INVARIANT: a broken connection excuses no deviation. A library may deviate from one event per change, in order, only
//! by its [`Rule`], and only for reads of initial state that the proxy saw.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Deserialize;

use super::history::{History, Kind, State, Told};

/// The way a library reports that it read the whole state again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// By a line with all objects, from the library or the program: raw watches.
    States,
    /// As the difference between its old and new state, in any order. JavaScript's informer does so too (`cache.ts`,
    /// `isSameVersion`).
    Differences,
    /// As the difference, with unchanged objects reported as modified: client-go's informers call `OnUpdate` for every
    /// object that a relist found again (`tools/cache/shared_informer.go`: a listener counts as resyncing until its
    /// first resync is due, and without a period that never happens).
    Everything,
    /// Per object: changes of different objects may be reordered, and intermediate states skipped. client-java's queue
    /// hands over all deltas of an object at once (`cache/DeltaFIFO.java`), and its reflector lists again after every
    /// broken connection (`cache/ReflectorRunnable.java`).
    EachObject,
}

/// One line of output.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Line {
    /// `ADDED`, `MODIFIED`, `DELETED`; `APPLIED` for either of the first two; `RELIST` with `items`.
    #[serde(default)]
    pub(crate) event: String,
    #[serde(default)]
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) rv: String,
    #[serde(default)]
    pub(crate) items: BTreeMap<String, String>,
    /// The client's final copy.
    pub(crate) cache: Option<BTreeMap<String, String>>,
}

/// Objects as a program printed them.
pub(crate) fn state(printed: &BTreeMap<String, String>) -> State {
    printed.iter().map(|(key, version)| (key.clone(), version.parse().unwrap())).collect()
}

/// Checks that every matching change came once and in order. At the states at `positions`, in order, a client may skip
/// to one of them and continue after it.
///
/// # Errors
/// Returns the first unexpected line and the expected event.
pub(crate) fn check(rule: Rule, lines: &[Line], history: &History, positions: &[u64]) -> Result<(), String> {
    if rule == Rule::EachObject {
        return check_each_object(lines, history);
    }
    let positions = positions.iter().copied().collect();
    let mut reader = Reader { history, next: 0, held: State::new(), positions, retold: State::new() };
    let mut lines = lines.iter().filter(|line| !line.event.is_empty());
    while let Some(line) = lines.next() {
        if line.event == "RELIST" {
            reader.relist(state(&line.items)).map_err(|error| format!("a relist: {error}"))?;
        } else if !reader.is_next(line) && !reader.is_retold(line) {
            match rule {
                Rule::States => return Err(format!("{line:?}, but due was {:?}", reader.due())),
                Rule::Differences | Rule::Everything | Rule::EachObject => reader.difference(rule, line, &mut lines)?,
            }
        }
    }
    reader.end()
}

/// Checks that every reported state of an object existed, that its versions never decrease, and that the last one is the
/// history's.
///
/// # Errors
/// Returns the first unexpected line, or the final state.
pub(crate) fn check_each_object(lines: &[Line], history: &History) -> Result<(), String> {
    let states: BTreeSet<(&str, u64)> = history
        .told()
        .iter()
        .filter(|told| told.kind != Kind::Deleted)
        .map(|told| (told.key.as_str(), told.version))
        .collect();
    let mut held = State::new();
    for line in lines.iter().filter(|line| !line.event.is_empty()) {
        if line.event == "RELIST" {
            let items = state(&line.items);
            let fits = |(key, version): (&String, &u64)| {
                states.contains(&(key, *version)) && held.get(key).is_none_or(|before| before <= version)
            };
            if let Some(item) = items.iter().find(|item| !fits(*item)) {
                return Err(format!("a relist with {item:?} after {:?}", held.get(item.0)));
            }
            held = items;
            continue;
        }
        let version: u64 = line.rv.parse().map_err(|error| format!("{line:?}: {error}"))?;
        let before = held.get(&line.key).copied();
        let is_state = states.contains(&(&line.key, version));
        let fits = match &*line.event {
            "ADDED" => before.is_none() && is_state,
            "MODIFIED" => before.is_some_and(|before| before <= version) && is_state,
            "APPLIED" => before.is_none_or(|before| before <= version) && is_state,
            // If the object was deleted before the client listed again, the client knows only its last state.
            "DELETED" => before.is_some_and(|before| before <= version),
            _ => false,
        };
        if !fits {
            return Err(format!("{line:?} after {before:?}"));
        }
        match &*line.event {
            "DELETED" => held.remove(&line.key),
            _ => held.insert(line.key.clone(), version),
        };
    }
    let due = history.state_at(u64::MAX);
    if held == due { Ok(()) } else { Err(format!("in the end {held:?}, not {due:?}")) }
}

/// A client's position in the history.
struct Reader<'a> {
    history: &'a History,
    /// Index of the next event that is due.
    next: usize,
    held: State,
    /// Positions of states that the client read and has not reported yet.
    positions: VecDeque<u64>,
    /// Objects that the last relist found unchanged. Each may be reported once more before the next change.
    retold: State,
}

impl Reader<'_> {
    fn due(&self) -> Option<&Told> {
        self.history.told().get(self.next)
    }

    /// Accepts a line that is the next event.
    fn is_next(&mut self, line: &Line) -> bool {
        let fits = |told: &&Told| line.key == told.key && line.rv == told.version.to_string() && says(line, told.kind);
        let Some(told) = self.due().filter(fits).cloned() else { return false };
        match told.kind {
            Kind::Added | Kind::Modified => self.held.insert(told.key, told.version),
            Kind::Deleted => self.held.remove(&told.key),
        };
        self.next += 1;
        self.retold.clear();
        true
    }

    /// Accepts a line that reports again an object that a relist found unchanged.
    fn is_retold(&mut self, line: &Line) -> bool {
        let fits = |version: &u64| says(line, Kind::Modified) && line.rv == version.to_string();
        self.retold.get(&line.key).is_some_and(fits) && self.retold.remove(&line.key).is_some()
    }

    /// The position of the next state that does not go back.
    fn position(&mut self) -> Result<u64, String> {
        let reached = self.next.checked_sub(1).map_or(0, |last| self.history.told()[last].version);
        while let Some(position) = self.positions.pop_front() {
            if position >= reached {
                return Ok(position);
            }
        }
        Err(format!("nothing was read again, and due was {:?}", self.due()))
    }

    fn go_to(&mut self, position: u64) {
        self.held = self.history.state_at(position);
        self.next = self.history.told().partition_point(|told| told.version <= position);
    }

    fn relist(&mut self, items: State) -> Result<(), String> {
        let position = self.position()?;
        self.go_to(position);
        if self.held == items { Ok(()) } else { Err(format!("{items:?} at {position}, not {:?}", self.held)) }
    }

    /// Accepts the difference after a relist, of which `first` is the first line.
    fn difference<'l>(
        &mut self,
        rule: Rule,
        first: &'l Line,
        rest: &mut impl Iterator<Item = &'l Line>,
    ) -> Result<(), String> {
        let before = self.held.clone();
        let (position, mut due) = loop {
            let position = self.position().map_err(|error| format!("{first:?}: {error}"))?;
            self.go_to(position);
            let due = difference(&before, &self.held);
            let again = self.held.iter().filter(|_| rule == Rule::Everything);
            self.retold =
                again.filter(|(key, _)| !due.contains_key(*key)).map(|(key, at)| (key.clone(), *at)).collect();
            // A relist that changed nothing needs no line.
            if !due.is_empty() || self.retold.contains_key(&first.key) {
                break (position, due);
            }
        };
        let mut line = first;
        loop {
            let fits = self.is_retold(line)
                || due.remove(&line.key).is_some_and(|(kind, version)| {
                    says(line, kind) && (kind == Kind::Deleted || line.rv == version.to_string())
                });
            if !fits {
                return Err(format!("{line:?} is no difference to the state at {position}; left were {due:?}"));
            }
            if due.is_empty() {
                return Ok(());
            }
            line = rest.next().ok_or_else(|| format!("not told of the state at {position}: {due:?}"))?;
        }
    }

    /// Checks that no event is missing at the end.
    fn end(self) -> Result<(), String> {
        self.due().map_or(Ok(()), |told| Err(format!("not told: {told:?}")))
    }
}

fn says(line: &Line, kind: Kind) -> bool {
    match kind {
        Kind::Added => ["ADDED", "APPLIED"].contains(&line.event.as_str()),
        Kind::Modified => ["MODIFIED", "APPLIED"].contains(&line.event.as_str()),
        Kind::Deleted => line.event == "DELETED",
    }
}

fn difference(before: &State, now: &State) -> BTreeMap<String, (Kind, u64)> {
    let mut found = BTreeMap::new();
    for (key, version) in now {
        match before.get(key) {
            Some(held) if held == version => {}
            Some(_) => drop(found.insert(key.clone(), (Kind::Modified, *version))),
            None => drop(found.insert(key.clone(), (Kind::Added, *version))),
        }
    }
    for (key, version) in before.iter().filter(|(key, _)| !now.contains_key(*key)) {
        found.insert(key.clone(), (Kind::Deleted, *version));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let mut history = History::default();
        for (key, matches, version) in [
            ("a", Some(true), 1),
            ("b", Some(false), 2),
            ("a", Some(true), 3),
            ("b", Some(true), 4),
            ("a", Some(false), 5),
            ("c", Some(true), 6),
            ("b", None, 7),
        ] {
            history.wrote(key, matches, version);
        }
        history
    }

    /// Parses `+a1 ~a3 -a5`, with `=` and items for a relist.
    fn lines(text: &str) -> Vec<Line> {
        let parse = |word: &str| {
            let (sign, rest) = word.split_at(1);
            let pairs = rest.split(',').filter(|pair| !pair.is_empty()).map(|pair| pair.split_at(1));
            let pairs = pairs.map(|(key, version)| (key.to_owned(), version.to_owned()));
            let event = match sign {
                "+" => "ADDED",
                "~" => "MODIFIED",
                "-" => "DELETED",
                _ => return Line { event: "RELIST".to_owned(), items: pairs.collect(), ..Line::default() },
            };
            let (key, rv) = rest.split_at(1);
            Line { event: event.to_owned(), key: key.to_owned(), rv: rv.to_owned(), ..Line::default() }
        };
        text.split(' ').map(parse).collect()
    }

    #[test]
    fn what_was_seen_once_and_in_order_passes() {
        for (rule, text, positions) in [
            (Rule::States, "= +a1 ~a3 +b4 -a5 +c6 -b7", vec![0]),
            (Rule::States, "=a3 +b4 -a5 +c6 -b7", vec![3]),
            (Rule::States, "=a1 ~a3 =b4 +c6 -b7", vec![1, 5]),
            (Rule::Differences, "+a3 +b4 -a5 +c6 -b7", vec![3]),
            (Rule::Differences, "+a1 +b4 -a1 +c6 -b7", vec![1, 5]),
            (Rule::Differences, "+a1 ~a3 +b4 -a5 +c6 -b7", vec![1, 1, 4]),
            (Rule::Differences, "+a1 +c6 -a1", vec![1, 7]),
            (Rule::Everything, "+a1 ~a1 ~a3 +b4 ~a3 ~b4 -a5 +c6 ~c6 ~b4 -b7", vec![1, 2, 4, 6]),
            (Rule::Everything, "+a1 ~a3 +b4 ~b4 +c6 -a5 -b7", vec![1, 6]),
        ] {
            assert_eq!(check(rule, &lines(text), &history(), &positions), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_is_missing_doubled_or_turned_around_is_found() {
        for (rule, text, positions) in [
            (Rule::States, "= +a1 +b4 -a5 +c6 -b7", vec![0]),
            (Rule::States, "= +a1 +a1 ~a3 +b4 -a5 +c6 -b7", vec![0]),
            (Rule::States, "= +a1 ~a3 +b4 +c6 -a5 -b7", vec![0]),
            (Rule::States, "=a1 ~a3 =b4 +c6 -b7", vec![1]),
            (Rule::States, "=a1 +b4 -a5 +c6 -b7", vec![3]),
            (Rule::States, "= +a1 ~a3 +b4 -a5 +c6", vec![0]),
            (Rule::Differences, "+a1 +b4 -a1 +c6 -b7", vec![1]),
            (Rule::Differences, "+a1 +b4 +c6 -b7", vec![1, 5]),
            (Rule::Differences, "+a1 +b4 -a1", vec![1, 5]),
            (Rule::Differences, "+a1 ~a1 ~a3 +b4 -a5 +c6 -b7", vec![1, 2]),
            (Rule::Everything, "+a1 ~a1 ~a1 ~a1 ~a3 +b4 -a5 +c6 -b7", vec![1, 2]),
            (Rule::Everything, "+a1 ~a3 ~a1 +b4 -a5 +c6 -b7", vec![1, 2]),
        ] {
            assert!(check(rule, &lines(text), &history(), &positions).is_err(), "{text}");
        }
    }
}
