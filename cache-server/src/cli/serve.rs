//! `cache-server serve`: turns its flags into a `Config` and runs a server until a signal stops it.

use std::{
    future,
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use cache_server_wire::http2::GOODBYES_SPREAD;
use clap::Args;
use futures::FutureExt as _;
use listenfd::ListenFd;
use tokio::{
    runtime::Runtime,
    sync::oneshot,
    task::{JoinError, JoinHandle},
    time::sleep,
};

use super::{
    CONNECTIONS, FAILED, absent, audit::AuditFlags, authentication::AuthenticationFlags,
    authorization::AuthorizationFlags, fail, fail_input, files, flow::FlowFlags, log, supervised, units,
};
use crate::{
    Server, StartError,
    config::{Config, ListEncoding, TlsFiles},
    limits,
};

/// Heading of the flags about the watch caches and their answers.
const WATCH_CACHE: &str = "Watch cache";

/// Each flag also reads the environment variable shown with it.
///
/// The flags that most people need have no heading and come first, by `display_order`. A group's heading holds for all flags
/// after it, so the groups come last and each has a heading.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Address and port to listen on. Port 0 picks a free one. Other addresses than loopback need --tls-cert and a way to
    /// authenticate.
    #[arg(
        long,
        env = "CACHE_SERVER_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8001",
        display_order = 1
    )]
    listen: SocketAddr,

    #[cfg(feature = "embedded")]
    #[command(flatten)]
    objects: super::objects::ObjectFlags,

    /// Longest time for open requests to end after SIGTERM: with ms, s, m, h.
    #[arg(
        long, env = "CACHE_SERVER_GRACE", value_name = "TIME", default_value = "10s", value_parser = units::duration,
        help_heading = CONNECTIONS
    )]
    grace: Duration,

    /// Unix socket by which this server takes over from the one that listens there, without a refused connection, and by
    /// which the next one takes over. Left out: none.
    #[arg(long, env = "CACHE_SERVER_UPGRADE_SOCKET", value_name = "PATH", help_heading = CONNECTIONS)]
    upgrade_socket: Option<PathBuf>,

    /// Log level on stderr: error, warn, info, debug (each request, and why it failed), trace, or a filter such as
    /// cache_server=debug. Left out: RUST_LOG, else warn.
    #[arg(
        long, env = "CACHE_SERVER_LOG", value_name = "FILTER", default_value_t = log::filter_default(),
        value_parser = log::filter, display_order = 10
    )]
    log: String,

    /// Form of the log's lines: text, or a JSON object each.
    #[arg(
        long,
        env = "CACHE_SERVER_LOG_FORMAT",
        value_name = "FORMAT",
        value_enum,
        default_value = "text",
        display_order = 11
    )]
    log_format: log::LogFormat,

    /// Memory for recent events, per resource type: bytes, or with KiB, MiB, GiB.
    #[arg(
        long, env = "CACHE_SERVER_WINDOW_BYTES", value_name = "SIZE", default_value = "64MiB",
        value_parser = units::positive_size, help_heading = WATCH_CACHE
    )]
    window_bytes: usize,

    /// Age at which recent events are dropped even when there is room: with ms, s, m, h.
    #[arg(
        long, env = "CACHE_SERVER_WINDOW_AGE", value_name = "TIME", default_value = "5m",
        value_parser = positive_duration, help_heading = WATCH_CACHE
    )]
    window_age: Duration,

    /// Pause between bookmarks on a quiet watch: with ms, s, m, h.
    #[arg(
        long, env = "CACHE_SERVER_BOOKMARK_INTERVAL", value_name = "TIME", default_value = "60s",
        value_parser = positive_duration, help_heading = WATCH_CACHE
    )]
    bookmark_interval: Duration,

    /// Encoding of LIST responses: item by item with constant memory, or whole in memory first, for comparison.
    #[arg(
        long, env = "CACHE_SERVER_LIST_ENCODING", value_name = "HOW", value_enum, default_value = "streaming",
        help_heading = WATCH_CACHE
    )]
    list_encoding: ListEncoding,

    /// Bytes of a connection that the kernel may hold unsent before its client counts as slow: bytes, or with KiB,
    /// MiB, GiB. Linux only.
    #[arg(
        long, env = "CACHE_SERVER_UNSENT_BYTES", value_name = "SIZE", default_value = "16KiB",
        value_parser = unsent_size, help_heading = CONNECTIONS
    )]
    unsent_bytes: u32,

    /// Connections open at once. Further ones wait in the listen queue. An idle one takes some 15 KiB, or 30 KiB over HTTP/2.
    /// Left out: 16384, or as many as the limit of open files allows.
    #[arg(
        long, env = "CACHE_SERVER_CONNECTIONS_MAX", value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=files::CONNECTIONS_FLAG_MAX), help_heading = CONNECTIONS
    )]
    connections_max: Option<u32>,

    /// Watches that are open at once, of all users but members of system:masters. One takes some 4 KiB.
    #[arg(
        long, env = "CACHE_SERVER_WATCHES_MAX", value_name = "N", default_value = "200000",
        value_parser = clap::value_parser!(u32).range(1..), help_heading = CONNECTIONS
    )]
    watches_max: u32,

    /// PEM file with the server's certificate, then those that sign it: HTTPS is served in place of HTTP. Read again
    /// when it changes. Left out: HTTP.
    #[arg(long, env = "CACHE_SERVER_TLS_CERT", value_name = "FILE", requires = "tls_key", display_order = 7)]
    tls_cert: Option<PathBuf>,

    /// PEM file with the key of the certificate. Left out: HTTP.
    #[arg(long, env = "CACHE_SERVER_TLS_KEY", value_name = "FILE", requires = "tls_cert", display_order = 8)]
    tls_key: Option<PathBuf>,

    #[command(flatten)]
    authentication: AuthenticationFlags,

    #[command(flatten)]
    authorization: AuthorizationFlags,

    #[command(flatten)]
    flow: FlowFlags,

    #[command(flatten)]
    audit: AuditFlags,

    #[cfg(feature = "traces")]
    #[command(flatten)]
    traces: super::traces::TraceFlags,

    #[cfg(feature = "upstream")]
    #[command(flatten)]
    upstream: super::upstream::UpstreamFlags,

    #[cfg(feature = "etcd")]
    #[command(flatten)]
    etcd: super::etcd::EtcdFlags,
}

