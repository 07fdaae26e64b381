//! The program `kube-apiserver` of a folder for envtest: its flags as settings of the server. Two are our own: `--forks`, and
//! `--data-dir` for objects that outlive the process.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    process::ExitCode,
    time::Duration,
};

use api_rules::service_range::ServiceRange;
use tokio::runtime::Runtime;

use super::{
    super::{files, log, serve},
    certificate, fail_input,
    flags::ProgramFlags,
};
use crate::config::{
    AdmissionPlugins, AuthenticationConfig, AuthorizationConfig, AuthorizationMode, Config, KeySource,
    ServiceAccountsConfig,
};

/// Flags with an effect.
pub(super) const USED: &[&str] = &[
    "advertise-address",
    "anonymous-auth",
    "authorization-mode",
    "bind-address",
    "cert-dir",
    "client-ca-file",
    "data-dir",
    "disable-admission-plugins",
    "forks",
    "secure-port",
    "service-account-issuer",
    "service-account-key-file",
    "service-account-signing-key-file",
    "service-cluster-ip-range",
    "tls-cert-file",
    "tls-private-key-file",
    "token-auth-file",
];

/// Flags that envtest passes, without an effect here.
pub(super) const IGNORED: &[&str] = &["allow-privileged", "etcd-servers"];

/// Time for open requests after SIGTERM: the clients belong to tests that have ended.
const GRACE: Duration = Duration::from_secs(1);

pub(super) fn run(flags: &ProgramFlags, runtime: &Runtime) -> ExitCode {
    log::install(&log::filter_default(), log::LogFormat::Text);
    match config(flags) {
        Ok(config) => serve::run_config(Config { connections_max: files::room_for(None), ..config }, runtime),
        Err(problem) => fail_input(&problem),
    }
}

