//! The picture: server growth by mode and clients, and client peaks, as horizontal bars on a logarithmic scale.

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

/// One bar.
struct Bar {
    label: String,
    mib: f64,
    colour: RGBColor,
}

/// Writes the picture to `path`.
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
    title("Server: memory grown while clients sync at once (logarithmic)", 12)?;
    let mut y = bars(&area, &server_bars, 44)? + 24;
    title("Client: most memory ever resident with one copy of the pods (logarithmic)", y)?;
    y += 32;
    bars(&area, &client_bars, y)?;
    area.present()?;
    Ok(())
}

type Area<'a> = plotters::drawing::DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn bars(area: &Area<'_>, bars: &[Bar], top: i32) -> Result<i32, Failure> {
    const FLOOR_MIB: f64 = 0.05;
    let most = bars.iter().map(|bar| bar.mib).fold(1.0, f64::max);
    let room = f64::from(WIDTH) - f64::from(LABEL) - 110.0;
    let mut y = top;
    for bar in bars {
        let length = (bar.mib.max(FLOOR_MIB) / FLOOR_MIB).ln() / (most / FLOOR_MIB).ln() * room;
        #[expect(clippy::cast_possible_truncation, reason = "a length in pixels within the picture")]
        let right = LABEL + (length as i32).max(1);
        area.draw(&Rectangle::new([(LABEL, y), (right, y + ROW - 6)], bar.colour.filled()))?;
        let style: TextStyle<'_> = ("sans-serif", 13).into_font().color(&INK);
        area.draw(&Text::new(bar.label.clone(), (12, y + 1), style.clone()))?;
        area.draw(&Text::new(format!("{:.1} MiB", bar.mib), (right + 6, y + 1), style))?;
        y += ROW;
    }
    Ok(y)
}
