//! `numbers --scale`: the capacity of one server with more cores. Measures loads with the server on 1, 2, 4… cores of this
//! machine, and the sections that one thread executes at a time, and extrapolates to 16 cores.
//!
//! INVARIANT: the page names each number as measured or as extrapolated.

mod loads;
mod page;
mod serial;
mod usl;

use std::{process::ExitCode, thread};

use serde::{Deserialize, Serialize};

use self::{loads::LoadCurve, serial::SerialCosts};
use super::{Failure, Flags, exit_code, machine::Machine, quiet};

/// Cores of the server that the page describes.
const CORES: u32 = 16;
/// Numbers of cores that are measured, as far as the machine has them.
const STEPS: [u32; 5] = [1, 2, 4, 8, 16];

/// Results of a run: the content of `scale.json` and, with the published numbers, the input of the page.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ScaleReport {
    command: String,
    machine: Machine,
    serial: SerialCosts,
    loads: Vec<LoadCurve>,
}

/// Measures, prints and writes.
pub(super) fn main(flags: &Flags) -> ExitCode {
    if flags.list {
        return list();
    }
    let report = match &flags.write {
        Some(folder) if flags.page_only => page::read(folder),
        _ => measure(flags),
    };
    let written = report.and_then(|report| {
        page::print(&report);
        if let Some(folder) = &flags.write {
            page::write(folder, &report)?;
        }
        Ok(true)
    });
    exit_code(written)
}

#[expect(clippy::print_stdout, reason = "what was asked for")]
fn list() -> ExitCode {
    for (name, how) in loads::all().map(|load| (load.name, load.arguments)) {
        println!("{name:<12} load {how}");
    }
    ExitCode::SUCCESS
}

/// The numbers of cores to measure with.
fn steps() -> impl Iterator<Item = u32> {
    let cores = thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
    STEPS.into_iter().filter(move |step| *step <= cores)
}

fn measure(flags: &Flags) -> Result<ScaleReport, Failure> {
    let machine = quiet::machine(flags.allow_load)?;
    eprintln!("numbers: {} loads with {} numbers of cores: about four minutes", loads::all().count(), steps().count());
    let serial = serial::measure()?;
    let mut measured = Vec::new();
    for load in loads::all().filter(|load| flags.wants(load.name, true)) {
        measured.push(load.measure(flags.runs)?);
    }
    Ok(ScaleReport { command: flags.command(), machine, serial, loads: measured })
}
