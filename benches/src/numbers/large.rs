//! Large objects: Secrets of 1,000,000 characters, as in the published runs.

use super::{Failure, server::Endpoint};
use crate::load::{client::Target, writer};

/// Base64 characters of each Secret.
const CHARACTERS: usize = 1_000_000;

/// Creates this number of Secrets in one namespace.
pub(crate) fn fill(endpoint: &Endpoint, secrets: u32) -> Result<(), Failure> {
    if secrets == 0 {
        return Ok(());
    }
    let target = Target::new(&endpoint.access()).map_err(Failure::Server)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = target.connect().await?;
        for number in 0..secrets {
            let json = secret(number);
            writer::create(&mut connection, "/api/v1/namespaces/default/secrets", json).await?;
        }
        Ok::<_, Failure>(())
    })?;
    super::server::settle(endpoint.pid).map(drop)
}

/// A Secret with random base64, different for each number.
fn secret(number: u32) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut random = fastrand::Rng::with_seed(u64::from(number) + 1);
    let data: String = (0..CHARACTERS).map(|_| char::from(letters[random.usize(..letters.len())])).collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"large-{number}","namespace":"default"}},"type":"Opaque","data":{{"blob":"{data}"}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_secret_is_json_of_its_size() {
        let text = secret(7);
        assert!((CHARACTERS..CHARACTERS + 200).contains(&text.len()));
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["data"]["blob"].as_str().map(str::len), Some(CHARACTERS));
    }
}
