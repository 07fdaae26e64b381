//! Tables of a frame: typed cells, the order of rows, and the columns that fit a width.

use std::{cmp::Ordering, fmt};

/// One cell. Cells of one column have one variant, or are [`Absent`](Datum::Absent).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Datum {
    Absent,
    Text(String),
    Count(u64),
    Bytes(u64),
    Seconds(f64),
    /// Per second.
    Rate(f64),
}

impl Datum {
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            _ => self.number().total_cmp(&other.number()),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "an order of figures for people")]
    const fn number(&self) -> f64 {
        match self {
            Self::Absent | Self::Text(_) => -1.0,
            Self::Count(count) | Self::Bytes(count) => *count as f64,
            Self::Seconds(number) | Self::Rate(number) => *number,
        }
    }

    /// True for cells that are aligned to the right.
    const fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_))
    }
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("-"),
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => f.write_str(&grouped(*count)),
            Self::Bytes(bytes) => f.write_str(&size(*bytes)),
            Self::Seconds(seconds) => f.write_str(&time(*seconds)),
            Self::Rate(rate) => write!(f, "{rate:.1}"),
        }
    }
}

/// `7,130`.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `512 B`, `4.0 KiB`, `1.2 GiB`.
#[expect(clippy::cast_precision_loss, reason = "one digit behind the point is printed")]
fn size(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if size < 1_024.0 {
            break;
        }
        (size, unit) = (size / 1_024.0, larger);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}

/// `12ms`, `75s`, `12m05s`, `3h02m`, `4d03h`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and makes NaN zero")]
fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0 => format!("{:.0}ms", seconds * 1_000.0),
        1..100 => format!("{whole}s"),
        100..3_600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h{:02}m", whole / 3_600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3_600 % 24),
    }
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridColumn {
    pub(crate) name: &'static str,
    /// Columns with the highest rank are left out first. Rank 0 always stays.
    pub(crate) rank: u8,
}

/// One table.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [GridColumn],
    pub(crate) rows: Vec<Vec<Datum>>,
    /// Reason why rows are missing: one line.
    pub(crate) note: Option<String>,
}

/// Columns between two cells.
pub(crate) const GAP: usize = 2;

/// Widths between which a column has at most a third of a table that does not fit otherwise. Longer cells end with `…`.
const CELL_WIDTHS: (usize, usize) = (16, 40);

impl Grid {
    /// Keeps the rows with `filter` in a cell, in any case.
    pub(crate) fn keep(&mut self, filter: &str) {
        let filter = filter.to_lowercase();
        self.rows.retain(|row| {
            filter.is_empty() || row.iter().any(|cell| cell.to_string().to_lowercase().contains(&filter))
        });
    }

    /// Orders the rows by a column. Equal ones keep their order.
    pub(crate) fn order(&mut self, column: usize, is_descending: bool) {
        self.rows.sort_by(|one, other| {
            let order = match (one.get(column), other.get(column)) {
                (Some(one), Some(other)) => one.order(other),
                _ => Ordering::Equal,
            };
            if is_descending { order.reverse() } else { order }
        });
    }

    /// Returns the columns that fit into `width`, each with its own width.
    pub(crate) fn fitting(&self, width: usize) -> Vec<(usize, usize)> {
        let widths: Vec<(usize, usize)> = (0..self.columns.len()).map(|at| (at, self.width(at))).collect();
        let total = |columns: &[(usize, usize)]| columns.iter().map(|(_, width)| width + GAP).sum::<usize>();
        if total(&widths) <= width + GAP {
            return widths;
        }
        let most = (width / 3).clamp(CELL_WIDTHS.0, CELL_WIDTHS.1);
        let mut columns: Vec<_> = widths.into_iter().map(|(at, width)| (at, width.min(most))).collect();
        while total(&columns) > width + GAP {
            let Some(last) = columns.iter().max_by_key(|(at, _)| self.columns[*at].rank) else { break };
            let rank = self.columns[last.0].rank;
            if rank == 0 {
                break;
            }
            columns.retain(|(at, _)| self.columns[*at].rank < rank);
        }
        columns
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.to_string().chars().count());
        cells.max().unwrap_or_default().max(self.columns[column].name.len())
    }

    /// Returns the lines of the rows within `width`: the names of the columns first.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        let columns = self.fitting(width);
        let is_number = |at: usize| self.rows.iter().any(|row| row.get(at).is_some_and(Datum::is_number));
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells = columns.iter().map(|(at, width)| {
                let text = shortened(&cell(*at), *width);
                if is_number(*at) { format!("{text:>width$}") } else { format!("{text:<width$}") }
            });
            cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
        };
        let names = line(&|at| self.columns[at].name.to_owned());
        let rows = self.rows.iter().map(|row| line(&|at| row.get(at).map(ToString::to_string).unwrap_or_default()));
        std::iter::once(names).chain(rows).collect()
    }
}

/// Returns the text, or its beginning with `…`.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[GridColumn] = &[
        GridColumn { name: "TYPE", rank: 0 },
        GridColumn { name: "OBJECTS", rank: 1 },
        GridColumn { name: "WINDOW", rank: 2 },
    ];

    fn grid() -> Grid {
        let row = |name: &str, objects, bytes| vec![Datum::Text(name.into()), Datum::Count(objects), bytes];
        let rows = vec![row("pods", 7_130, Datum::Bytes(1 << 21)), row("nodes", 80, Datum::Absent)];
        Grid { name: "types", columns: COLUMNS, rows, note: None }
    }

    #[test]
    fn cells_have_units() {
        let cells = [
            (Datum::Count(0), "0"),
            (Datum::Count(999), "999"),
            (Datum::Count(1_234_567), "1,234,567"),
            (Datum::Bytes(1_023), "1023 B"),
            (Datum::Bytes(1_536), "1.5 KiB"),
            (Datum::Bytes(5 << 30), "5.0 GiB"),
            (Datum::Seconds(0.0123), "12ms"),
            (Datum::Seconds(75.9), "75s"),
            (Datum::Seconds(3_599.0), "59m59s"),
            (Datum::Seconds(90_000.0), "1d01h"),
            (Datum::Seconds(f64::NAN), "NaNms"),
            (Datum::Rate(12.34), "12.3"),
            (Datum::Absent, "-"),
        ];
        for (cell, text) in cells {
            assert_eq!(cell.to_string(), text);
        }
    }

    #[test]
    fn columns_of_the_highest_rank_are_left_out_first() {
        let grid = grid();
        assert_eq!(grid.lines(80), ["TYPE   OBJECTS   WINDOW", "pods     7,130  2.0 MiB", "nodes       80        -"]);
        assert_eq!(grid.lines(20), ["TYPE   OBJECTS", "pods     7,130", "nodes       80"]);
        assert_eq!(grid.lines(1), ["TYPE", "pods", "nodes"]);
    }

    #[test]
    fn rows_are_filtered_and_ordered() {
        let names = |grid: &Grid| grid.rows.iter().map(|row| row[0].to_string()).collect::<Vec<_>>();
        let arranged = |filter, column, is_descending| {
            let mut grid = grid();
            grid.order(column, is_descending);
            grid.keep(filter);
            names(&grid)
        };
        assert_eq!(arranged("", 0, false), ["nodes", "pods"]);
        assert_eq!(arranged("", 1, true), ["pods", "nodes"]);
        assert_eq!(arranged("", 2, false), ["nodes", "pods"]);
        assert_eq!(arranged("NOD", 0, false), ["nodes"]);
        assert_eq!(arranged("x", 9, false), [""; 0]);
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("äöüß", 3), "äö…");
    }
}
