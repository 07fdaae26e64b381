//! `passing`: time that this server adds to requests that it passes on.

use http::Method;

use super::{
    Failure, LoadSizes, front,
    front::{FrontServer, PairTimes, RequestPair},
    metrics,
    row::{SideRow, percentile},
};
use crate::numbers::{amount, case::Unit, server::runtime, stock::Cluster};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Requests before the measurement.
const WARM_UP: usize = 50;

pub(super) fn method(sizes: &LoadSizes) -> String {
    format!(
        "{} requests of each kind, in turns directly and through us, one at a time, on a kept connection of each side; the \
         object is a Lease",
        amount(sizes.requests as f64)
    )
}

pub(super) fn run(cluster: &Cluster, sizes: &LoadSizes) -> Result<Vec<SideRow>, Failure> {
    let stock = cluster.serve()?;
    let front = FrontServer::start(&stock, "pods")?;
    let (direct, through) = (stock.endpoint().target()?, front.endpoint().target()?);
    let mut rows = runtime()?.block_on(async {
        let name = format!("passing-{}", crate::load::writer::nanos());
        let path = format!("{LEASES}/{name}");
        front::create(&direct, LEASES, lease(&name)).await?;
        let mut pair = RequestPair::connect(&direct, &through).await?;
        let mut rows = Vec::new();
        for (what, method) in [("GET of one object", Method::GET), ("PATCH of one object", Method::PATCH)] {
            for number in 0..WARM_UP + sizes.requests {
                if number == WARM_UP {
                    pair.times = PairTimes::default();
                }
                // Each write changes the object; kube-apiserver would not store it otherwise.
                let patch = format!(r#"{{"spec":{{"leaseTransitions":{number}}}}}"#);
                let body = (method == Method::PATCH).then_some((MERGE_PATCH, patch.as_str()));
                pair.send(&method, &path, body).await?;
            }
            let times = std::mem::take(&mut pair.times);
            let at = |percent| [&times.through, &times.direct].map(|times| percentile(times, percent));
            let ([ours, theirs], [ours_99, theirs_99]) = (at(50), at(99));
            rows.push(SideRow::new(format!("{what}, median"), Unit::Millis, ours, theirs));
            rows.push(SideRow::new("… more than directly", Unit::Millis, ours - theirs, None).at_most(0.5));
            rows.push(SideRow::new("… 99th percentile of each side", Unit::Millis, ours_99, theirs_99));
        }
        Ok::<_, Failure>(rows)
    })?;
    rows.push(metrics::reviews_row(stock.endpoint())?);
    Ok(rows)
}

fn lease(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{name}","namespace":"default"}},"spec":{{"holderIdentity":"numbers","leaseDurationSeconds":40}}}}"#
    )
}
