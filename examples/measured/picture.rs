//! Pictures as SVG: bars, curves, and their text, on a white ground that is readable on light and dark pages.

use std::path::Path;

use plotters::{
    backend::SVGBackend,
    coord::Shift,
    drawing::DrawingArea,
    prelude::{Color as _, IntoDrawingArea as _, IntoFont as _, PathElement, Rectangle, Text, WHITE},
    style::TextStyle,
};

pub use plotters::style::RGBColor;

use crate::Failure;

/// Width of a picture, in pixels.
pub const WIDTH: u32 = 960;
/// Height of a bar with its gap.
pub const ROW: i32 = 22;
/// Left end of the bars.
const LABEL: i32 = 250;
/// Least width of the text behind the longest bar, and the width of one character.
const AMOUNT: usize = 110;
const AMOUNT_CHARACTER: usize = 7;
/// Colour of the rows that the picture is about to replace.
pub const OLD: RGBColor = RGBColor(196, 78, 82);
/// Colour of the rows in their place.
pub const NEW: RGBColor = RGBColor(76, 114, 176);
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(205, 205, 205);
/// Size of titles and of all other text.
const TITLE_SIZE: u32 = 17;
const TEXT_SIZE: u32 = 13;

/// A bar with its label and the text of its amount.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Text on the left.
    pub label: String,
    /// Length, in any unit; `None` draws the text only.
    pub length: Option<f64>,
    /// Text behind the bar.
    pub amount: String,
    /// Its colour.
    pub colour: RGBColor,
}

/// A curve of points (x, y). Points without y interrupt it.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Points with growing x.
    pub points: Vec<(f64, Option<f64>)>,
    /// Its colour.
    pub colour: RGBColor,
}

/// Rectangle of a panel, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct PanelPlace {
    /// Left, top.
    pub corner: (i32, i32),
    /// Width, height.
    pub size: (i32, i32),
}

/// Largest x and y of a panel's axes. Both begin at 0.
#[derive(Clone, Copy, Debug)]
pub struct PanelScale {
    /// Largest x.
    pub x: f64,
    /// Largest y.
    pub y: f64,
}

/// A picture under construction. `finish` writes the file.
pub struct Picture<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

impl<'a> Picture<'a> {
    /// Begins a picture of a height in pixels.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(path: &'a Path, height: i32) -> Result<Self, Failure> {
        let area = SVGBackend::new(path, (WIDTH, u32::try_from(height)?)).into_drawing_area();
        area.fill(&WHITE)?;
        Ok(Self { area })
    }

    /// Draws a title at the left edge.
    ///
    /// # Errors
    /// Drawing failed.
    pub fn title(&self, text: &str, y: i32) -> Result<(), Failure> {
        self.write(text, (12, y), TITLE_SIZE, INK)
    }

    /// Draws a line of text.
    ///
    /// # Errors
    /// Drawing failed.
    pub fn text(&self, text: &str, at: (i32, i32), colour: Option<RGBColor>) -> Result<(), Failure> {
        self.write(text, at, TEXT_SIZE, colour.unwrap_or(INK))
    }

    fn write(&self, text: &str, at: (i32, i32), size: u32, colour: RGBColor) -> Result<(), Failure> {
        let style: TextStyle<'_> = ("sans-serif", size).into_font().color(&colour);
        Ok(self.area.draw(&Text::new(text.to_owned(), at, style))?)
    }

    /// Draws bars from `top` downwards, scaled to the longest by `share`, and returns the position below them.
    ///
    /// # Errors
    /// Drawing failed.
    pub fn bars(&self, bars: &[Bar], top: i32, share: fn(f64, f64) -> f64) -> Result<i32, Failure> {
        let most = bars.iter().filter_map(|bar| bar.length).fold(f64::MIN_POSITIVE, f64::max);
        let amount = bars.iter().map(|bar| 12 + bar.amount.chars().count() * AMOUNT_CHARACTER).max();
        let room = f64::from(WIDTH) - f64::from(LABEL) - amount.unwrap_or(0).max(AMOUNT) as f64;
        let mut y = top;
        for bar in bars {
            let right = LABEL + bar.length.map_or(0, |length| pixels(share(length, most) * room).max(1));
            self.area.draw(&Rectangle::new([(LABEL, y), (right, y + ROW - 6)], bar.colour.filled()))?;
            self.text(&bar.label, (12, y + 1), None)?;
            self.text(&bar.amount, (right + 6, y + 1), None)?;
            y += ROW;
        }
        Ok(y)
    }

    /// Draws curves within a frame.
    ///
    /// # Errors
    /// Drawing failed.
    pub fn curves(&self, curves: &[Curve], place: PanelPlace, scale: PanelScale) -> Result<(), Failure> {
        let PanelPlace { corner: (left, top), size: (width, height) } = place;
        let frame = [(left, top), (left + width, top), (left + width, top + height), (left, top + height), (left, top)];
        self.area.draw(&PathElement::new(frame.to_vec(), FAINT.stroke_width(1)))?;
        for curve in curves {
            for piece in curve.points.split(|(_, y)| y.is_none()) {
                let at = |&(x, y): &(f64, Option<f64>)| {
                    let (x, y) = (x / scale.x, y.unwrap_or_default() / scale.y);
                    (left + pixels(x * f64::from(width)), top + height - pixels(y * f64::from(height)))
                };
                self.area
                    .draw(&PathElement::new(piece.iter().map(at).collect::<Vec<_>>(), curve.colour.stroke_width(2)))?;
            }
        }
        Ok(())
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<(), Failure> {
        Ok(self.area.present()?)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a position within the picture")]
const fn pixels(length: f64) -> i32 {
    length as i32
}

/// Share of the longest bar on a linear scale.
#[must_use]
pub const fn linear(length: f64, most: f64) -> f64 {
    length / most
}

/// Share of the longest bar on a logarithmic scale of MiB, with a floor of 16 KiB.
#[must_use]
pub fn logarithmic(mib: f64, most: f64) -> f64 {
    const FLOOR_MIB: f64 = 1.0 / 64.0;
    (mib.max(FLOOR_MIB) / FLOOR_MIB).ln() / (most.max(2.0 * FLOOR_MIB) / FLOOR_MIB).ln()
}

/// An amount of memory as text.
#[must_use]
pub fn memory_text(mib: f64) -> String {
    if mib < 1.0 { format!("{:.0} KiB", mib * 1024.0) } else { format!("{mib:.1} MiB") }
}
