//! `load paged`: all clients list at once, page by page.

use std::time::{Duration, Instant};

use super::{
    client::Target,
    failure::{Failure, Kind},
    flags::Reading,
    reader::Reader,
    report::Report,
    session::{Found, Session, Work},
};

/// Flags of `paged`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    pub(super) reading: Reading,

    /// Objects per page.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

struct Paged {
    limit: String,
}

impl Work for Paged {
    async fn work(&self, reader: &mut Reader, found: &mut Found) -> Result<(), Failure> {
        let begun = Instant::now();
        let (mut objects, mut first, mut token) = (0, None::<Duration>, None::<String>);
        let mut position = None::<String>;
        loop {
            let limit = ("limit", self.limit.as_str());
            let path = match &token {
                None => reader.reading.path(reader.number, &[limit]),
                Some(token) => reader.reading.path(reader.number, &[limit, ("continue", token)]),
            };
            let page = Instant::now();
            reader.open(&path, found).await?;
            let (count, end) = reader.list(found, || first = first.or_else(|| Some(begun.elapsed()))).await?;
            found.pages.push(page.elapsed());
            objects += count;
            if *position.get_or_insert_with(|| end.position.clone()) != end.position {
                return Err(Failure::new(Kind::Protocol, "pages of different states"));
            }
            token = end.token;
            if token.is_none() {
                break;
            }
        }
        found.synced.push(begun.elapsed());
        found.first.extend(first);
        found.objects.push(objects);
        Ok(())
    }
}

/// Runs the scenario.
pub(super) async fn run(flags: &Flags, target: Target) -> Result<Report, Failure> {
    let session = Session::begin("paged", &flags.reading, target)?;
    Ok(session.run(Paged { limit: flags.limit.to_string() }, Some(flags.reading.timeout), None).await)
}
