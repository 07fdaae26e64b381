//! Certificates for servers under test, and clients that trust only their authority.

use std::{
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, ServerConfig,
    client::WantsClientCert,
    crypto::ring,
    pki_types::{CertificateDer, IpAddr, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Paths of a certificate and its key.
#[derive(Clone, Debug)]
pub struct Files {
    /// PEM of the certificate and of its issuer.
    pub cert: PathBuf,
    /// PEM of its key.
    pub key: PathBuf,
}

impl Files {
    /// The server's flags.
    pub fn flags(&self) -> [&str; 4] {
        let (cert, key) = (self.cert.to_str(), self.key.to_str());
        ["--tls-cert", cert.expect("is text"), "--tls-key", key.expect("is text")]
    }
}

impl Files {
    /// Accepts connections with this certificate, for HTTP/1.1.
    pub fn acceptor(&self) -> TlsAcceptor {
        let certs = CertificateDer::pem_file_iter(&self.cert).expect("a file").map(|cert| cert.expect("PEM"));
        let key = PrivateKeyDer::from_pem_file(&self.key).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth();
        Arc::new(config.with_single_cert(certs.collect(), key).expect("its key")).into()
    }
}

impl Authority {
    /// Generates a new authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Not the default name, which its certificates have too: OpenSSL would take these for self-signed ones.
        params.distinguished_name.push(DnType::CommonName, "authority of tests");
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    /// Writes a certificate for this machine and its key into `folder`, and replaces an existing pair.
    pub fn issue(&self, folder: &Path) -> Files {
        self.sign(folder, params())
    }

    /// Like [`issue`](Self::issue), without a common name: etcd would take it for a user's.
    pub fn issue_nameless(&self, folder: &Path) -> Files {
        let mut params = params();
        params.distinguished_name = DistinguishedName::new();
        self.sign(folder, params)
    }

    /// Writes a certificate of a user and its key into `folder`.
    pub fn issue_user(&self, folder: &Path, user: &str, groups: &[&str]) -> Files {
        self.sign_as(folder, user, user_params(user, groups))
    }

    /// Like [`issue_user`](Self::issue_user), of which the validity has ended.
    pub fn issue_expired_user(&self, folder: &Path, user: &str) -> Files {
        let mut params = user_params(user, &[]);
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
        self.sign_as(folder, user, params)
    }

    fn sign(&self, folder: &Path, params: CertificateParams) -> Files {
        self.sign_as(folder, "tls", params)
    }

    fn sign_as(&self, folder: &Path, name: &str, params: CertificateParams) -> Files {
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = Files { cert: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) };
        fs::write(&files.cert, cert.pem() + &self.issuer.pem()).expect("a file");
        fs::write(&files.key, key.serialize_pem()).expect("a file");
        files
    }

    /// Its own certificate, for clients that must trust it.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A connector that trusts the servers it issued certificates for.
    pub fn trust(&self) -> Trust {
        Trust { config: self.config().with_no_client_auth() }
    }

    /// Like [`trust`](Self::trust), with a certificate of the client.
    pub fn trust_as(&self, client: &Files) -> Trust {
        let certs = CertificateDer::pem_file_iter(&client.cert).expect("a file").map(|cert| cert.expect("PEM"));
        let key = PrivateKeyDer::from_pem_file(&client.key).expect("a key");
        Trust { config: self.config().with_client_auth_cert(certs.collect(), key).expect("its key") }
    }

    fn config(&self) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a certificate");
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
    }
}

fn params() -> CertificateParams {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    CertificateParams::new(names.into_iter().chain(own_address().map(|own| own.to_string())).collect::<Vec<_>>())
        .expect("names")
}

/// Certificate of a client with this common name and these organizations.
fn user_params(user: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new([]).expect("no names");
    params.distinguished_name = DistinguishedName::new();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if !user.is_empty() {
        params.distinguished_name.push(DnType::CommonName, user);
    }
    groups.iter().for_each(|group| params.distinguished_name.push(DnType::OrganizationName, *group));
    params
}

/// An address of this machine that is not loopback; `None` if there is none.
pub fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing: it only looks for the route.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// Connects to servers with a certificate of one authority.
#[derive(Clone)]
pub struct Trust {
    config: ClientConfig,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    /// Trusts the authority whose certificate is the last one of a file, such as [`Files::cert`].
    pub fn of_issuer(file: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        let issuer = CertificateDer::pem_file_iter(file).expect("a file").last().expect("a certificate");
        roots.add(issuer.expect("PEM")).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Self { config: config.with_no_client_auth() }
    }

    /// Opens a stream to `address` with a protocol of `alpn`.
    ///
    /// # Errors
    /// Returns an error if the connection or the handshake fails.
    pub async fn connect(&self, address: SocketAddr, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config = self.config.clone();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::IpAddress(IpAddr::from(address.ip()));
        let stream = TcpStream::connect(address).await?;
        // With Nagle's algorithm, the request behind the handshake would wait 40 ms for an acknowledgement.
        stream.set_nodelay(true)?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}
