//! The choice of cipher suites: AES-128-GCM for clients that prefer AES, as in kube-apiserver.
//!
//! AES-128 has ten rounds for each block where AES-256 has fourteen. A client that offers ChaCha20 first has no hardware
//! for AES, so its own order counts. On a machine without such hardware, the order of every client counts.

use std::{cmp::Reverse, sync::Arc};

use rustls::{
    CipherSuite, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::ClientHello,
};

/// One configuration in two orders of cipher suites.
#[derive(Clone)]
pub(super) struct SuiteOrders {
    /// The order of [`provider`].
    ours: Arc<ServerConfig>,
    /// The order of each client.
    theirs: Arc<ServerConfig>,
}

impl SuiteOrders {
    pub(super) fn new(theirs: ServerConfig) -> Self {
        let mut ours = theirs.clone();
        ours.ignore_client_order = has_aes();
        Self { ours: Arc::new(ours), theirs: Arc::new(theirs) }
    }

    /// Returns the configuration for a client.
    pub(super) fn of(&self, hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        Arc::clone(if prefers_aes(hello.cipher_suites()) { &self.ours } else { &self.theirs })
    }
}

/// Returns the cipher suites of ring, those with AES-128 first for each version of TLS.
pub(super) fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    // Stable: the other suites keep their order.
    provider.cipher_suites.sort_by_key(|suite| Reverse(is_aes_128(suite.suite())));
    provider
}

const fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

const fn is_chacha20(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    )
}

/// Returns true if the first suite that this server knows is one with AES.
fn prefers_aes(offered: &[CipherSuite]) -> bool {
    let known = ring::ALL_CIPHER_SUITES;
    let first = offered.iter().find(|suite| known.iter().any(|ours| ours.suite() == **suite));
    first.is_some_and(|suite| !is_chacha20(*suite))
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
const fn has_aes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_without_hardware_for_aes_keep_their_order() {
        use CipherSuite::{
            TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 as CHACHA20_12, TLS13_AES_128_GCM_SHA256 as AES_128,
            TLS13_AES_256_GCM_SHA384 as AES_256, TLS13_CHACHA20_POLY1305_SHA256 as CHACHA20, Unknown,
        };
        for (offered, expected) in [
            (&[AES_256, AES_128, CHACHA20][..], true),
            (&[CHACHA20, AES_256, AES_128], false),
            (&[CHACHA20_12, AES_128], false),
            // Browsers offer an unknown suite first, so that servers do not stumble over new ones.
            (&[Unknown(0x1a1a), AES_128], true),
            (&[Unknown(0x1a1a), CHACHA20, AES_128], false),
            (&[], false),
        ] {
            assert_eq!(prefers_aes(offered), expected, "{offered:?}");
        }
    }

    #[test]
    fn no_suite_is_lost() {
        let (ours, rings) = (provider().cipher_suites, ring::default_provider().cipher_suites);
        assert!(is_aes_128(ours[0].suite()));
        assert!(ours.len() == rings.len() && rings.iter().all(|suite| ours.contains(suite)));
    }
}
