//! Requests that act as another user: the headers, the rights they need, and the user that results.
//!
//! INVARIANT: the user is used only if every one of the rights was allowed to the caller. Without a user, no other
//! attribute can be taken over.
//!
//! Source: apiserver `endpoints/filters/impersonation/`.

use std::{borrow::Cow, collections::BTreeMap};

use informer_serving::{
    go::quote,
    query::unescape,
    status::{Status, StatusExt as _},
};

use crate::{
    request_info::{RequestInfo, ResourceAttributes},
    user::{ANONYMOUS, AUTHENTICATED, SERVICE_ACCOUNTS, UNAUTHENTICATED, User},
};

/// Prefix of all headers of impersonation, in lower case.
pub const HEADER_PREFIX: &str = "impersonate-";

const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Group of the API in which uids and extra attributes are authorized.
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// Rights of one request. Each costs a decision of the authorizer.
pub const RIGHTS_MAX: usize = 128;

/// A wish to act as another user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonation {
    /// The user to act as.
    pub user: User,
    /// The rights that the caller needs, in order: with the verb `impersonate`.
    pub rights: Vec<RequestInfo>,
}

/// The attributes that a request wants to take over.
#[derive(Default)]
struct RequestedUser {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Reads the headers of a request, with names in lower case; `None` if it acts as its own user.
///
/// # Errors
/// 400 if attributes are to be taken over without a user, or are unreadable or too many.
pub fn read<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Option<Impersonation>, Status> {
    let mut requested = RequestedUser::default();
    for (name, value) in headers.into_iter().filter(|(name, _)| name.starts_with(HEADER_PREFIX)) {
        let value = std::str::from_utf8(value);
        let value = value.map_err(|_| Status::bad_request(format!("the header {name} is no text")))?;
        match name {
            // The first value counts, as in Go.
            "impersonate-user" if requested.name.is_empty() => value.clone_into(&mut requested.name),
            "impersonate-uid" if requested.uid.is_empty() => value.clone_into(&mut requested.uid),
            "impersonate-group" => requested.groups.push(value.to_owned()),
            _ => {
                let Some(key) = name.strip_prefix(EXTRA_PREFIX) else { continue };
                // Keys may have letters that headers may not.
                let key = unescape(key, false).map_or_else(|| key.to_owned(), Cow::into_owned);
                requested.extra.entry(key).or_default().push(value.to_owned());
            }
        }
    }
    if requested.is_empty() {
        return Ok(None);
    }
    if requested.name.is_empty() {
        let requested = requested.in_go();
        return Err(Status::bad_request(format!("requested {requested} without impersonating a user name")));
    }
    let rights = requested.rights();
    if rights.len() > RIGHTS_MAX {
        return Err(Status::bad_request(format!("more than {RIGHTS_MAX} attributes are to be impersonated")));
    }
    Ok(Some(Impersonation { user: requested.into_user(), rights }))
}

/// Returns the rights that an account needs to act as `user`: one for the name, and one for each other attribute.
#[must_use]
pub fn rights_to_be(user: &User) -> Vec<RequestInfo> {
    let User { name, uid, groups, extra } = user.clone();
    RequestedUser { name, uid, groups, extra }.rights()
}

impl RequestedUser {
    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }

    fn account(&self) -> Option<(&str, &str)> {
        account(&self.name)
    }

