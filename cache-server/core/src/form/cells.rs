//! The cells of a table row: computed once per object version, with gaps for ages that are written when the row is
//! sent.
//!
//! Source: apimachinery `util/duration`, `HumanDuration`.

/// Computes the cells of objects of one kind.
pub trait Rows: Send + Sync {
    /// Returns the cells of `object`, which is JSON. Must not panic: an unreadable value gets the cell of an absent
    /// one, and the object of a bookmark is empty.
    fn cells(&self, object: &[u8]) -> Cells;
}

/// The text of a `cells` array, with gaps for ages that are written when the row is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    text: String,
    /// Offset in the text, ascending, and start of the age, in Unix seconds.
    ages: Vec<(u32, i64)>,
}

impl Cells {
    /// Returns an empty text. The caller writes the array's brackets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends JSON text verbatim.
    pub fn push(&mut self, json: &str) {
        self.text.push_str(json);
    }

    /// Appends the time since `since` (Unix seconds) in human-readable form, such as `5m30s`, computed when the row is
    /// sent. Writes no quotes.
    pub fn push_since(&mut self, since: i64) {
        // The offset fits: like its object, a row is shorter than 4 GiB.
        let at = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        self.ages.push((at, since));
    }

    /// Appends the array as of `now`, in Unix seconds.
    pub fn write(&self, now: i64, out: &mut Vec<u8>) {
        let text = self.text.as_bytes();
        let mut from = 0;
        for &(at, since) in &self.ages {
            let at = (at as usize).min(text.len());
            out.extend_from_slice(&text[from..at]);
            out.extend_from_slice(human_duration(now.saturating_sub(since)).as_bytes());
            from = at;
        }
        out.extend_from_slice(&text[from..]);
    }

    /// Returns the bytes of its text, without ages.
    pub(crate) const fn len(&self) -> usize {
        self.text.len()
    }

    /// Frees spare capacity before the cells are cached.
    pub(crate) fn shrink(mut self) -> Self {
        self.text.shrink_to_fit();
        self.ages.shrink_to_fit();
        self
    }
}

/// Formats a duration as kubectl does: two units if short, one if long. Escaped for JSON as Go does.
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        ..-1 => r"\u003cinvalid\u003e".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..TWO_YEARS => format!("{days}d"),
        TWO_YEARS..EIGHT_YEARS => two(days / 365, 'y', days % 365, 'd'),
        EIGHT_YEARS.. => format!("{}y", days / 365),
    }
}

const TWO_YEARS: i64 = 2 * 365 * 86_400;
const EIGHT_YEARS: i64 = 8 * 365 * 86_400;

/// Formats two units; omits the smaller one if it is zero.
fn two(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_as_kubectl_tells_them() {
        let (minute, hour, day) = (60, 3_600, 86_400);
        for (seconds, expected) in [
            (-2, r"\u003cinvalid\u003e"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (2 * minute + 1, "2m1s"),
            (10 * minute - 1, "9m59s"),
            (10 * minute + 59, "10m"),
            (3 * hour - 1, "179m"),
            (3 * hour, "3h"),
            (8 * hour - 1, "7h59m"),
            (8 * hour + 1, "8h"),
            (48 * hour - 1, "47h"),
            (2 * day, "2d"),
            (2 * day + hour, "2d1h"),
            (8 * day - 1, "7d23h"),
            (8 * day + 23 * hour, "8d"),
            (2 * 365 * day - 1, "729d"),
            (2 * 365 * day, "2y"),
            (2 * 365 * day + day, "2y1d"),
            (8 * 365 * day - 1, "7y364d"),
            (8 * 365 * day + 300 * day, "8y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn ages_stand_where_they_were_put() {
        let mut cells = Cells::new();
        cells.push(r#"["a",2,"3 ("#);
        cells.push_since(100);
        cells.push(r#" ago)",""#);
        cells.push_since(40);
        cells.push(r#""]"#);
        for (now, expected) in [(100, r#"["a",2,"3 (0s ago)","60s"]"#), (400, r#"["a",2,"3 (5m ago)","6m"]"#)] {
            let mut out = Vec::new();
            cells.write(now, &mut out);
            assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
        }
    }
}