/// Returns the settings that the flags mean.
///
/// # Errors
/// One line for a value that cannot be used, or a certificate that cannot be made.
fn config(flags: &ProgramFlags) -> Result<Config, String> {
    let address = match flags.last("bind-address") {
        Some(text) => text.parse().map_err(|_| format!("--bind-address={text} is no IP address"))?,
        None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    let port = match flags.last("secure-port") {
        Some(text) => text.parse().map_err(|_| format!("--secure-port={text} is no port"))?,
        None => 6443,
    };
    let modes: Vec<_> = flags.all("authorization-mode").map(mode).collect::<Result<_, _>>()?;
    // kube-apiserver too admits no unknown callers to whom everything would be allowed. This server does on a loopback
    // address, if no flag names a way to prove who they are.
    let decides = !modes.is_empty() && !modes.contains(&AuthorizationMode::AlwaysAllow);
    Ok(Config {
        listen: SocketAddr::new(address, port),
        tls: Some(certificate::files(flags, address)?),
        authentication: AuthenticationConfig {
            client_ca_file: flags.last("client-ca-file").map(Into::into),
            token_auth_file: flags.last("token-auth-file").map(Into::into),
            service_accounts: service_accounts(flags),
            insecure_anonymous: flags.boolean("anonymous-auth", true)? && decides,
            ..AuthenticationConfig::default()
        },
        authorization: AuthorizationConfig { modes },
        acts_as_cluster: true,
        admission: AdmissionPlugins::without(&flags.all("disable-admission-plugins").collect::<Vec<_>>()),
        data_dir: flags.last("data-dir").map(Into::into),
        service_range: service_range(flags)?,
        advertise_address: advertise_address(flags, address)?,
        forks: flags.boolean("forks", false)?,
        grace: GRACE,
        ..Config::default()
    })
}

/// Returns the addresses of Services: the first range, as there is no second one here.
fn service_range(flags: &ProgramFlags) -> Result<ServiceRange, String> {
    let Some(first) = flags.all("service-cluster-ip-range").next() else { return Ok(ServiceRange::DEFAULT) };
    first.parse().map_err(|problem| format!("--service-cluster-ip-range: {problem}"))
}

/// Returns the address that a flag advertises, else the bound one, or the machine's if the bound one leads nowhere from
/// elsewhere. A loopback address is not advertised.
fn advertise_address(flags: &ProgramFlags, bound: IpAddr) -> Result<Option<IpAddr>, String> {
    let address = match flags.last("advertise-address") {
        Some(text) => Some(text.parse().map_err(|_| format!("--advertise-address={text} is no IP address"))?),
        None if bound.is_unspecified() || bound.is_loopback() => machine_address(),
        None => Some(bound),
    };
    Ok(address.filter(|address| !address.is_loopback() && !address.is_unspecified()))
}

/// Returns the address that packets to other networks come from, without sending one; `None` without a route.
fn machine_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // One of the addresses for documentation.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns the issuer of tokens; `None` without a key to verify them.
fn service_accounts(flags: &ProgramFlags) -> Option<ServiceAccountsConfig> {
    let signing_key = flags.last("service-account-signing-key-file");
    let keys = flags.last("service-account-key-file").or(signing_key)?;
    Some(ServiceAccountsConfig {
        issuer: flags.last("service-account-issuer")?.to_owned(),
        keys: KeySource::File(keys.into()),
        signing_key: signing_key.map(Into::into),
    })
}

fn mode(name: &str) -> Result<AuthorizationMode, String> {
    match name {
        "AlwaysAllow" => Ok(AuthorizationMode::AlwaysAllow),
        "Node" => Ok(AuthorizationMode::Node),
        "RBAC" => Ok(AuthorizationMode::Rbac),
        other => Err(format!("--authorization-mode={other} is not served here: AlwaysAllow, Node and RBAC are")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Config, String> {
        config(&ProgramFlags::parse(&flags.iter().map(Into::into).collect::<Vec<_>>()).unwrap())
    }

    /// Goal: flags mean what they mean to kube-apiserver. Method: those of envtest, then each that is refused.
    #[test]
    fn flags_become_settings() {
        let folder = tempfile::tempdir().unwrap();
        let dir = format!("--cert-dir={}", folder.path().display());
        let flags = ["--bind-address=127.0.0.1", "--secure-port=4", "--authorization-mode=Node,RBAC", "--forks=true"];
        let made = parse(&[&[dir.as_str()], &flags[..]].concat()).unwrap();
        assert!(made.forks && !parse(&[&dir]).unwrap().forks);
        assert_eq!(parse(&[&dir, "--data-dir=d"]).unwrap().data_dir, Some("d".into()));
        assert_eq!(made.listen, "127.0.0.1:4".parse().unwrap());
        assert_eq!(made.authorization.modes, [AuthorizationMode::Node, AuthorizationMode::Rbac]);
        assert!(made.authentication.insecure_anonymous);
        let tls = made.tls.unwrap();
        let first = std::fs::read(&tls.cert).unwrap();
        assert_eq!(parse(&[&dir]).unwrap().tls, Some(tls.clone()), "the folder has a certificate now");
        assert_eq!(std::fs::read(&tls.cert).unwrap(), first);
        let named = parse(&["--tls-cert-file=a", "--tls-private-key-file=b", "--anonymous-auth=false"]).unwrap();
        assert_eq!(named.tls.unwrap().cert, std::path::PathBuf::from("a"));
        assert!(!named.authentication.insecure_anonymous);
        for (flags, is_anonymous) in [
            (&[][..], false),
            (&["--anonymous-auth=true"], false),
            (&["--authorization-mode=AlwaysAllow"], false),
            (&["--authorization-mode=RBAC,AlwaysAllow"], false),
            (&["--authorization-mode=RBAC"], true),
            (&["--authorization-mode=RBAC", "--anonymous-auth"], true),
            (&["--authorization-mode=RBAC", "--anonymous-auth=T"], true),
            (&["--authorization-mode=RBAC", "--anonymous-auth=False"], false),
            (&["--authorization-mode=RBAC", "--anonymous-auth=0"], false),
        ] {
            let made = parse(&[&[dir.as_str()], flags].concat()).unwrap();
            assert_eq!(made.authentication.insecure_anonymous, is_anonymous, "{flags:?}");
        }
        assert_eq!(parse(&[&dir]).unwrap().admission, AdmissionPlugins::ALL);
        let off = parse(&[&dir, "--disable-admission-plugins=ServiceAccount,LimitRanger,Other"]).unwrap().admission;
        assert_eq!(off, AdmissionPlugins { limit_ranger: false, service_account: false, ..AdmissionPlugins::ALL });
        assert_eq!(parse(&[&dir]).unwrap().service_range, ServiceRange::DEFAULT);
        let range = parse(&[&dir, "--service-cluster-ip-range=10.9.0.0/16,fd00::/112"]).unwrap().service_range;
        assert_eq!(range.to_string(), "10.9.0.0/16");
        let advertised = |flags: &[&str]| parse(&[&[dir.as_str()], flags].concat()).unwrap().advertise_address;
        let address = "192.0.2.7".parse().ok();
        assert_eq!(advertised(&["--bind-address=127.0.0.1", "--advertise-address=192.0.2.7"]), address);
        assert_eq!(advertised(&["--bind-address=192.0.2.7"]), address);
        assert_eq!(advertised(&["--advertise-address=127.0.0.1"]), None);
        for refused in [
            "--advertise-address=host",
            "--service-cluster-ip-range=10.0.0.0",
            "--bind-address=here",
            "--secure-port=high",
            "--authorization-mode=ABAC",
            "--anonymous-auth=maybe",
        ] {
            assert!(parse(&[&dir, refused]).is_err(), "{refused}");
        }
    }
}