    /// The attributes as kube-apiserver's error has them: Go's text of a `DefaultInfo`.
    fn in_go(&self) -> String {
        let list = |texts: &[String]| texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(", ");
        let groups = if self.groups.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", list(&self.groups)) };
        let extra = self.extra.iter().map(|(key, values)| format!("{}:[]string{{{}}}", quote(key), list(values)));
        let extra = extra.collect::<Vec<_>>().join(", ");
        let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{extra}}}") };
        let (name, uid) = (quote(&self.name), quote(&self.uid));
        format!(
            "&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:[]string{groups}, Extra:map[string][]string{extra}}}"
        )
    }

    fn rights(&self) -> Vec<RequestInfo> {
        let mut rights = Vec::new();
        match self.account() {
            Some((namespace, name)) => rights.push(right("", "serviceaccounts", "", namespace, name)),
            None if !self.name.is_empty() => rights.push(right("", "users", "", "", &self.name)),
            None => {}
        }
        rights.extend(self.groups.iter().map(|group| right("", "groups", "", "", group)));
        for (key, values) in &self.extra {
            rights.extend(values.iter().map(|value| right(AUTHENTICATION_GROUP, "userextras", key, "", value)));
        }
        if !self.uid.is_empty() {
            rights.push(right(AUTHENTICATION_GROUP, "uids", "", "", &self.uid));
        }
        rights
    }

    fn into_user(mut self) -> User {
        if self.groups.is_empty()
            && let Some((namespace, _)) = self.account()
        {
            self.groups = vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")];
        }
        let Self { name, uid, mut groups, extra } = self;
        let has = |name: &str| groups.iter().any(|group| group == name);
        let missing = if name == ANONYMOUS {
            (!has(UNAUTHENTICATED)).then_some(UNAUTHENTICATED)
        } else {
            (!has(AUTHENTICATED) && !has(UNAUTHENTICATED)).then_some(AUTHENTICATED)
        };
        groups.extend(missing.map(str::to_owned));
        User { name, uid, groups, extra }
    }
}

/// Returns namespace and name of a service account whose name could be one in Kubernetes.
fn account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_name = |text: &str, dots: bool| {
        let is_letter = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let bytes = text.as_bytes();
        bytes.first().is_some_and(|first| is_letter(*first))
            && bytes.last().is_some_and(|last| is_letter(*last))
            && bytes.iter().all(|letter| is_letter(*letter) || *letter == b'-' || (dots && *letter == b'.'))
    };
    (is_name(namespace, false) && is_name(name, true)).then_some((namespace, name))
}

