//! Writes through an API server, with the outcomes of a store.

use bytes::Bytes;
use cache_server::storage::{Expect, SourceError, WriteError};
use futures::{FutureExt as _, future::BoxFuture};
use http::{Method, StatusCode};
use tests::http::{Answer, Client, with_query};

use crate::contract::{ObjectWrite, ObjectWriter};

/// A client of an API server.
pub(crate) struct HttpWriter(pub(crate) Client);

impl HttpWriter {
    async fn send(&self, method: Method, path: &str, body: String) -> Result<Answer, WriteError> {
        let json = [("content-type", "application/json")];
        let request = Client::request(method, path, &json, Bytes::from(body));
        let answer = self.0.try_send(request).await;
        answer.map_err(|error| WriteError::Source(SourceError::Undecided(error)))
    }

    /// Returns the revision of an object's deletion, the first one after `at`.
    async fn deletion(&self, collection: &str, name: &str, at: u64) -> u64 {
        let (selector, at) = (format!("metadata.name={name}"), at.to_string());
        let query = [("watch", "1"), ("resourceVersion", &*at), ("fieldSelector", &*selector)];
        let mut watch = self.0.watch(&with_query(collection, &query)).await;
        let event = watch.event().await;
        assert!(event.brief().starts_with("DELETED"), "{event:?}");
        event.resource_version()
    }

    async fn current(&self, path: &str) -> u64 {
        self.0.get(path).await.with_code(200).resource_version()
    }
}

impl ObjectWriter for HttpWriter {
    fn write(&self, write: ObjectWrite) -> BoxFuture<'_, Result<u64, WriteError>> {
        async move {
            let collection = format!("/api/v1/namespaces/{}/{}", write.namespace, write.kind.plural());
            let path = format!("{collection}/{}", write.name);
            let answer = match (write.expect, write.content) {
                (Expect::Absent, _) => self.send(Method::POST, &collection, write.json("")).await?,
                (Expect::At(at), Some(_)) => {
                    let body = write.json(&format!(r#""resourceVersion":"{at}","#));
                    self.send(Method::PUT, &path, body).await?
                }
                (Expect::At(at), None) => {
                    let body = format!(r#"{{"preconditions":{{"resourceVersion":"{at}"}}}}"#);
                    self.send(Method::DELETE, &path, body).await?
                }
            };
            match (answer.code, write.expect) {
                (StatusCode::OK, Expect::At(at)) if write.content.is_none() => {
                    Ok(self.deletion(&collection, &write.name, at).await)
                }
                (StatusCode::OK | StatusCode::CREATED, _) => Ok(answer.resource_version()),
                (StatusCode::NOT_FOUND, _) => Err(WriteError::NotFound),
                (StatusCode::CONFLICT, Expect::Absent) => Err(WriteError::Exists),
                (StatusCode::CONFLICT, _) => Err(WriteError::Conflict { current: self.current(&path).await }),
                _ => panic!("{}: {}", answer.asked, answer.text()),
            }
        }
        .boxed()
    }
}
