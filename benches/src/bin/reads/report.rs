//! Prints measurements beside their targets.

use std::{fmt::Write as _, time::Duration};

/// Allowed growth of a read's cost with seven times as many objects.
const SAME: f64 = 1.5;

/// Limit of a read's cost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// At most this much CPU time of the server.
    AtMost { micros: u64 },
    /// At most the cost at the smallest size, times [`SAME`].
    SameAtAnySize,
    /// At most the cost per object at the smallest size, times [`SAME`].
    ByObject,
    /// No limit.
    None,
}

/// Result of a read at one size.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) pods: usize,
    pub(crate) objects: usize,
    pub(crate) bytes: usize,
    pub(crate) cpu: Duration,
    pub(crate) target: Target,
    /// The limit, if it was exceeded.
    pub(crate) missed: Option<f64>,
}

impl Row {
    /// Compares the row with its target; `small` are the rows of the smallest size.
    pub(crate) fn compare(&mut self, small: &[Self]) {
        let limit = self.limit(small);
        self.missed = limit.filter(|&limit| micros(self.cpu) > limit);
    }

    /// True if the target was met.
    pub(crate) const fn holds(&self) -> bool {
        self.missed.is_none()
    }

    #[expect(clippy::cast_precision_loss, reason = "microseconds and counts are far below 2^52")]
    fn limit(&self, small: &[Self]) -> Option<f64> {
        let before = small.iter().find(|row| row.what == self.what)?;
        match self.target {
            Target::AtMost { micros } => Some(micros as f64),
            Target::SameAtAnySize => Some(micros(before.cpu) * SAME),
            Target::ByObject => Some(micros(before.cpu) / before.objects as f64 * self.objects as f64 * SAME),
            Target::None => None,
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[expect(clippy::print_stdout, reason = "the report is what the program is for")]
pub(crate) fn print(rows: &[Row]) {
    let small: Vec<Row> = rows.iter().filter(|row| row.pods == rows[0].pods).cloned().collect();
    println!("{:<30} {:>7} {:>8} {:>11} {:>12} {:>12}", "read", "pods", "objects", "bytes", "server µs", "limit µs");
    for row in rows {
        let limit = row.limit(&small).map_or_else(|| "-".to_owned(), |limit| format!("{limit:.0}"));
        let mark = if row.holds() { "" } else { "  MISSED" };
        let Row { what, pods, objects, bytes, .. } = row;
        println!("{what:<30} {pods:>7} {objects:>8} {bytes:>11} {:>12.1} {limit:>12}{mark}", micros(row.cpu));
    }
}

/// The rows as JSON.
pub(crate) fn json(rows: &[Row]) -> String {
    let mut text = String::from("[\n");
    for (place, row) in rows.iter().enumerate() {
        let comma = if place + 1 < rows.len() { "," } else { "" };
        let Row { what, pods, objects, bytes, .. } = row;
        let cpu = micros(row.cpu);
        let _ = writeln!(
            text,
            r#"  {{"read":"{what}","pods":{pods},"objects":{objects},"bytes":{bytes},"serverMicros":{cpu:.1},"missed":{}}}{comma}"#,
            !row.holds()
        );
    }
    text.push_str("]\n");
    text
}
