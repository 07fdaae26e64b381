//! `numbers --storage`: the storages of `cache-server serve`, beside a stock kube-apiserver with etcd on the same disk.
//!
//! INVARIANT: one server is measured at a time, each with data of its own on one disk, which is not memory.
//! INVARIANT: all clients use TLS, as kube-apiserver demands it.

mod disk;
mod page;
mod start;
mod subject;
mod writes;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use self::{disk::DiskSpeed, start::StartRow, subject::MeasuredStorage, writes::WriteRow};
use super::{
    Failure, Flags,
    machine::{self, Machine},
    quiet, upstream,
};

/// Results of a run: the content of `storage.json` and the input of the page.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StorageReport {
    command: String,
    machine: Machine,
    /// Versions of kube-apiserver and etcd; empty if they were not built.
    versions: Vec<String>,
    disk: DiskSpeed,
    writes: Vec<WriteRow>,
    starts: Vec<StartRow>,
}

/// Sizes and durations.
#[derive(Clone, Copy, Debug)]
struct StorageSizes {
    /// Time of the creations, and of the changes after them.
    time: Duration,
    /// Pods of a start.
    pods: u32,
}

impl StorageSizes {
    const fn of(flags: &Flags) -> Self {
        if flags.quick {
            Self { time: Duration::from_secs(1), pods: 1_000 }
        } else {
            Self { time: Duration::from_secs(20), pods: 100_000 }
        }
    }
}

/// Measures, prints and writes. Exit 1: a target was missed.
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
        Ok(flags.page_only || report.holds())
    });
    match written {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("numbers: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "what was asked for")]
fn list() -> ExitCode {
    for storage in MeasuredStorage::ALL {
        println!("{:<16} {}", storage.name(), storage.text());
    }
    ExitCode::SUCCESS
}

fn measure(flags: &Flags) -> Result<StorageReport, Failure> {
    let programs = flags.kube_apiserver.clone().unwrap_or_else(|| PathBuf::from(upstream::PROGRAMS));
    let versions = upstream::versions(&programs);
    if let Err(error) = &versions {
        eprintln!("numbers: without etcd and kube-apiserver: {error}");
    }
    let sizes = StorageSizes::of(flags);
    let mut report = StorageReport {
        command: flags.command(),
        machine: quiet::machine(flags.allow_load)?,
        disk: DiskSpeed::measure(sizes.time)?,
        versions: versions.unwrap_or_default(),
        writes: Vec::new(),
        starts: Vec::new(),
    };
    let (stolen_before, ticks_before) = machine::ticks();
    for storage in MeasuredStorage::ALL.into_iter().filter(|storage| flags.wants(storage.name(), true)) {
        if storage.needs_programs() && report.versions.is_empty() {
            continue;
        }
        report.measure(storage, &programs, sizes);
    }
    let (stolen, ticks) = machine::ticks();
    report.machine.stolen_percent = machine::share(stolen - stolen_before, ticks - ticks_before) * 100.0;
    Ok(report)
}

impl StorageReport {
    fn measure(&mut self, storage: MeasuredStorage, programs: &Path, sizes: StorageSizes) {
        let name = storage.name().to_owned();
        let written = writes::measure(storage, programs, sizes).map_err(|error| error.to_string());
        self.writes.push(WriteRow::of(name.clone(), written));
        page::print_write(self.writes.last());
        if storage.starts_with_objects() {
            let started = start::measure(storage, programs, sizes).map_err(|error| error.to_string());
            self.starts.push(StartRow::of(name, storage.ready_within(), started));
            page::print_start(self.starts.last());
        }
    }

    /// True if all targets were met.
    fn holds(&self) -> bool {
        self.starts.iter().all(StartRow::holds) && self.writes.iter().all(|row| row.holds(&self.disk))
    }
}
