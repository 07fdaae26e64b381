//! Certificates that are used, refused and replaced, and handshakes that never finish.

use std::{
    fs,
    net::Ipv4Addr,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use rcgen::{CertifiedKey, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{net::TcpListener, time::Instant};
use tokio_rustls::{TlsConnector, client::TlsStream as ClientStream};

use super::*;
use crate::{
    socket::Socket,
    tap::{Tap, TappedStream},
};

struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn files(&self) -> TlsFiles {
        TlsFiles { cert: self.folder.path().join("tls.crt"), key: self.folder.path().join("tls.key") }
    }

    fn write(&self, cert: &str, key: &str) {
        fs::write(self.files().cert, cert).unwrap();
        fs::write(self.files().key, key).unwrap();
    }

    /// Writes a new certificate and its key to both files.
    fn renew(&self) -> CertifiedKey<KeyPair> {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        self.write(&pair.cert.pem(), &pair.signing_key.serialize_pem());
        pair
    }
}

async fn refused(cert: &str, key: &str) -> String {
    let folder = Folder::new();
    folder.write(cert, key);
    let Err(error) = Acceptor::load(folder.files(), None, &FileWatcher::default()).await else {
        panic!("{cert} and {key} are used")
    };
    error.to_string().replace(folder.folder.path().to_str().unwrap(), "")
}

#[tokio::test]
async fn what_cannot_be_used_is_said_in_one_line_without_its_content() {
    let folder = Folder::new();
    let (one, other) = (folder.renew(), folder.renew());
    let (cert, key) = (one.cert.pem(), one.signing_key.serialize_pem());
    let broken = key.replace("-----END", "-----");
    for (cert, key, why) in [
        (key.as_str(), key.as_str(), "/tls.crt: there is no certificate in it"),
        ("", &key, "/tls.crt: there is no certificate in it"),
        (&cert, &cert, "/tls.key: there is no private key in it"),
        (&cert, "", "/tls.key: there is no private key in it"),
        (&cert, &broken, "/tls.key: it is not well-formed PEM"),
        (&cert, "-----BEGIN secret", "/tls.key: it is not well-formed PEM"),
        (&cert, &other.signing_key.serialize_pem(), "/tls.crt with /tls.key: the key is of another certificate"),
    ] {
        assert_eq!(refused(cert, key).await, why);
    }
    fs::remove_file(folder.files().key).unwrap();
    let Err(error) = Acceptor::load(folder.files(), None, &FileWatcher::default()).await else {
        panic!("there is no key")
    };
    assert!(error.to_string().ends_with("tls.key: No such file or directory (os error 2)"), "{error}");
}

/// A listener and the acceptor under test.
struct Pair {
    listener: TcpListener,
    acceptor: Acceptor,
    watcher: FileWatcher,
}

impl Pair {
    async fn new(folder: &Folder) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let watcher = FileWatcher::default();
        Self { listener, acceptor: Acceptor::load(folder.files(), None, &watcher).await.unwrap(), watcher }
    }

    async fn accept(&self) -> io::Result<TlsConnection<TcpStream>> {
        self.acceptor.accept(self.listener.accept().await?.0, |stream| stream).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.listener.local_addr().unwrap()).await.unwrap()
    }

    /// Connects a client that trusts only `cert` and offers `alpn`.
    async fn open(&self, cert: &CertificateDer<'static>, alpn: &[&[u8]]) -> io::Result<ClientStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(cert.clone()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.connect().await).await
    }

    /// Returns the HTTP version that a client negotiates.
    async fn served(&self, cert: &CertificateDer<'static>, alpn: &[&[u8]]) -> Result<Protocol, String> {
        let (accepted, connected) = tokio::join!(self.accept(), self.open(cert, alpn));
        connected.map_err(|error| error.to_string())?;
        accepted.map(|accepted| accepted.protocol).map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn the_client_chooses_the_protocol() {
    let folder = Folder::new();
    let certified = folder.renew();
    let pair = Pair::new(&folder).await;
    let cert = certified.cert.der();
    assert_eq!(pair.served(cert, &[b"h2", b"http/1.1"]).await, Ok(Protocol::Http2));
    assert_eq!(pair.served(cert, &[b"http/1.1"]).await, Ok(Protocol::Http1));
    assert_eq!(pair.served(cert, &[]).await, Ok(Protocol::Http1));
    let error = pair.served(cert, &[b"spdy/3"]).await.unwrap_err();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
}

/// Goal: certificates are replaced while the server runs, and a broken replacement does no harm. Method: replace the
/// files one at a time, and let a client that trusts one certificate connect after each step.
#[tokio::test]
async fn changed_files_are_used_and_broken_ones_are_not() {
    let folder = Folder::new();
    let old = folder.renew();
    let pair = Pair::new(&folder).await;
    assert_eq!(pair.served(old.cert.der(), &[]).await, Ok(Protocol::Http1));

    let new = folder.renew();
    fs::write(folder.files().key, old.signing_key.serialize_pem()).unwrap();
    pair.watcher.check().await;
    assert_eq!(pair.served(old.cert.der(), &[]).await, Ok(Protocol::Http1), "half of a pair is not used");

    fs::write(folder.files().key, new.signing_key.serialize_pem()).unwrap();
    pair.watcher.check().await;
    assert_eq!(pair.served(new.cert.der(), &[]).await, Ok(Protocol::Http1));
    assert!(pair.served(old.cert.der(), &[]).await.is_err(), "the old certificate is gone");

    fs::remove_file(folder.files().cert).unwrap();
    pair.watcher.check().await;
    assert_eq!(pair.served(new.cert.der(), &[]).await, Ok(Protocol::Http1));
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_end_is_given_up() {
    let folder = Folder::new();
    folder.renew();
    let pair = Pair::new(&folder).await;
    // An empty handshake, and one that stops within a record.
    for sent in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let begun = Instant::now();
        let mut client = pair.connect().await;
        client.write_all(sent).await.unwrap();
        let Err(error) = pair.accept().await else { panic!("the handshake ended") };
        assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, TLS_HANDSHAKE_WAIT.as_secs()));
    }
}

