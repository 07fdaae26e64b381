//! The chart: growth of the server by mode and clients on a logarithmic scale, peaks of the clients on a linear one.

use std::path::Path;

use measured::{
    Failure,
    memory::mib,
    picture::{Bar, NEW, OLD, Picture, ROW, linear, logarithmic, memory_text},
};

use crate::run::{ClientRow, ServerRow};

/// Writes the chart to `path` as SVG.
pub(crate) fn draw(path: &Path, servers: &[ServerRow], clients: &[ClientRow]) -> Result<(), Failure> {
    let server_bars: Vec<Bar> = servers
        .iter()
        .map(|row| {
            let is_old = row.mode.encoding() == "buffered";
            bar(format!("{} x {}", row.clients, row.mode), row.growth, is_old)
        })
        .collect();
    let client_bars: Vec<Bar> = clients
        .iter()
        .map(|row| {
            let label = row.kind.to_string();
            let is_old = label.starts_with("kube");
            bar(label, row.outcome.peak, is_old)
        })
        .collect();
    let rows = i32::try_from(server_bars.len() + client_bars.len())?;
    let picture = Picture::begin(path, rows * ROW + 130)?;
    picture.title("Server: memory it grew by while clients synced at once (logarithmic)", 12)?;
    let y = picture.bars(&server_bars, 44, logarithmic)? + 24;
    picture.title("Client: most memory ever resident with one copy of the pods", y)?;
    picture.bars(&client_bars, y + 32, linear)?;
    picture.finish()
}

fn bar(label: String, bytes: usize, is_old: bool) -> Bar {
    let length = mib(bytes);
    Bar { label, length: Some(length), amount: memory_text(length), colour: if is_old { OLD } else { NEW } }
}
