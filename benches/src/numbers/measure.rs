//! A run of the program: all cases and their floors once, kube-apiserver, all of them again, the curves.
//!
//! INVARIANT: results are saved after each run of a case, so that a run that was interrupted can be resumed.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cache_server::populate::PopulateSpec;

use super::{
    Failure, Flags,
    case::{Case, Fields},
    cases, curves,
    machine::{self, CpuTicks},
    outcome::{Contender, Report},
    page, quiet, run,
    stock::Cluster,
    tell, tell_curve,
};

/// Folder of the published numbers, which tell how long cases take.
const PUBLISHED: &str = "docs/benchmarks";
/// Assumed durations of a case and of a curve that were never measured, in seconds.
const CASE_SECONDS: f64 = 15.0;
const CURVE_SECONDS: f64 = 110.0;

/// Cases and curves of a run.
struct RunPlan {
    cases: Vec<Case>,
    curves: Vec<&'static str>,
    /// Runs of each case, and folder of kube-apiserver; its cases run once.
    runs: usize,
    stock: Option<PathBuf>,
}

/// Measures the cases and curves of the flags. Returns them with the numbers of other cases that the folder of `--write` has.
pub(super) fn measure(flags: &Flags) -> Result<Report, Failure> {
    let plan = RunPlan::of(flags);
    let mut report = begin(flags)?;
    eprintln!("numbers: {}", plan.announcement(&report, flags));
    let (stolen_before, ticks_before) = machine::ticks();
    for pass in 1..=plan.runs {
        for case in &plan.cases {
            if report.runs(&case.name, Contender::Own) < pass {
                once(flags, &mut report, case, Contender::Own, || run::case(case))?;
            }
            if case.has_floor && report.runs(&case.name, Contender::Bare) < pass {
                once(flags, &mut report, case, Contender::Bare, || run::floor(case))?;
            }
        }
        if pass == 1 {
            plan.stock(flags, &mut report)?;
        }
    }
    for name in &plan.curves {
        report.graphs.retain(|graph| graph.name != *name);
        report.graphs.push(curves::measure(name)?);
        tell_curve(&report.graphs);
    }
    report.graphs.sort_by_key(|graph| curves::NAMES.iter().position(|name| *name == graph.name));
    if flags.is_partial() && flags.write.is_some() {
        return Ok(report);
    }
    let (stolen, ticks) = machine::ticks();
    report.machine.stolen_percent = machine::share(stolen - stolen_before, ticks - ticks_before) * 100.0;
    Ok(report)
}

/// The report to add to: from the folder of `--write`, or an empty one.
fn begin(flags: &Flags) -> Result<Report, Failure> {
    let machine = quiet::machine(flags.allow_load)?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let new = Report { command: flags.command(), machine, started, outcomes: vec![], floors: vec![], graphs: vec![] };
    Ok(match page::read(flags.write.as_deref()) {
        Ok(earlier) if flags.resume => earlier,
        // The page shows the command and the machine of the run that measured most of it.
        Ok(earlier) if flags.is_partial() => Report { started, ..earlier },
        Ok(earlier) => Report { command: new.command, machine: new.machine, started, ..earlier },
        Err(_) => new,
    })
}

impl RunPlan {
    fn of(flags: &Flags) -> Self {
        let cases = cases::all().into_iter().filter(|case| flags.wants(&case.name, case.is_quick)).collect();
        let curves = curves::NAMES.into_iter().filter(|name| flags.wants(name, false)).collect();
        Self { cases, curves, runs: usize::from(flags.runs), stock: flags.kube_apiserver.clone() }
    }

    /// The cases for kube-apiserver that were not measured in this run of the program.
    fn comparable<'a>(&'a self, report: &Report) -> Vec<&'a Case> {
        let is_due = |case: &&Case| case.is_comparable && report.runs(&case.name, Contender::Stock) == 0;
        if self.stock.is_some() { self.cases.iter().filter(is_due).collect() } else { Vec::new() }
    }

    /// Runs the comparable cases against a stock kube-apiserver.
    fn stock(&self, flags: &Flags, report: &mut Report) -> Result<(), Failure> {
        let (comparable, Some(binaries)) = (self.comparable(report), &self.stock) else { return Ok(()) };
        if comparable.is_empty() {
            return Ok(());
        }
        let cluster = Cluster::start(binaries, &PopulateSpec::default())?;
        for case in comparable {
            once(flags, report, case, Contender::Stock, || run::stock_case(&cluster, case))?;
        }
        Ok(())
    }

    /// One line: what will be run, and about how long that takes.
    fn announcement(&self, report: &Report, flags: &Flags) -> String {
        let published = page::read(Some(Path::new(PUBLISHED))).ok();
        let known = |case: &Case, is_stock: bool| {
            let all = report.outcomes.iter().chain(published.iter().flat_map(|report| &report.outcomes));
            let mut same = all.filter(|outcome| outcome.case == case.name && outcome.is_stock == is_stock);
            same.find(|outcome| 0.0 < outcome.seconds).map_or(CASE_SECONDS, |outcome| outcome.seconds)
        };
        let own = |case: &Case| {
            let due = |by| self.runs.saturating_sub(report.runs(&case.name, by));
            // A floor takes about as long as its case.
            let due = due(Contender::Own) + if case.has_floor { due(Contender::Bare) } else { 0 };
            known(case, false) * f64::from(u32::try_from(due).unwrap_or(u32::MAX))
        };
        let comparable = self.comparable(report);
        let curves = f64::from(u32::try_from(self.curves.len()).unwrap_or(u32::MAX)) * CURVE_SECONDS;
        let seconds: f64 = self.cases.iter().map(own).sum::<f64>()
            + comparable.iter().map(|case| known(case, true)).sum::<f64>()
            + curves;
        format!(
            "{} cases, {} runs of each, {} beside kube-apiserver, {} curves: about {:.0} min{}",
            self.cases.len(),
            self.runs,
            comparable.len(),
            self.curves.len(),
            (seconds / 60.0).max(1.0),
            if flags.write.is_some() { "; --resume continues after an interruption" } else { "" }
        )
    }
}

/// Runs a case once, prints it and saves it.
fn once(
    flags: &Flags,
    report: &mut Report,
    case: &Case,
    by: Contender,
    run: impl FnOnce() -> Result<Fields, Failure>,
) -> Result<(), Failure> {
    let (start, before) = (Instant::now(), CpuTicks::now());
    let found = run().map_err(|error| error.to_string());
    let (time, others): (Duration, f64) = (start.elapsed(), CpuTicks::now().others_since(before));
    let outcome = report.outcome(case, by);
    // etcd and kube-apiserver are children that still run: the kernel counts their time like any other program's.
    outcome.add(case, time, if by == Contender::Stock { 0.0 } else { others }, found);
    tell(outcome, by);
    let names: Vec<String> = cases::all().into_iter().map(|case| case.name).collect();
    report.settle(&names, &cases::RELATED);
    if let Some(folder) = &flags.write {
        page::save(folder, report)?;
    }
    Ok(())
}
