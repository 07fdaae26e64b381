//! Draws curves as SVG: measured points joined by lines. Also fits straight lines.

use std::path::Path;

use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use super::Failure;

const SIZE: (u32, u32) = (860, 460);
const COLOURS: [RGBColor; 5] = [
    RGBColor(76, 114, 176),
    RGBColor(196, 78, 82),
    RGBColor(85, 168, 104),
    RGBColor(129, 114, 178),
    RGBColor(140, 140, 140),
];

/// A graph and its data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Graph {
    /// File name without extension.
    pub(crate) name: String,
    pub(crate) title: String,
    /// Labels of the axes, with units.
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) series: Vec<Series>,
}

/// A curve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Least-squares line, if there are at least three different points.
    pub(crate) line: Option<Line>,
}

/// y = `intercept` + `slope` · x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) intercept: f64,
    pub(crate) slope: f64,
    /// Coefficient of determination: the share of the points' variance that the line explains.
    pub(crate) r2: f64,
}

impl Series {
    pub(crate) fn new(label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        let line = Line::through(&points);
        Self { label: label.into(), points, line }
    }
}

impl Line {
    /// Least-squares fit. `None` for fewer than three points, or if all have the same x.
    pub(crate) fn through(points: &[(f64, f64)]) -> Option<Self> {
        if points.len() < 3 {
            return None;
        }
        let count: f64 = points.iter().map(|_| 1.0).sum();
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - x_mean, y - y_mean)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if xx == 0.0 {
            return None;
        }
        let slope = xy / xx;
        let r2 = if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) };
        Some(Self { intercept: slope.mul_add(-x_mean, y_mean), slope, r2 })
    }
}

/// Writes the graph to `path` as SVG.
pub(crate) fn draw(path: &Path, graph: &Graph) -> Result<(), Failure> {
    // plotters' errors borrow from the backend, so convert them to text here.
    paint(path, graph).map_err(|error| Failure::Picture(error.to_string()))
}

fn paint(path: &Path, graph: &Graph) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let all = || graph.series.iter().flat_map(|series| &series.points);
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max).max(f64::MIN_POSITIVE) * 1.06;
    let mut chart = ChartBuilder::on(&area)
        .caption(&graph.title, ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(74)
        .build_cartesian_2d(0.0..most(|point| point.0), 0.0..most(|point| point.1))?;
    chart
        .configure_mesh()
        .max_light_lines(1)
        .light_line_style(WHITE)
        .x_desc(&graph.x)
        .y_desc(&graph.y)
        .x_label_formatter(&|value| super::case::amount(*value))
        .y_label_formatter(&|value| super::case::amount(*value))
        .draw()?;
    for (series, colour) in graph.series.iter().zip(COLOURS.iter().cycle()) {
        let colour = *colour;
        chart
            .draw_series(LineSeries::new(series.points.iter().copied(), colour.stroke_width(2)))?
            .label(&series.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(series.points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(legend_position(graph))
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    area.present()?;
    Ok(())
}

/// Rising curves leave room at the upper left, falling ones at the right.
fn legend_position(graph: &Graph) -> SeriesLabelPosition {
    let ends = graph.series.first().and_then(|series| series.points.first().zip(series.points.last()));
    if ends.is_some_and(|(first, last)| last.1 < first.1) {
        SeriesLabelPosition::MiddleRight
    } else {
        SeriesLabelPosition::UpperLeft
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_found_and_known_to_be_one() {
        let line = Line::through(&[(0.0, 1.0), (1.0, 3.0), (4.0, 9.0)]).unwrap();
        assert!((line.intercept - 1.0).abs() < 1e-9 && (line.slope - 2.0).abs() < 1e-9, "{line:?}");
        assert!(line.r2 > 0.999_999);
    }

    #[test]
    fn a_bend_is_told_from_a_line() {
        let line = Line::through(&[(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (3.0, 9.0)]).unwrap();
        assert!(line.r2 < 0.7, "{line:?}");
    }

    #[test]
    fn two_points_are_no_proof_of_a_line() {
        assert_eq!(Line::through(&[(0.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }

    #[test]
    fn a_graph_is_drawn_with_its_words_and_points() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.svg");
        let series = Series::new("over TLS", vec![(1.0, 2.0), (10.0, 20.0), (100.0, 200.0)]);
        let graph = Graph {
            name: "memory".to_owned(),
            title: "Memory by clients".to_owned(),
            x: "clients".to_owned(),
            y: "MiB".to_owned(),
            series: vec![series],
        };
        draw(&path, &graph).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        for word in ["Memory by clients", "over TLS", "MiB", "circle"] {
            assert!(svg.contains(word), "{word}");
        }
    }
}
