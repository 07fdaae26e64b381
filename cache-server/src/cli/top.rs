//! `cache-server top`: the state of a running server in a terminal.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use cache_server_top::{
    client::{TopServer, TopUrl},
    run::{TopError, TopSettings},
};
use clap::Args;

use super::{FAILED, StopSignals, fail, fail_input, units};

/// Show the state of a running server: health, types, watches, flow control and memory, read from its `/metrics`,
/// `/readyz`, `/debug/watches` and `/debug/snapshots`. A part that the server refuses is left out, with the reason.
///
/// Keys: tab shows the next table, arrows, j and k scroll, s orders by the next column, / filters, q ends.
#[derive(Debug, Args)]
pub(super) struct Top {
    /// The server.
    #[arg(
        long,
        env = "CACHE_SERVER_SERVER",
        value_name = "http[s]://HOST:PORT",
        default_value = "http://127.0.0.1:8001"
    )]
    server: TopUrl,

    /// File with a bearer token, read again for each frame. Left out: no token.
    #[arg(long, env = "CACHE_SERVER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// PEM file with the authorities of the server's certificate. Left out: those of the system.
    #[arg(long, env = "CACHE_SERVER_CERTIFICATE_AUTHORITY", value_name = "FILE")]
    certificate_authority: Option<PathBuf>,

    /// PEM file with a client certificate. Left out: none.
    #[arg(long, env = "CACHE_SERVER_CLIENT_CERTIFICATE", value_name = "FILE", requires = "client_key")]
    client_certificate: Option<PathBuf>,

    /// PEM file with the key of the client certificate. Left out: none.
    #[arg(long, env = "CACHE_SERVER_CLIENT_KEY", value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,

    /// Time between two readings, at least 100ms.
    #[arg(long, env = "CACHE_SERVER_INTERVAL", value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,

    /// Print one frame as plain text, with all rows, and end. Left out: only without a terminal.
    #[arg(long, env = "CACHE_SERVER_ONCE")]
    once: bool,
}

/// Shortest time between two readings: each costs the server some milliseconds.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let bounded =
        |time| if time >= INTERVAL_MIN { Ok(time) } else { Err(format!("must be at least {INTERVAL_MIN:?}")) };
    units::duration(text).and_then(bounded)
}

pub(super) async fn run(top: Top) -> ExitCode {
    let certificate = top.client_certificate.zip(top.client_key);
    let Top { server: url, token_file, certificate_authority: authorities, interval, once, .. } = top;
    let settings = TopSettings { server: TopServer { url, token_file, authorities, certificate }, interval };
    let is_screen = !once && io::stdin().is_terminal() && io::stdout().is_terminal();
    let ended = if is_screen { screen(settings).await } else { settings.once().await.and_then(|text| print(&text)) };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ TopError::Settings(_)) => fail_input(&error.to_string()),
        Err(error) => fail(FAILED, &error.to_string()),
    }
}

async fn screen(settings: TopSettings) -> Result<(), TopError> {
    let mut stop = StopSignals::take()?;
    settings.watch(stop.next()).await
}

/// A reader that has seen enough, such as `head`, is no failure.
fn print(text: &str) -> Result<(), TopError> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}
