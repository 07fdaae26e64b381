//! `load list`: all clients list at once.

use std::time::Instant;

use super::{
    client::Target,
    failure::Failure,
    flags::Reading,
    reader::Reader,
    report::Report,
    session::{Found, Session, Work},
};

/// Flags of `list`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    pub(super) reading: Reading,

    /// Lists that each client reads, one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// The parameter resourceVersion: 0 accepts any state. Left out: a consistent read.
    #[arg(long, value_name = "RV")]
    resource_version: Option<String>,
}

struct List {
    flags: Flags,
}

impl Work for List {
    async fn work(&self, reader: &mut Reader, found: &mut Found) -> Result<(), Failure> {
        let position = self.flags.resource_version.as_deref().map(|position| ("resourceVersion", position));
        let path = reader.reading.path(reader.number, position.as_slice());
        for _ in 0..self.flags.rounds {
            let begun = Instant::now();
            let mut first = None;
            reader.open(&path, found).await?;
            let (objects, _) = reader.list(found, || first = Some(begun.elapsed())).await?;
            found.synced.push(begun.elapsed());
            found.first.extend(first);
            found.objects.push(objects);
        }
        Ok(())
    }
}

/// Runs the scenario.
pub(super) async fn run(flags: &Flags, target: Target) -> Result<Report, Failure> {
    let session = Session::begin("list", &flags.reading, target)?;
    Ok(session.run(List { flags: flags.clone() }, Some(flags.reading.timeout), None).await)
}
