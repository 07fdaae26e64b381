//! Users of TLS client certificates, and names of server certificates.
//!
//! INVARIANT: reads names and times only. TLS has verified the certificate before.
//!
//! Source: apiserver `authentication/request/x509/x509.go`, CommonNameUserConversion.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::digest::{SHA256, digest};
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{Decode as _, Encode as _, Tag, Tagged as _, asn1::ObjectIdentifier},
    ext::pkix::{SubjectAltName, name::GeneralName},
    request::CertReq,
};

use super::claims::{CREDENTIAL_ID, TokenUser, UnixSeconds};
use crate::user::User;

/// The user's name.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// One group each.
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// The user's uid: Kubernetes' own attribute.
const UID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.57683.2");

/// Error of a certificate that names no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The certificate is not well-formed.
    #[error("the certificate is malformed")]
    Malformed,
    /// A name in the subject is in no supported encoding, or is no text.
    #[error("a name in the certificate's subject is unreadable")]
    Name,
    /// The subject has no common name.
    #[error("the certificate's subject has no common name")]
    NoName,
    /// The subject has several uids, or an empty one.
    #[error("the certificate's subject must have one uid at most")]
    Uid,
}

/// Returns the user of a verified client certificate, in DER: its last common name, its organizations as groups, valid
/// until its notAfter.
///
/// # Errors
/// [`CertificateError`] if it names no user.
pub fn user(certificate: &[u8]) -> Result<TokenUser, CertificateError> {
    let parsed = CertificateInner::<Raw>::from_der(certificate).map_err(|_| CertificateError::Malformed)?;
    let content = parsed.tbs_certificate();
    let (mut name, mut uid, mut groups) = (String::new(), None, Vec::new());
    for attribute in content.subject().iter() {
        if ![COMMON_NAME, ORGANIZATION, UID].contains(&attribute.oid) {
            continue;
        }
        let value = text(attribute.value.tag(), attribute.value.value()).ok_or(CertificateError::Name)?;
        match attribute.oid {
            COMMON_NAME => value.clone_into(&mut name),
            ORGANIZATION => groups.push(value.to_owned()),
            _ if value.is_empty() || uid.replace(value.to_owned()).is_some() => return Err(CertificateError::Uid),
            _ => {}
        }
    }
    if name.is_empty() {
        return Err(CertificateError::NoName);
    }
    let mut user = User::authenticated(name, groups);
    user.uid = uid.unwrap_or_default();
    user.extra
        .insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={}", hex(digest(&SHA256, certificate).as_ref()))]);
    let not_after = content.validity().not_after.to_unix_duration().as_secs();
    // A certificate is still valid in its last second.
    let expires = UnixSeconds::try_from(not_after).unwrap_or(UnixSeconds::MAX).saturating_add(1);
    Ok(TokenUser { user, expires })
}

/// Returns the public key of a certificate: SubjectPublicKeyInfo in DER.
///
/// # Errors
/// [`CertificateError::Malformed`]
pub fn public_key(certificate: &[u8]) -> Result<Vec<u8>, CertificateError> {
    let parsed = CertificateInner::<Raw>::from_der(certificate).map_err(|_| CertificateError::Malformed)?;
    parsed.tbs_certificate().subject_public_key_info().to_der().map_err(|_| CertificateError::Malformed)
}

/// The subject of a request for a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedSubject {
    /// The common name; empty without one.
    pub name: String,
    /// The organizations, which are groups of the user.
    pub groups: Vec<String>,
}

/// Reads the subject of a request for a certificate: PEM in base64, as in a CertificateSigningRequest.
///
/// # Errors
/// The problem, in kube-apiserver's words where that has its own.
pub fn requested_subject(request: &str) -> Result<RequestedSubject, &'static str> {
    const LABEL: &str = "CERTIFICATE REQUEST";
    let is_pem = "PEM block type must be CERTIFICATE REQUEST";
    let decode = |text: &str| {
        let text: String = text.split_ascii_whitespace().collect();
        STANDARD.decode(text).map_err(|_| "it is no base64")
    };
    let pem = String::from_utf8(decode(request)?).map_err(|_| is_pem)?;
    let block = pem.split_once("-----BEGIN CERTIFICATE REQUEST-----").and_then(|(_, rest)| rest.split_once("-----END"));
    let (block, _) = block.filter(|(_, end)| end.trim_start().starts_with(LABEL)).ok_or(is_pem)?;
    let parsed = CertReq::from_der(&decode(block)?).map_err(|_| "it is malformed")?;
    let mut subject = RequestedSubject::default();
    for attribute in parsed.info.subject.iter() {
        let value = || text(attribute.value.tag(), attribute.value.value());
        match attribute.oid {
            COMMON_NAME => subject.name = value().ok_or("its common name is unreadable")?.to_owned(),
            ORGANIZATION => subject.groups.push(value().ok_or("its organization is unreadable")?.to_owned()),
            _ => {}
        }
    }
    Ok(subject)
}

