//! The chart: growth of the server by mode and clients on a logarithmic scale, peaks of the clients on a linear one.

use std::path::Path;

use plotters::{
    backend::SVGBackend,
    prelude::{Color as _, IntoDrawingArea as _, IntoFont as _, RGBColor, Rectangle, Text, WHITE},
    style::TextStyle,
};

use crate::{
    Failure,
    report::mib,
    run::{ClientRow, ServerRow},
};

const WIDTH: u32 = 960;
const ROW: i32 = 22;
const LABEL: i32 = 250;
const OLD: RGBColor = RGBColor(196, 78, 82);
const NEW: RGBColor = RGBColor(76, 114, 176);
const INK: RGBColor = RGBColor(40, 40, 40);

/// A bar.
struct Bar {
    label: String,
    mib: f64,
    colour: RGBColor,
}

/// Writes the chart to `path` as SVG.
pub(crate) fn draw(path: &Path, servers: &[ServerRow], clients: &[ClientRow]) -> Result<(), Failure> {
    let server_bars: Vec<Bar> = servers
        .iter()
        .map(|row| Bar {
            label: format!("{} x {}", row.clients, row.mode),
            mib: mib(row.growth),
            colour: if row.mode.encoding() == "buffered" { OLD } else { NEW },
        })
        .collect();
    let client_bars: Vec<Bar> = clients
        .iter()
        .map(|row| Bar {
            label: row.kind.to_string(),
            mib: mib(row.outcome.peak),
            colour: if row.kind.to_string().starts_with("kube") { OLD } else { NEW },
        })
        .collect();
    let rows = i32::try_from(server_bars.len() + client_bars.len())?;
    let height = u32::try_from(rows * ROW + 130)?;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = |text: &str, y: i32| {
        let style: TextStyle<'_> = ("sans-serif", 17).into_font().color(&INK);
        area.draw(&Text::new(text.to_owned(), (12, y), style))
    };
    title("Server: memory it grew by while clients synced at once (logarithmic)", 12)?;
    let y = bars(&area, &server_bars, 44, logarithmic)? + 24;
    title("Client: most memory ever resident with one copy of the pods", y)?;
    bars(&area, &client_bars, y + 32, |mib, most| mib / most)?;
    area.present()?;
    Ok(())
}

type Area<'a> = plotters::drawing::DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Logarithmic scale with a floor of 16 KiB.
fn logarithmic(mib: f64, most: f64) -> f64 {
    const FLOOR_MIB: f64 = 1.0 / 64.0;
    (mib.max(FLOOR_MIB) / FLOOR_MIB).ln() / (most / FLOOR_MIB).ln()
}

/// Draws bars from `top` downwards, scaled to the longest, and returns the position below them.
fn bars(area: &Area<'_>, bars: &[Bar], top: i32, share: fn(f64, f64) -> f64) -> Result<i32, Failure> {
    let most = bars.iter().map(|bar| bar.mib).fold(1.0, f64::max);
    let room = f64::from(WIDTH) - f64::from(LABEL) - 110.0;
    let mut y = top;
    for bar in bars {
        #[expect(clippy::cast_possible_truncation, reason = "a length in pixels within the picture")]
        let right = LABEL + ((share(bar.mib, most) * room) as i32).max(1);
        area.draw(&Rectangle::new([(LABEL, y), (right, y + ROW - 6)], bar.colour.filled()))?;
        let style: TextStyle<'_> = ("sans-serif", 13).into_font().color(&INK);
        area.draw(&Text::new(bar.label.clone(), (12, y + 1), style.clone()))?;
        area.draw(&Text::new(amount(bar.mib), (right + 6, y + 1), style))?;
        y += ROW;
    }
    Ok(y)
}

fn amount(mib: f64) -> String {
    if mib < 1.0 { format!("{:.0} KiB", mib * 1024.0) } else { format!("{mib:.1} MiB") }
}