/// Parses a size that fits `setsockopt`: a positive `int`.
fn unsent_size(text: &str) -> Result<u32, String> {
    let fits = |bytes| u32::try_from(bytes).ok().filter(|bytes| i32::try_from(*bytes).is_ok());
    units::positive_size(text).and_then(|bytes| fits(bytes).ok_or_else(|| "must be less than 2GiB".to_owned()))
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    let positive = |time: Duration| if time.is_zero() { Err("must be more than 0".to_owned()) } else { Ok(time) };
    units::duration(text).and_then(positive)
}

impl From<Serve> for Config {
    fn from(serve: Serve) -> Self {
        let mut config = Self {
            listen: serve.listen,
            list_encoding: serve.list_encoding,
            bookmark_interval: serve.bookmark_interval,
            unsent_bytes: serve.unsent_bytes,
            grace: serve.grace,
            upgrade_socket: serve.upgrade_socket,
            watches_max: serve.watches_max as usize,
            #[cfg(feature = "etcd")]
            etcd: serve.etcd.config(),
            #[cfg(feature = "upstream")]
            upstream: serve.upstream.into_config(),
            flow: serve.flow.into_settings(),
            authentication: serve.authentication.into_config(),
            audit: serve.audit.into_config(),
            #[cfg(feature = "traces")]
            traces: serve.traces.into_config(),
            // clap requires both flags together.
            tls: serve.tls_cert.zip(serve.tls_key).map(|(cert, key)| TlsFiles { cert, key }),
            authorization: serve.authorization.into_config(),
            ..Self::default()
        };
        #[cfg(feature = "embedded")]
        serve.objects.fill(&mut config);
        config.limits.window_bytes_max = serve.window_bytes;
        config.limits.snapshot_bytes_max = config.limits.snapshot_bytes_max.max(2 * serve.window_bytes);
        config.limits.window_bytes_total_max = config.limits.window_bytes_total_max.max(4 * serve.window_bytes);
        config.limits.window_age_max = serve.window_age;
        config
    }
}

/// Serves on the workers of `runtime` until a signal or an error ends the server.
pub(super) fn run(serve: Serve, runtime: &Runtime) -> ExitCode {
    if let Some(refusal) = absent::variable() {
        return fail_input(&refusal);
    }
    log::install(&serve.log, serve.log_format);
    let connections_max = files::room_for(serve.connections_max);
    run_config(Config { connections_max, ..Config::from(serve) }, runtime)
}

/// Like [`run`], with settings that come from other flags.
pub(super) fn run_config(config: Config, runtime: &Runtime) -> ExitCode {
    supervised(async |mut signals| {
        let (stop, stopping) = oneshot::channel();
        let grace = config.grace;
        let (depart, departed) = oneshot::channel();
        let mut serving = runtime.spawn(serve_until(config, stopping, depart));
        tokio::select! {
            ended = &mut serving => exit_code(ended),
            () = signals.next() => {
                // An error means that the server ended meanwhile.
                let _ = stop.send(());
                end_within(grace + EXIT_MARGIN, serving, signals.next()).await
            }
            () = overdue(departed, grace) => fail(FAILED, STUCK),
        }
    })
}

