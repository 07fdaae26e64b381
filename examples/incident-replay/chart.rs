//! The picture: memory of the servers in each act over time, and bars of the bystander and of the time until all are in
//! sync.

use std::path::Path;

use measured::{
    Failure,
    memory::mib,
    picture::{Bar, Curve, NEW, OLD, PanelPlace, PanelScale, Picture, RGBColor, ROW, WIDTH, linear},
};

use crate::{
    bystander::DutySummary,
    plan::{Act, Side, Sizes},
    scene::Scene,
};

const MARGIN: i32 = 12;
/// Top, height and gap of the panels.
const TOP: i32 = 66;
const HEIGHT: i32 = 190;
const GAP: i32 = 18;

/// A group of bars: its title, and the length and text of each.
type BarGroup = (&'static str, fn(&Scene) -> Option<f64>, fn(&Scene) -> String);

const GROUPS: [BarGroup; 3] = [
    ("Most memory of the server", |scene| Some(mib(scene.peak)), |scene| format!("{:.0} MiB", mib(scene.peak))),
    ("Lease renewals of a node meanwhile: 99th percentile", |scene| scene.leases.storm.p99(), renewals_text),
    (
        "From the kill of the server until every copy had the changes made after its restart",
        |scene| scene.synced.map(|time| time.as_secs_f64()),
        Scene::synced_text,
    ),
];

fn renewals_text(scene: &Scene) -> String {
    let ms = |duty: &DutySummary| duty.p99().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms"));
    let failed = match scene.leases.storm.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    format!("{}{failed} (quiet: {})", ms(&scene.leases.storm), ms(&scene.leases.quiet))
}

/// Writes the picture to `path` as SVG.
pub(crate) fn draw(path: &Path, sizes: &Sizes, scenes: &[Scene]) -> Result<(), Failure> {
    let rows = i32::try_from(scenes.len())?;
    let group = rows * ROW + 50;
    let picture = Picture::begin(path, TOP + HEIGHT + 40 + group * 3)?;
    let Sizes { pods, nodes, lists, .. } = sizes;
    picture.title(
        &format!("{nodes} agents list the pods of their nodes {lists} times each, of {pods}; the server restarts"),
        MARGIN,
    )?;
    panels(&picture, scenes)?;
    let mut y = TOP + HEIGHT + 40;
    for (title, length, amount) in GROUPS {
        picture.title(title, y)?;
        let bars: Vec<Bar> = scenes
            .iter()
            .map(|scene| Bar {
                label: format!("{}: {}", scene.act.name(), scene.side.name()),
                length: length(scene),
                amount: amount(scene),
                colour: colour(scene.side),
            })
            .collect();
        picture.bars(&bars, y + 28, linear)?;
        y += group;
    }
    picture.finish()
}

/// One panel of memory over time for each act, all on one scale.
fn panels(picture: &Picture<'_>, scenes: &[Scene]) -> Result<(), Failure> {
    let mut acts: Vec<Act> = Vec::new();
    for scene in scenes {
        if !acts.contains(&scene.act) {
            acts.push(scene.act);
        }
    }
    let shown = |scene: &Scene| -> Vec<(f64, Option<f64>)> {
        scene.curve.iter().copied().filter(|(second, _)| *second >= 0.0).collect()
    };
    let points = || scenes.iter().flat_map(shown);
    let scale = PanelScale {
        x: points().map(|(second, _)| second).fold(1.0, f64::max),
        y: points().filter_map(|(_, mib)| mib).fold(1.0, f64::max) * 1.05,
    };
    let count = i32::try_from(acts.len())?.max(1);
    let width = (i32::try_from(WIDTH)? - 2 * MARGIN - (count - 1) * GAP) / count;
    for (number, act) in (0..).zip(acts) {
        let left = MARGIN + number * (width + GAP);
        picture.text(act.title(), (left, TOP - 24), None)?;
        let of_act: Vec<&Scene> = scenes.iter().filter(|scene| scene.act == act).collect();
        let curves: Vec<Curve> =
            of_act.iter().map(|scene| Curve { points: shown(scene), colour: colour(scene.side) }).collect();
        picture.curves(&curves, PanelPlace { corner: (left, TOP), size: (width, HEIGHT) }, scale)?;
        for (line, scene) in (0..).zip(&of_act) {
            let text = format!("{}: {:.0} MiB at most", scene.side.name(), mib(scene.peak));
            picture.text(&text, (left + 8, TOP + 8 + line * 18), Some(colour(scene.side)))?;
        }
        let axis = format!("0 to {:.0} s, 0 to {:.0} MiB; interrupted: no server", scale.x, scale.y);
        picture.text(&axis, (left, TOP + HEIGHT + 6), None)?;
    }
    Ok(())
}

const fn colour(side: Side) -> RGBColor {
    match side {
        Side::CacheServer => NEW,
        Side::KubeApiserver => OLD,
    }
}