fn right(group: &str, resource: &str, subresource: &str, namespace: &str, name: &str) -> RequestInfo {
    RequestInfo {
        verb: Cow::Borrowed("impersonate"),
        path: String::new(),
        resource: Some(ResourceAttributes {
            group: group.to_owned(),
            version: if group.is_empty() { String::new() } else { "v1".to_owned() },
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&str, &str)]) -> Result<Option<Impersonation>, String> {
        let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
        read(headers).map_err(|status| format!("{} {}", status.code, status.message))
    }

    fn described(headers: &[(&str, &str)]) -> String {
        let Impersonation { user, rights } = of(headers).unwrap().unwrap();
        let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key}={}", values.join("+"))).collect();
        let rights: Vec<String> = rights.iter().map(|right| right.forbidden(None, "").message).collect();
        let rights: Vec<&str> = rights
            .iter()
            .map(|right| right.split(" is forbidden: the caller cannot impersonate").next().unwrap())
            .collect();
        format!("{}|{}|{}|{} <- {}", user.name, user.uid, user.groups.join(","), extra.join(","), rights.join("; "))
    }

    #[test]
    fn users_result_from_headers() {
        for (headers, expected) in [
            (&[("impersonate-user", "bob")][..], r#"bob||system:authenticated| <- users "bob""#),
            (
                &[("impersonate-user", "bob"), ("impersonate-group", "dev"), ("impersonate-uid", "u")],
                r#"bob|u|dev,system:authenticated| <- users "bob"; groups "dev"; uids.authentication.k8s.io "u""#,
            ),
            (
                &[
                    ("impersonate-user", "bob"),
                    ("impersonate-user", "eve"),
                    ("impersonate-group", "system:unauthenticated"),
                ],
                r#"bob||system:unauthenticated| <- users "bob"; groups "system:unauthenticated""#,
            ),
            (
                &[("impersonate-user", "system:anonymous")],
                r#"system:anonymous||system:unauthenticated| <- users "system:anonymous""#,
            ),
            (
                &[("impersonate-user", "system:serviceaccount:a:b")],
                r#"system:serviceaccount:a:b||system:serviceaccounts,system:serviceaccounts:a,system:authenticated| <- serviceaccounts "b""#,
            ),
            (
                &[("impersonate-user", "system:serviceaccount:a/b:c")],
                r#"system:serviceaccount:a/b:c||system:authenticated| <- users "system:serviceaccount:a/b:c""#,
            ),
            (
                &[
                    ("impersonate-user", "bob"),
                    ("impersonate-extra-acme.com%2fproject", "x"),
                    ("impersonate-extra-scopes", "y"),
                ],
                r#"bob||system:authenticated|acme.com/project=x,scopes=y <- users "bob"; userextras.authentication.k8s.io "x"; userextras.authentication.k8s.io "y""#,
            ),
        ] {
            assert_eq!(described(headers), expected);
        }
        assert_eq!(of(&[("accept", "x"), ("authorization", "Bearer x")]), Ok(None));
        assert_eq!(of(&[("impersonate-user", "")]), Ok(None));
    }

    #[test]
    fn names_of_service_accounts_are_those_of_kubernetes() {
        for (name, expected) in [
            ("a:b", Some(("a", "b"))),
            ("a-1:b.c-d", Some(("a-1", "b.c-d"))),
            ("a.b:c", None),
            ("a:b/c", None),
            ("a:B", None),
            ("a:-b", None),
            ("a:b-", None),
            ("a:b:c", None),
            (":b", None),
            ("a:", None),
        ] {
            assert_eq!(account(&format!("system:serviceaccount:{name}")), expected, "{name}");
        }
        assert_eq!(account("a:b"), None);
    }

    #[test]
    fn attributes_without_a_user_are_refused() {
        for (header, value, error) in [
            ("impersonate-group", "dev", r#"UID:"", Groups:[]string{"dev"}, Extra:map[string][]string(nil)"#),
            ("impersonate-uid", "u", r#"UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)"#),
            (
                "impersonate-extra-a",
                "b",
                r#"UID:"", Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"b"}}"#,
            ),
        ] {
            let user = format!(r#"&user.DefaultInfo{{Name:"", {error}}}"#);
            let expected = format!("400 requested {user} without impersonating a user name");
            assert_eq!(of(&[(header, value)]), Err(expected));
        }
        let many = vec![("impersonate-group", "dev"); RIGHTS_MAX];
        let error = of(&[&[("impersonate-user", "bob")][..], &many].concat()).unwrap_err();
        assert_eq!(error, "400 more than 128 attributes are to be impersonated");
        assert!(of(&[&[("impersonate-user", "bob")][..], &many[1..]].concat()).is_ok());
    }

    /// The attributes that kube-apiserver's authorizers get.
    #[test]
    fn rights_are_those_that_kube_apiserver_checks() {
        let headers =
            [("impersonate-user", "system:serviceaccount:a:b"), ("impersonate-group", "dev"), ("impersonate-uid", "u")];
        let rights = of(&headers).unwrap().unwrap().rights;
        let attributes = rights.iter().filter_map(|right| right.resource.as_ref());
        let attributes: Vec<_> =
            attributes.map(|of| (&*of.group, &*of.version, &*of.resource, &*of.namespace, &*of.name)).collect();
        let authentication = "authentication.k8s.io";
        assert_eq!(
            attributes,
            [
                ("", "", "serviceaccounts", "a", "b"),
                ("", "", "groups", "", "dev"),
                (authentication, "v1", "uids", "", "u")
            ]
        );
    }

    #[test]
    fn the_right_that_is_missing_is_named_as_by_kube_apiserver() {
        let impersonation = of(&[("impersonate-user", "bob"), ("impersonate-extra-a", "b")]).unwrap().unwrap();
        let messages: Vec<String> =
            impersonation.rights.iter().map(|right| right.forbidden(Some("eve"), "").message).collect();
        assert_eq!(
            messages,
            [
                r#"users "bob" is forbidden: User "eve" cannot impersonate resource "users" in API group "" at the cluster scope"#,
                r#"userextras.authentication.k8s.io "b" is forbidden: User "eve" cannot impersonate resource "userextras/a" in API group "authentication.k8s.io" at the cluster scope"#,
            ]
        );
    }
}