/// Time after the grace period at which the process exits even if the server has not ended.
const EXIT_MARGIN: Duration = Duration::from_millis(500);

/// Waits until a stopping server ends, `time` passes or `again` resolves. Needs no worker of the server's runtime.
async fn end_within(time: Duration, serving: JoinHandle<ExitCode>, again: impl Future<Output = ()>) -> ExitCode {
    tokio::select! {
        biased;
        ended = serving => exit_code(ended),
        () = again => fail(FAILED, "told to end twice: open requests are dropped"),
        () = sleep(time) => fail(FAILED, STUCK),
    }
}

/// Resolves if a server that another process replaces has not ended in time.
async fn overdue(departed: oneshot::Receiver<()>, grace: Duration) {
    if departed.await.is_err() {
        // It ends for another reason.
        return future::pending().await;
    }
    let leaving = GOODBYES_SPREAD + limits::ENDS_SPREAD;
    sleep(leaving + grace + EXIT_MARGIN).await;
}

/// The line of a server that does not end.
const STUCK: &str = "the server does not end: a request keeps it busy and is dropped";

fn exit_code(ended: Result<ExitCode, JoinError>) -> ExitCode {
    ended.unwrap_or_else(|error| fail(FAILED, &format!("the server failed: {error}")))
}

/// Binds and serves until `stopping` resolves; a stop also interrupts the loading of objects.
async fn serve_until(config: Config, stopping: oneshot::Receiver<()>, depart: oneshot::Sender<()>) -> ExitCode {
    // An error means that the sender was dropped, which is a stop as well.
    let mut stop = stopping.map(drop);
    // systemd's, if it started this process with one.
    let given = match ListenFd::from_env().take_tcp_listener(0) {
        Ok(given) => given,
        Err(error) => return fail_input(&format!("cannot use the socket of LISTEN_FDS: {error}")),
    };
    let bind = async {
        match given {
            Some(given) => Server::bind_on(config, given).await,
            None => Server::bind(config).await,
        }
    };
    let server = tokio::select! {
        biased;
        () = &mut stop => return ExitCode::SUCCESS,
        bound = bind => bound,
    };
    let server = match server {
        Ok(server) => server,
        // The arguments are right, but what the folder has is not.
        #[cfg(feature = "durable")]
        Err(error @ StartError::Data(_)) => return fail(FAILED, &error.to_string()),
        Err(error @ StartError::Upgrade(_)) => return fail(FAILED, &error.to_string()),
        Err(error) => return fail_input(&error.to_string()),
    };
    // Serve even if stdout is closed: the parent process may not read the address.
    let mut stdout = io::stdout();
    let _ =
        writeln!(stdout, "listening on {}://{}", server.scheme(), server.local_addr()).and_then(|()| stdout.flush());
    server.noting_departure(depart).serve(stop).await;
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tokio::runtime::Builder;

    use super::*;
    use crate::config::{FlowSettings, FlowSource, PopulateSpec};

    /// Goal: SIGTERM ends the process whatever its requests do. Method: a runtime with all workers blocked, so that its
    /// timers and tasks make no progress.
    #[test]
    fn a_server_whose_workers_are_stuck_ends_within_its_grace() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (begun, is_begun) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = std::sync::Arc::new(std::sync::Mutex::new(released));
        for _ in 0..2 {
            let (begun, released) = (begun.clone(), std::sync::Arc::clone(&released));
            runtime.spawn(async move {
                begun.send(()).unwrap();
                // The first worker blocks on the channel, the second on the lock.
                let _ = released.lock().unwrap().recv();
            });
        }
        (0..2).for_each(|_| is_begun.recv().unwrap());
        let supervisor = Builder::new_current_thread().enable_all().build().unwrap();
        let end = |again: futures::future::BoxFuture<'static, ()>, time| {
            let serving = runtime.spawn(async { ExitCode::SUCCESS });
            let ended = end_within(time, serving, again);
            supervisor.block_on(async { tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap() })
        };
        let never = || futures::future::pending().boxed();
        assert_eq!(end(never(), Duration::from_millis(50)), ExitCode::from(FAILED));
        assert_eq!(end(futures::future::ready(()).boxed(), Duration::from_secs(60)), ExitCode::from(FAILED));
        drop(release);
        assert_eq!(end(never(), Duration::from_secs(60)), ExitCode::SUCCESS);
        runtime.shutdown_background();
    }

    /// Goal: the deadline of a replaced server passes, and no other server has one. Method: a paused clock.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_replaced_ends_in_time() {
        let (depart, departed) = oneshot::channel();
        depart.send(()).unwrap();
        let (begun, grace) = (tokio::time::Instant::now(), Duration::from_secs(20));
        overdue(departed, grace).await;
        assert!(begun.elapsed() > limits::ENDS_SPREAD + grace);
        let (depart, departed) = oneshot::channel();
        drop(depart);
        let ended = overdue(departed, Duration::ZERO);
        assert!(tokio::time::timeout(Duration::from_secs(3_600), ended).await.is_err());
    }

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        serve: Serve,
    }

    fn parse(arguments: &[&str]) -> Result<Config, clap::Error> {
        Flags::try_parse_from(["serve"].iter().chain(arguments)).map(|Flags { serve }| serve.into())
    }

    #[test]
    fn without_flags_the_settings_are_the_defaults() {
        let (parsed, usual) = (parse(&[]).unwrap(), Config::default());
        assert_eq!(format!("{parsed:?}"), format!("{usual:?}"));
    }

    #[test]
    fn flags_become_settings() {
        let config = parse(&[
            "--listen=[::1]:0",
            "--populate=pods=10,nodes=2",
            "--list-encoding=buffered",
            "--window-bytes=256MiB",
            "--window-age=1h30m",
            "--first-revision=100",
            "--load=a.yaml",
            "--load=folder",
            "--data-dir=data",
            "--grace=0s",
            "--unsent-bytes=32KiB",
            "--object-bytes-max=3MiB",
            "--tls-cert=tls.crt",
            "--tls-key=tls.key",
            "--flow-config=folder",
            "--max-requests-inflight=7",
        ])
        .unwrap();
        assert_eq!(config.listen.to_string(), "[::1]:0");
        assert_eq!(config.populate, Some(PopulateSpec { pods: 10, nodes: 2, ..PopulateSpec::default() }));
        assert_eq!(config.list_encoding, ListEncoding::Buffered);
        assert_eq!(config.limits.window_bytes_max, 256 << 20);
        assert!(config.limits.snapshot_bytes_max >= 512 << 20 && config.limits.window_bytes_total_max >= 1 << 30);
        assert_eq!(config.limits.window_age_max, Duration::from_secs(5_400));
        assert_eq!((config.first_revision, config.grace), (Some(100), Duration::ZERO));
        assert_eq!((config.unsent_bytes, config.object_bytes_max), (32 << 10, 3 << 20));
        assert_eq!(config.tls, Some(TlsFiles { cert: "tls.crt".into(), key: "tls.key".into() }));
        assert_eq!(config.data_dir, Some(PathBuf::from("data")));
        assert_eq!(config.load, [PathBuf::from("a.yaml"), PathBuf::from("folder")]);
        assert_eq!(config.flow, FlowSettings { source: FlowSource::Files("folder".into()), seats: 7 });
        assert_eq!(parse(&["--flow-config=stored"]).unwrap().flow.source, FlowSource::Stored);
    }

    #[test]
    fn flags_of_an_upstream_become_settings() {
        let of = |more: &[&str]| parse(&[&["--upstream=https://a"], more].concat()).unwrap().upstream.unwrap();
        assert_eq!((of(&[]).state_dir, of(&[]).saves_secrets, of(&[]).max_staleness), (None, false, Duration::ZERO));
        assert_eq!(of(&["--max-staleness=5s"]).max_staleness, Duration::from_secs(5));
        let saved = of(&["--state-dir=state", "--state-secrets"]);
        assert_eq!((saved.url.as_deref(), saved.saves_secrets), (Some("https://a"), true));
        assert_eq!(saved.state_dir, Some(PathBuf::from("state")));
    }

    #[test]
    fn bad_values_are_refused() {
        for flag in [
            "--listen=nowhere",
            "--etcd-endpoints=http://a:1 --data-dir=data",
            "--etcd-endpoints=http://a:1 --upstream=https://a",
            "--etcd-endpoints=http://a:1 --etcd-user=without-password",
            "--etcd-endpoints=http://a:1 --etcd-compaction-interval=5",
            "--etcd-allow-writes",
            "--populate=cats=1",
            "--list-encoding=fast",
            "--window-bytes=0",
            "--window-bytes=lots",
            "--connections-max=0",
            "--window-age=5",
            "--unsent-bytes=0",
            "--object-bytes-max=0",
            "--unsent-bytes=2GiB",
            "--tls-cert=without.key",
            "--tls-key=without.crt",
            "--upstream=https://a --data-dir=data",
            "--state-dir=without-upstream",
            "--state-secrets",
            "--max-staleness=5s",
            "--upstream --max-staleness=61s",
            "--upstream --max-staleness=5",
            "--first-revision=0",
            "--first-revision=-1",
            "--log=cache_server=loud",
            "--max-requests-inflight=0",
            "--unknown",
        ] {
            assert!(parse(&flag.split(' ').collect::<Vec<_>>()).is_err(), "{flag}");
        }
    }
}