/// Notes the size of each write to a socket, which has room if the test says so.
struct WriteNotes {
    sizes: Arc<Mutex<Vec<usize>>>,
    has_room: Arc<AtomicBool>,
}

impl Tap<TcpStream> for WriteNotes {
    fn written(
        &mut self,
        _: &TcpStream,
        _: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.sizes.lock().push(count);
        }
        written
    }
}

impl Socket for TappedStream<TcpStream, WriteNotes> {
    fn reset_on_close(&self) {}

    fn lift_stall_limit(&mut self) {}

    fn limit_unconfirmed(&mut self, _: bool) {}

    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.tap.has_room.load(Ordering::Relaxed) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// Goal: a fast reader gets several records in a write, a slow reader gets small ones, and nothing is encrypted for a
/// socket without room. Method: the sizes of the writes to a socket whose client reads all, and of a write that waits for
/// room.
#[tokio::test]
async fn writes_have_many_records_only_for_fast_readers() {
    const BATCH: usize = 64 << 10;
    let folder = Folder::new();
    let cert = folder.renew();
    let pair = Pair::new(&folder).await;
    let (writes, has_room) = (Arc::default(), Arc::new(AtomicBool::new(true)));
    let (noted, room) = (Arc::clone(&writes), Arc::clone(&has_room));
    let accepting = async {
        let wrap = |stream| TappedStream { stream, tap: WriteNotes { sizes: noted, has_room: room } };
        pair.acceptor.accept(pair.listener.accept().await.unwrap().0, wrap).await.unwrap()
    };
    let (mut stream, client) = tokio::join!(async { accepting.await.stream }, pair.open(cert.cert.der(), &[]));
    let reading = tokio::spawn(async move {
        let mut read = Vec::new();
        client.unwrap().read_to_end(&mut read).await.map(|_| read)
    });
    let batch = vec![7; BATCH];
    writes.lock().clear();
    for _ in 0..16 {
        stream.write_all(&batch).await.unwrap();
        stream.flush().await.unwrap();
    }
    let record = TLS_UNSENT_BYTES_MAX + 1_000;
    let sizes = writes.lock().clone();
    assert!(sizes.iter().take(8).all(|size| *size < record), "{sizes:?}");
    assert!(sizes.iter().any(|size| *size > 2 * record), "{sizes:?}");

    has_room.store(false, Ordering::Relaxed);
    let mut writing = pin!(stream.write(&batch));
    assert!(futures::poll!(&mut writing).is_pending());
    assert_eq!(writes.lock().len(), sizes.len(), "no byte is encrypted");
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(20)).await;
    tokio::time::resume();
    has_room.store(true, Ordering::Relaxed);
    let count = writing.await.unwrap();
    let slow = writes.lock()[sizes.len()..].to_vec();
    assert!(slow.iter().all(|size| *size < TLS_UNSENT_BYTES_MAX), "{slow:?}");
    stream.shutdown().await.unwrap();
    assert!(reading.await.unwrap().unwrap() == vec![7; 16 * BATCH + count]);
}
