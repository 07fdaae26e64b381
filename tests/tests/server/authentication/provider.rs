//! Tokens of an OpenID Connect provider whose keys are discovered over TLS.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{fs, path::Path, sync::Arc, time::SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rcgen::{KeyPair, PKCS_ED25519, SigningKey as _};
use serde_json::{Value, json};
use tests::{process::Server, tls::Authority};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};

use super::BINARY;

const CLIENT: &str = "cache";
const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// Path of the keys. Some providers tell policies apart by the query.
const KEYS: &str = "/tenant/keys?policy=1";
const DISCOVERY: &str = "/tenant/.well-known/openid-configuration";

/// A provider on a TLS socket of this machine. It stops with the runtime of its test.
struct Provider {
    url: String,
    key: Arc<KeyPair>,
    /// Paths of its requests.
    requests: UnboundedReceiver<String>,
}

impl Provider {
    /// Its certificate is written into `folder`.
    async fn start(authority: &Authority, folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("https://{address}/tenant");
        let key = Arc::new(KeyPair::generate_for(&PKCS_ED25519).unwrap());
        let (tls, (log, requests)) = (authority.issue(folder).acceptor(), unbounded_channel());
        let discovery = json!({"issuer": url, "jwks_uri": format!("https://{address}{KEYS}")});
        let public = URL_SAFE_NO_PAD.encode(key.public_key_raw());
        let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "alg": "EdDSA", "x": public}]});
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = tls.accept(stream).await else { continue };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap().to_owned();
                let (code, document) = match &*path {
                    DISCOVERY => (200, &discovery),
                    KEYS => (200, &keys),
                    _ => (404, &Value::Null),
                };
                log.send(path).unwrap();
                let (body, close) = (document.to_string(), "Connection: close\r\n");
                let answer = format!("HTTP/1.1 {code} X\r\n{close}Content-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        });
        Self { url, key, requests }
    }

    /// A token of `jane` for `audience`.
    fn token(&self, audience: &str) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let claims =
            json!({"iss": self.url, "aud": audience, "exp": now + 600, "iat": now, "sub": "jane", "teams": ["dev"]});
        let encode = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(json!({"alg": "EdDSA", "kid": "k1"})), encode(claims));
        let signature = self.key.sign(signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Goal: tokens of a provider are verified with the keys that it publishes over TLS, and only if its certificate is of the
/// named authority. Method: a provider on a socket; tokens that are right, for another audience, and changed; and a server
/// that trusts another authority.
#[tokio::test]
async fn keys_of_a_provider_are_discovered_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let [own, other] = [Authority::new(), Authority::new()];
    let mut provider = Provider::start(&own, folder.path()).await;
    let start = async |authority: &Authority, name: &str| {
        let file = folder.path().join(name);
        fs::write(&file, authority.pem()).unwrap();
        let names = ["--oidc-username-prefix=oidc:", "--oidc-groups-claim=teams", "--oidc-groups-prefix=oidc:"];
        let issuer = ["--oidc-issuer-url", &provider.url, "--oidc-client-id", CLIENT];
        let ca = ["--oidc-ca-file", file.to_str().unwrap()];
        Server::start(BINARY, &[&issuer[..], &names, &ca].concat()).await
    };
    let (server, distrustful) = (start(&own, "own.crt").await, start(&other, "other.crt").await);
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let token = provider.token(CLIENT);
    for _ in 0..10 {
        let answer = server.client().with_token(&token).post(WHO_AM_I, &question).await.with_code(201).json();
        let user = &answer["status"]["userInfo"];
        assert_eq!(user["username"], "oidc:jane");
        assert_eq!(user["groups"], json!(["oidc:dev", "system:authenticated"]));
    }
    let (signed, _) = token.rsplit_once('.').unwrap();
    let changed = format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 64]));
    for wrong in [provider.token("another"), changed] {
        assert_eq!(server.client().with_token(&wrong).post(WHO_AM_I, &question).await.code, 401);
    }
    let asked: Vec<String> = std::iter::from_fn(|| provider.requests.try_recv().ok()).collect();
    assert_eq!(asked, [DISCOVERY, KEYS], "once each");
    let refused = distrustful.client().with_token(&token).post(WHO_AM_I, &question).await;
    assert_eq!(refused.code, 503, "{}", refused.text());
    assert!(provider.requests.try_recv().is_err(), "nothing was asked over a connection that is not trusted");
}
