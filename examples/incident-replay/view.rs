//! The view while an act runs: four lines that are drawn anew ten times a second. Nothing without a terminal.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use measured::{Failure, memory::mib};

use crate::sampler::MemorySample;

/// Columns of a curve.
const COLUMNS: usize = 48;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Column of a time without a server.
const AWAY: char = '·';

/// The four lines.
pub(crate) struct View {
    _lines: MultiProgress,
    title: ProgressBar,
    memory: ProgressBar,
    copies: ProgressBar,
    bystander: ProgressBar,
}

/// Values of one moment.
pub(crate) struct Moment<'a> {
    pub(crate) title: String,
    pub(crate) samples: &'a [MemorySample],
    pub(crate) peak: usize,
    pub(crate) in_sync: usize,
    /// Text behind the bar of the copies.
    pub(crate) counts: String,
    /// The bystander's last lease renewals, in milliseconds.
    pub(crate) renewals: &'a [f64],
    pub(crate) failed: usize,
}

impl View {
    /// Begins an act with this number of copies.
    pub(crate) fn begin(copies: usize) -> Result<Self, Failure> {
        let lines = MultiProgress::new();
        let text = ProgressStyle::with_template("{msg}")?;
        let line = || lines.add(ProgressBar::new(copies as u64).with_style(text.clone()));
        let (title, memory) = (line(), line());
        let bar = ProgressStyle::with_template("copies in sync  {bar:48} {pos} of {len}{msg}")?;
        let copies = lines.add(ProgressBar::new(copies as u64).with_style(bar));
        let bystander = line();
        Ok(Self { _lines: lines, title, memory, copies, bystander })
    }

    /// Draws a moment.
    pub(crate) fn draw(&self, moment: &Moment<'_>) {
        self.title.set_message(moment.title.clone());
        let curve: Vec<Option<f64>> = moment.samples.iter().map(|sample| sample.bytes.map(mib)).collect();
        let now = curve.last().copied().flatten().map_or_else(|| "away".to_owned(), |now| format!("{now:.0} MiB"));
        let curve = sparkline(&curve, COLUMNS);
        self.memory.set_message(format!("server memory   {curve} {now}, at most {:.0} MiB", mib(moment.peak)));
        self.copies.set_position(moment.in_sync as u64);
        self.copies.set_message(moment.counts.clone());
        let last = moment.renewals.last().map_or_else(|| "none".to_owned(), |last| format!("{last:.0} ms"));
        let renewals: Vec<Option<f64>> = moment.renewals.iter().copied().map(Some).collect();
        let curve = sparkline(&renewals, COLUMNS);
        self.bystander.set_message(format!("lease renewals  {curve} {last}, {} failed", moment.failed));
    }
}

impl Drop for View {
    fn drop(&mut self) {
        for line in [&self.title, &self.memory, &self.copies, &self.bystander] {
            line.finish_and_clear();
        }
    }
}

/// Draws values as a curve of `columns` characters, each the largest of its part, scaled to the largest of all.
fn sparkline(values: &[Option<f64>], columns: usize) -> String {
    let most = values.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    let columns_used = columns.min(values.len());
    let part =
        |column: usize| &values[column * values.len() / columns_used..(column + 1) * values.len() / columns_used];
    let drawn = (0..columns_used).map(|column| match part(column).iter().flatten().copied().reduce(f64::max) {
        None => AWAY,
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a level of eight")]
        Some(value) => LEVELS[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
    });
    drawn.chain(std::iter::repeat_n(' ', columns - columns_used)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_scaled_to_its_largest_value() {
        let all: Vec<Option<f64>> = (1..=8).map(|value| Some(f64::from(value))).collect();
        assert_eq!(sparkline(&all, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&all, 4), "▂▄▆█", "each column shows the largest of its part");
        assert_eq!(sparkline(&[Some(8.0), None, Some(0.0)], 5), "█·▁  ");
        assert_eq!(sparkline(&[], 3), "   ");
    }
}
