//! The modules of the feature `client`, for builds without it: its names, as far as other crates use them, on types
//! without values. So a server without an API server behind it needs no client, and its code does not name the feature.

pub mod forward {
    //! See the module of the feature `client`.

    use std::{
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
    };

    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, HeaderValue, Response, request::Parts};
    use http_body::Frame;
    use hyper::upgrade::Upgraded;
    use informer_serving::status::Status;
    use tokio::sync::OwnedSemaphorePermit;

    pub struct Forwarder(Infallible);

    pub struct RequestIdentity<'a> {
        pub id: (HeaderName, &'a HeaderValue),
        pub user: Option<&'a HeaderMap>,
    }

    impl Forwarder {
        pub async fn forward<B>(
            &self,
            _: &Parts,
            _: RequestIdentity<'_>,
            _: B,
        ) -> Result<Response<ForwardedBody>, Status> {
            match self.0 {}
        }
    }

    pub struct ForwardedBody(Infallible);

    pub struct BrokenAnswer;

    pub struct UpstreamTunnel {
        pub stream: Upgraded,
        pub permit: OwnedSemaphorePermit,
    }

    impl ForwardedBody {
        pub fn into_tunnel(self) -> Option<UpstreamTunnel> {
            match self.0 {}
        }
    }

    impl http_body::Body for ForwardedBody {
        type Data = Bytes;
        type Error = BrokenAnswer;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
            match self.0 {}
        }
    }
}

pub mod gateway {
    //! See the module of the feature `client`.

    use std::{convert::Infallible, sync::Arc};

    use access_rules::{request_info::RequestInfo, user::User};
    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use informer_serving::{query::Query, status::Status};

    use super::{
        forward::Forwarder,
        identity::UpstreamIdentity,
        impersonator::Impersonator,
        sender::OwnRequests,
        source::{ProvedCache, UpstreamSource},
    };
    use crate::{
        cacher::Caches,
        last_answer::LastAnswer,
        registry::{Registry, ResourceType},
        rights::{CredentialRight, HeldAllow, SubjectRights},
        route::Route,
    };

    pub struct Upstream {
        pub source: Arc<UpstreamSource>,
        pub impersonator: Option<Impersonator>,
        pub identity: Arc<UpstreamIdentity>,
        pub last_answer: Arc<LastAnswer>,
        never: Infallible,
    }

    pub enum Answerer<'a> {
        Here,
        Proved(ProvedCache),
        Upstream(&'a Forwarder),
        Identity(Bytes),
    }

    #[derive(Clone, Copy)]
    pub struct ReadHead<'a> {
        pub method: &'a Method,
        pub headers: &'a HeaderMap,
        pub query: &'a Query,
        pub info: &'a RequestInfo,
        pub checks_rights: bool,
        pub is_acceptable: bool,
        pub local: Option<&'a User>,
    }

    impl Upstream {
        pub fn own_requests(&self) -> &OwnRequests {
            match self.never {}
        }

        pub fn named_types(&self, _: &Registry) -> Vec<Arc<ResourceType>> {
            match self.never {}
        }

        pub fn report_unknown(&self, _: &Registry) {
            match self.never {}
        }

        pub fn unknown_scope(&self, _: &Registry) -> Option<&str> {
            match self.never {}
        }

        pub fn is_reached(&self) -> bool {
            match self.never {}
        }

        pub fn is_named(&self, _: &str) -> bool {
            match self.never {}
        }

        pub fn is_on_demand(&self) -> bool {
            match self.never {}
        }

        pub async fn answerer(
            &self,
            _: &Caches,
            _: &Registry,
            _: ReadHead<'_>,
            _: &Route,
        ) -> Result<Answerer<'_>, Status> {
            match self.never {}
        }

        pub fn subject_rights(&self) -> Arc<SubjectRights> {
            match self.never {}
        }

        pub async fn may(&self, _: &[RequestInfo]) -> Result<bool, Status> {
            match self.never {}
        }

        pub fn read_right(&self, _: &HeaderMap, _: &RequestInfo) -> CredentialRight {
            match self.never {}
        }

        pub async fn check_again(
            &self,
            _: &HeaderMap,
            _: &RequestInfo,
            _: bool,
            _: Option<&HeldAllow>,
        ) -> Result<HeldAllow, Status> {
            match self.never {}
        }
    }

    pub fn unreached() -> Status {
        unreachable!("there is no API server to reach")
    }
}

pub mod identity {
    //! See the module of the feature `client`.

    use std::{
        convert::Infallible,
        sync::{Arc, Weak},
    };

    use tokio::sync::watch;

    use crate::last_answer::LastAnswer;

    #[derive(Clone, PartialEq)]
    pub enum ClusterName {}

    impl ClusterName {
        pub fn uid(&self) -> Option<&str> {
            match *self {}
        }
    }

    pub struct UpstreamIdentity(Infallible);

    impl UpstreamIdentity {
        pub fn changes(&self) -> watch::Receiver<Option<ClusterName>> {
            match self.0 {}
        }

        pub async fn reached(&self, _: impl Fn(&ClusterName) -> bool) -> ClusterName {
            match self.0 {}
        }
    }

    pub async fn keep_checking(_: Weak<UpstreamIdentity>, _: Arc<LastAnswer>) {}
}

pub mod impersonator {
    //! See the module of the feature `client`.

    use std::convert::Infallible;

    use access_rules::user::User;
    use http::HeaderMap;
    use informer_serving::status::Status;

    use super::forward::Forwarder;

    pub struct Impersonator {
        pub forwarder: Forwarder,
        never: Infallible,
    }

    impl Impersonator {
        pub async fn act_as(&self, _: &User) -> Result<Option<HeaderMap>, Status> {
            match self.never {}
        }
    }
}

pub mod sender {
    //! See the module of the feature `client`.

    use std::{convert::Infallible, path::Path};

    use bytes::Bytes;
    use futures::future::BoxFuture;
    use http::{Method, StatusCode};

    use crate::{
        error::{UpstreamError, without_user},
        own_requests::{AnswerBounds, OwnRequestError, SendOwn},
    };

    #[derive(Clone)]
    pub struct OwnRequests(Infallible);

    impl OwnRequests {
        /// # Errors
        /// Always: keys of issuers are fetched by the client.
        pub fn anonymous(url: &str, _: Option<&Path>) -> Result<Self, UpstreamError> {
            let problem = "this needs a build with the feature upstream".to_owned();
            Err(UpstreamError::Client { server: without_user(url), problem })
        }
    }

    impl SendOwn for OwnRequests {
        fn send<'a>(
            &'a self,
            _: Method,
            _: &'a str,
            _: Bytes,
            _: AnswerBounds,
        ) -> BoxFuture<'a, Result<(StatusCode, Bytes), OwnRequestError>> {
            match self.0 {}
        }
    }
}

pub mod source {
    //! See the module of the feature `client`.

    use std::{convert::Infallible, time::Duration};

    use cache_server_caches::registry::ResourceType;
    use watch_cache::Reader;

    #[derive(Clone, Debug)]
    pub struct ProvedCache {
        pub reader: Reader,
        pub age: Option<Duration>,
    }

    pub struct UpstreamSource(Infallible);

    impl UpstreamSource {
        pub fn is_suspect(&self, _ty: &ResourceType) -> bool {
            match self.0 {}
        }

        pub fn lose_histories(&self) {
            match self.0 {}
        }
    }
}
