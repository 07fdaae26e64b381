//! Reads the text formats of Prometheus and OpenMetrics, one sample a line.

use std::borrow::Cow;

/// One sample of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricSample<'a> {
    /// Name, such as `cache_objects` or `…_bucket`.
    pub name: &'a str,
    /// Text between the braces.
    labels: &'a str,
    /// Value in the metric's unit.
    pub value: f64,
}

/// Returns the samples of `text` in its order. Skips comments, and lines that are no samples.
pub fn samples(text: &str) -> impl Iterator<Item = MetricSample<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample)
}

/// `name{label="value",…} 1.5`, where labels may be missing and a time may follow.
fn sample(line: &str) -> Option<MetricSample<'_>> {
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => {
            let end = end_of_labels(rest)?;
            (&rest[..end], &rest[end + 1..])
        }
        None => ("", rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(MetricSample { name, labels, value })
}

/// Index of the brace that is in no value.
fn end_of_labels(text: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.bytes().position(|byte| {
        let is_end = byte == b'}' && !is_quoted;
        is_quoted ^= byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

impl<'a> MetricSample<'a> {
    /// Returns the value of a label; empty if the sample lacks it, as in Prometheus.
    #[must_use]
    pub fn label(&self, name: &str) -> Cow<'a, str> {
        self.labels().find(|(label, _)| *label == name).map(|(_, value)| value).unwrap_or_default()
    }

    /// Returns the labels with their values, escapes resolved.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let (name, quoted) = rest.split_once("=\"")?;
            let end = end_of_value(quoted)?;
            let value = unescaped(&quoted[..end]);
            rest = &quoted[end + 1..];
            Some((name.trim_start_matches([',', ' ']), value))
        })
    }
}

/// Index of the quote that is not escaped.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut letters = text.chars();
    let next = || {
        Some(match letters.next()? {
            '\\' => match letters.next()? {
                'n' => '\n',
                letter => letter,
            },
            letter => letter,
        })
    };
    Cow::Owned(std::iter::from_fn(next).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    type ReadSample = (String, Vec<(String, String)>, f64);

    fn read(text: &str) -> Vec<ReadSample> {
        let labels = |sample: &MetricSample<'_>| {
            sample.labels().map(|(name, value)| (name.to_owned(), value.into_owned())).collect()
        };
        samples(text).map(|sample| (sample.name.to_owned(), labels(&sample), sample.value)).collect()
    }

    #[test]
    fn samples_have_names_labels_and_values() {
        let text = "# HELP a b\na 1\nb{x=\"y\"} 2.5\nc{x=\"}\\\\\\\"\\n,\",z=\"ä=\\\"\"} +Inf 1700\nd{} 0\n# EOF\n";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            ("a".to_owned(), Vec::new(), 1.0),
            ("b".to_owned(), vec![pair("x", "y")], 2.5),
            ("c".to_owned(), vec![pair("x", "}\\\"\n,"), pair("z", "ä=\"")], f64::INFINITY),
            ("d".to_owned(), Vec::new(), 0.0),
        ];
        assert_eq!(read(text), expected);
        let labelled = samples("b{x=\"y\"} 2").next().expect("a sample");
        assert_eq!((labelled.label("x"), labelled.label("z")), ("y".into(), "".into()));
    }

    /// Goal: bytes of a foreign server are refused, not trusted. Method: every prefix of a sample, and odd lines.
    #[test]
    fn broken_lines_are_skipped() {
        let line = "c{x=\"}\\\\\\\"\",z=\"ä\"} 1";
        for end in (0..line.len()).filter(|end| line.is_char_boundary(*end)) {
            assert_eq!(read(&line[..end]), [], "{}", &line[..end]);
        }
        assert_eq!(read("a\n{\n}\na{ 1\na{b=\"} 1\n 1x\na b\n\u{1b}[31m"), []);
        assert_eq!(read("a{b} 1\na{b=\"c\"d} 1").len(), 2, "odd labels are left out");
    }
}