/// Returns the text of an attribute's value; `None` for other types, and encodings that are no text.
fn text(tag: Tag, value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let is_ascii = [Tag::PrintableString, Tag::Ia5String, Tag::NumericString].contains(&tag) && text.is_ascii();
    (is_ascii || tag == Tag::Utf8String).then_some(text)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The names of a server certificate, by which clients may address its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerNames {
    /// DNS names in lower case; `*.` stands for one label.
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl ServerNames {
    /// Reads the subject alternative names of a certificate in DER. Empty for a certificate that is malformed or has
    /// none.
    #[must_use]
    pub fn of_certificate(certificate: &[u8]) -> Self {
        let mut read = Self::default();
        let Ok(parsed) = CertificateInner::<Raw>::from_der(certificate) else { return read };
        let Ok(Some((_, SubjectAltName(names)))) = parsed.tbs_certificate().get_extension() else { return read };
        for name in names {
            match name {
                GeneralName::DnsName(name) => read.names.push(name.as_str().to_ascii_lowercase()),
                GeneralName::IpAddress(address) => read.addresses.extend(ip_address(address.as_bytes())),
                GeneralName::OtherName(_)
                | GeneralName::Rfc822Name(_)
                | GeneralName::DirectoryName(_)
                | GeneralName::EdiPartyName(_)
                | GeneralName::UniformResourceIdentifier(_)
                | GeneralName::RegisteredId(_) => {}
            }
        }
        read
    }

    /// Returns the names in a list of the settings.
    #[must_use]
    pub fn listed(names: &[String]) -> Self {
        let (addresses, names): (Vec<_>, Vec<_>) =
            names.iter().map(|name| (name.parse(), name)).partition(|(address, _)| address.is_ok());
        Self {
            names: names.into_iter().map(|(_, name)| name.to_ascii_lowercase()).collect(),
            addresses: addresses.into_iter().filter_map(|(address, _)| address.ok()).collect(),
        }
    }

    /// Returns true if `host`, a name or an address without port or brackets, is one of the names.
    #[must_use]
    pub fn contains(&self, host: &str) -> bool {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        let host = host.to_ascii_lowercase();
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(domain) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == domain),
            None => *name == host,
        })
    }
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DnType, DnValue, KeyPair};

    use super::*;

    /// A self-signed certificate with these attributes in its subject.
    fn certificate(subject: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (key, value) in subject {
            params.distinguished_name.push(key.clone(), value.clone());
        }
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn subjects_name_users_and_groups() {
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let der = certificate(&[
            (DnType::CommonName, utf8("system:node:a")),
            (DnType::OrganizationName, utf8("system:nodes")),
            (DnType::OrganizationalUnitName, utf8("ignored")),
            (uid, utf8("u-1")),
        ]);
        let read = user(&der).unwrap();
        assert_eq!(read.expires, 2_208_988_801);
        assert_eq!((&*read.user.name, &*read.user.uid), ("system:node:a", "u-1"));
        assert_eq!(read.user.groups, ["system:nodes", "system:authenticated"]);
        let id = &read.user.extra["authentication.kubernetes.io/credential-id"][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
    }

    #[test]
    fn certificates_without_a_readable_name_are_refused() {
        let latin = DnValue::TeletexString("ab".try_into().unwrap());
        for (subject, error) in [
            (vec![], CertificateError::NoName),
            (vec![(DnType::OrganizationName, utf8("system:masters"))], CertificateError::NoName),
            (vec![(DnType::CommonName, utf8(""))], CertificateError::NoName),
            (vec![(DnType::CommonName, latin)], CertificateError::Name),
            (
                vec![
                    (DnType::CommonName, utf8("a")),
                    (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), utf8("")),
                ],
                CertificateError::Uid,
            ),
        ] {
            assert_eq!(user(&certificate(&subject)), Err(error), "{subject:?}");
        }
        assert_eq!(user(b""), Err(CertificateError::Malformed));
        let der = certificate(&[(DnType::CommonName, utf8("a"))]);
        for end in 0..der.len() {
            assert!(user(&der[..end]).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn servers_are_addressed_by_the_names_of_their_certificate() {
        let names = ["cache.example.com", "*.pods.example.com", "10.1.2.3", "fd00::1"].map(str::to_owned);
        let mut params = CertificateParams::new(names.to_vec()).unwrap();
        params.custom_extensions.push(CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]));
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        for read in [ServerNames::of_certificate(&der), ServerNames::listed(&names)] {
            for host in ["cache.example.com", "CACHE.example.com", "a.pods.example.com", "10.1.2.3", "fd00:0::1"] {
                assert!(read.contains(host), "{host}");
            }
            for host in ["", "example.com", "a.b.pods.example.com", ".pods.example.com", "pods.example.com", "10.1.2.4"]
            {
                assert!(!read.contains(host), "{host}");
            }
        }
        assert_eq!(ServerNames::of_certificate(b"x"), ServerNames::default());
    }
}
