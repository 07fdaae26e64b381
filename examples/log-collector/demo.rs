//! The whole agent without a cluster: creates log files and an API server, and checks the output.
//!
//! Goal: every line comes out exactly once, in order, with its pod. Method: a script plays the container runtime, the
//! kubelet and a user, records the lines of each container, and compares.

mod stage;

use std::{io::Write, time::Duration};

use self::stage::Stage;
use crate::{Failure, collect::Counts};

/// Number of lines of the job: more than one turn of the collector reads.
const JOB_LINES: usize = 20_000;

/// Runs the script. Records are written to `out` as in production.
///
/// # Errors
/// The first deviation from the expected output.
pub(crate) async fn run(out: impl Write + Send + 'static) -> Result<Counts, Failure> {
    let mut stage = Stage::new(out).await?;
    lines_and_parts(&mut stage).await?;
    rotation(&mut stage)?;
    truncation(&mut stage)?;
    deleted_pod(&mut stage).await?;
    short_lived_pod(&mut stage).await?;
    restart(&mut stage).await?;
    unknown_pod(&mut stage).await?;
    live(&mut stage).await?;
    stage.check()
}

/// Full lines, lines in parts with the other stream in between, a line that is too long, and one that is not in CRI
/// format.
async fn lines_and_parts(stage: &mut Stage) -> Result<(), Failure> {
    stage.pod("prod", "web-0").await?;
    let (app, sidecar) = (stage.container("web-0", "app"), stage.container("web-0", "sidecar"));
    for number in 0..100 {
        stage.says(&app, "stdout", &format!("request {number} ünïcödé"))?;
        stage.says(&sidecar, "stderr", &format!("warning {number}"))?;
    }
    stage.writes(&app, "stdout P begun on stdout, ")?;
    stage.says(&app, "stderr", "in between")?;
    stage.writes(&app, "stdout P continued, ")?;
    stage.writes(&app, "stdout F done")?;
    stage.expects(&app, "stdout", "begun on stdout, continued, done");
    let long = "x".repeat(3 * stage::LINE_BYTES_MAX);
    stage.writes(&app, &format!("stdout F {long}"))?;
    stage.expects(&app, "stdout", &long[..stage::LINE_BYTES_MAX]);
    stage.writes_raw(&app, "this line has no time\n")?;
    stage.expects(&app, "", "this line has no time");
    stage.turns()
}

/// The kubelet renames a file, the runtime still writes to it, then opens a new one. An older copy is compressed.
fn rotation(stage: &mut Stage) -> Result<(), Failure> {
    let app = stage.container("web-0", "app");
    stage.copies(&app, "0.log.20261120-100000.gz")?;
    stage.says(&app, "stdout", "the last line before the rename")?;
    stage.writes(&app, "stdout P one line, ")?;
    stage.renames(&app, "0.log.20261120-160000")?;
    stage.turns()?;
    stage.says(&app, "stderr", "into the renamed file")?;
    stage.reopens(&app)?;
    stage.writes(&app, "stdout F two files")?;
    stage.expects(&app, "stdout", "one line, two files");
    stage.turns()
}

/// A tool truncates a file in place.
fn truncation(stage: &mut Stage) -> Result<(), Failure> {
    let sidecar = stage.container("web-0", "sidecar");
    stage.truncates(&sidecar)?;
    for number in 0..200 {
        stage.says(&sidecar, "stdout", &format!("after the cut {number}"))?;
    }
    stage.turns()
}

/// A pod and its files are deleted while most of its lines are unread.
async fn deleted_pod(stage: &mut Stage) -> Result<(), Failure> {
    stage.pod("batch", "job-0").await?;
    let main = stage.container("job-0", "main");
    for number in 0..JOB_LINES {
        stage.says(&main, "stdout", &format!("step {number} of a job that ends with a burst of lines"))?;
    }
    if !stage.turn()? {
        return Err("one turn took all lines of the job, so nothing was left unread".into());
    }
    stage.deletes(&main).await?;
    stage.removes(&main)?;
    stage.turns()
}

/// A pod is deleted before the agent finds its files.
async fn short_lived_pod(stage: &mut Stage) -> Result<(), Failure> {
    stage.pod("batch", "job-1").await?;
    let main = stage.container("job-1", "main");
    stage.deletes(&main).await?;
    stage.says(&main, "stdout", "the only line of a short life")?;
    stage.turns()
}

/// The agent stops in the middle of a line, and resumes from its positions. A pod it knew is deleted meanwhile.
async fn restart(stage: &mut Stage) -> Result<(), Failure> {
    stage.pod("prod", "web-1").await?;
    let (app, gone) = (stage.container("web-0", "app"), stage.container("web-1", "app"));
    stage.writes(&app, "stdout P half a line, ")?;
    stage.says(&app, "stderr", "written before the restart")?;
    stage.turns()?;
    stage.stop()?;
    stage.writes(&app, "stdout F the other half")?;
    stage.expects(&app, "stdout", "half a line, the other half");
    stage.says(&app, "stdout", "written during the restart")?;
    stage.says(&gone, "stderr", "terminated during the restart")?;
    stage.deletes_unseen(&gone).await?;
    stage.start().await?;
    stage.turns()
}

/// A pod that the API server does not know: its lines wait, then come out without labels.
async fn unknown_pod(stage: &mut Stage) -> Result<(), Failure> {
    stage.stranger("lost", "stray-0");
    let main = stage.container("stray-0", "main");
    stage.says(&main, "stdout", "does anybody know me?")?;
    let before = stage.records();
    stage.turns()?;
    if stage.records() != before {
        return Err("a line did not wait for its pod".into());
    }
    tokio::time::sleep(stage::METADATA_WAIT).await;
    stage.turns()
}

/// Runs the production loop on its own thread while lines arrive.
async fn live(stage: &mut Stage) -> Result<(), Failure> {
    let running = stage.runs()?;
    let app = stage.container("web-0", "app");
    for number in 0..50 {
        stage.says(&app, "stdout", &format!("live {number}"))?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stage.all_came_out().await?;
    stage.ends(running).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_line_comes_out_exactly_once_with_its_pod() {
        run(std::io::sink()).await.unwrap();
    }
}
