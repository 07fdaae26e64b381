//! A program of one version of kube; `.ci/kubes` builds it from the packages, once for each version. It follows the
//! pods of a server in kube's reflector, in kube's controller and as an informer, and sees a label change in all three.
//! Without the feature `sdk` it is the same program on kube alone, for comparison.

use std::{collections::BTreeSet, convert::Infallible, error::Error, sync::Arc, time::Duration};

use futures::{
    FutureExt, Stream, StreamExt,
    channel::mpsc,
    future,
    stream::{self, BoxStream},
};
#[cfg(feature = "sdk")]
use informer::kube5::{self as sdk, Cluster};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{Controller, WatchStreamExt, controller::Action, reflector, watcher},
};

/// Pods on the server.
const PODS: usize = 50;
/// Changed by this program; its value is an argument.
const LABEL: &str = "kubes";

/// Pods as one reader sees them: each at least once, then those that change.
type Seen = BoxStream<'static, Arc<Pod>>;
type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, server, label] = &arguments[..] else { return Err("usage: program SERVER LABEL".into()) };
    let config = Config::new(server.parse()?);
    tokio::time::timeout(Duration::from_secs(60), follow(config, label)).await?
}

async fn follow(config: Config, label: &str) -> Result<(), Failure> {
    let client = client_of(config.clone())?;
    let api = Api::<Pod>::all(client.clone());
    let mut readers = vec![("reflector", in_reflector(api.clone())), ("controller", in_controller(api))];
    #[cfg(feature = "sdk")]
    readers.push(("informer", in_informer(config).await?));

    let mut known = BTreeSet::new();
    for (reader, pods) in &mut readers {
        let mut names = BTreeSet::new();
        while names.len() < PODS {
            let pod = pods.next().await.ok_or("a reader ended")?;
            assert!(pod.spec.is_some(), "{reader}");
            names.insert((pod.namespace().unwrap_or_default(), pod.name_any()));
        }
        assert!(known.is_empty() || known == names, "{reader}");
        known = names;
    }

    let (namespace, name) = known.first().expect("fifty pods");
    let metadata = ObjectMeta { labels: Some([(LABEL.into(), label.into())].into()), ..ObjectMeta::default() };
    let change = Patch::Merge(Pod { metadata, ..Pod::default() });
    Api::<Pod>::namespaced(client, namespace).patch(name, &PatchParams::default(), &change).await?;
    for (reader, pods) in &mut readers {
        let is_changed = |pod: &Arc<Pod>| future::ready(pod.labels().get(LABEL).is_some_and(|value| value == label));
        let changed = pods.filter(is_changed).next().await.ok_or("a reader ended")?;
        assert_eq!(changed.name_any(), *name, "{reader}");
    }
    let readers: Vec<_> = readers.into_iter().map(|(reader, _)| reader).collect();
    println!("{PODS} pods and a change of one in {}", readers.join(", "));
    Ok(())
}

/// The stream under test, or kube's.
fn events(api: Api<Pod>) -> impl Stream<Item = watcher::Result<watcher::Event<Pod>>> + Send + 'static {
    let config = watcher::Config::default();
    #[cfg(feature = "sdk")]
    return sdk::watcher(api, config);
    #[cfg(not(feature = "sdk"))]
    return watcher(api, config).default_backoff();
}

fn client_of(config: Config) -> Result<Client, Failure> {
    #[cfg(feature = "sdk")]
    return Ok(sdk::client_from(config)?);
    #[cfg(not(feature = "sdk"))]
    return Ok(Client::try_from(config)?);
}

fn in_reflector(api: Api<Pod>) -> Seen {
    let (reader, writer) = reflector::store();
    let seen = reflector(writer, events(api)).flat_map(move |event| {
        stream::iter(match event.expect("an event") {
            watcher::Event::InitDone => reader.state(),
            watcher::Event::Apply(pod) => Vec::from_iter(reader.get(&reflector::ObjectRef::from_obj(&pod))),
            _ => Vec::new(),
        })
    });
    seen.boxed()
}

fn in_controller(api: Api<Pod>) -> Seen {
    let (reader, writer) = reflector::store();
    let (reconciled, seen) = mpsc::unbounded();
    let controller = Controller::for_stream(reflector(writer, events(api)).applied_objects(), reader).run(
        |pod: Arc<Pod>, reconciled: Arc<mpsc::UnboundedSender<Arc<Pod>>>| {
            reconciled.unbounded_send(pod).expect("a reader");
            future::ready(Ok::<_, Infallible>(Action::await_change()))
        },
        |_, _, _| Action::await_change(),
        Arc::new(reconciled),
    );
    tokio::spawn(controller.for_each(|result| future::ready(drop(result.expect("a reconciled pod")))).boxed());
    seen.boxed()
}

#[cfg(feature = "sdk")]
async fn in_informer(config: Config) -> Result<Seen, Failure> {
    let pods = Cluster::try_from(config)?.informer::<Pod>().start()?;
    pods.ready(Duration::from_secs(30)).await?;
    let changes = pods.subscribe();
    let seen = stream::unfold((pods, changes), |(pods, mut changes)| async {
        loop {
            match changes.next().await? {
                informer::Event::Added(pod) | informer::Event::Updated { new: pod, .. } => {
                    return Some((pod.decode().expect("a pod"), (pods, changes)));
                }
                _ => {}
            }
        }
    });
    Ok(seen.boxed())
}
