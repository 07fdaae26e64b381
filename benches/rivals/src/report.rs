//! The tables as Markdown.

use crate::{
    client::Kind,
    components::COMPONENTS,
    frames::Cost,
    programs::{FEW_PODS, ListRead, PODS, Program},
    refusals::Counted,
    run::{ASKING, Refused, Row, Wire},
    targets::Target,
    types::TYPES,
};

/// Memory, time and CPU of each client.
pub(crate) fn copies(pods: usize, wire: Wire, rows: &[Row]) {
    println!("\n{pods} pods: {} MiB of objects, {} MiB without managedFields\n", mib(wire.sent), mib(wire.trimmed));
    println!(
        "| client | resident MiB | live MiB | live ÷ wire | peak MiB | relist: live peak ÷ steady | relist peak RSS MiB | first object ms | synced ms | sync CPU ms | CPU a change µs |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for row in rows {
        println!(
            "| {} | {} | {} | {:.2} | {} | {:.2} | {} | {:.1} | {:.0} | {:.0} | {:.0} |",
            row.kind.name(),
            mib(row.sync.resident),
            mib(row.sync.live),
            row.sync.live as f64 / wire.trimmed as f64,
            mib(row.sync.resident_peak),
            row.relist.live_peak as f64 / row.sync.live as f64,
            mib(row.relist.resident_peak),
            row.sync.first_object_ms,
            row.sync.synced_ms,
            row.sync.cpu_s * 1e3,
            row.steady_us,
        );
    }
}

/// Reconciles of each controller.
pub(crate) fn controllers(rows: &[Row]) {
    println!("\n| controller | reconciles at the start | after a relist |\n| --- | ---: | ---: |");
    for row in rows.iter().filter(|row| matches!(row.kind, Kind::KubeController | Kind::InformerController)) {
        println!("| {} | {} | {} |", row.kind.name(), row.sync.events, row.relist_reconciles());
    }
}

/// Memory, CPU and requests of programs with several components.
pub(crate) fn components(programs: &[Program]) {
    println!("\nOne program with {COMPONENTS} components that follow the same {PODS} pods\n");
    table_of_programs(programs);
}

/// Memory, CPU and requests beside client-go and beside a bare socket.
pub(crate) fn client_go(programs: &[Program]) {
    println!("\nOne program that follows {PODS} pods, beside client-go\n");
    table_of_programs(programs);
}

fn table_of_programs(programs: &[Program]) {
    println!("| program | requests | resident MiB | live MiB | peak MiB | synced ms | sync CPU ms | CPU a change µs |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for Program { kind, sync, steady_us, .. } in programs {
        println!(
            "| {} | {} | {} | {} | {} | {:.0} | {:.0} | {:.0} |",
            kind.name(),
            sync.requests,
            mib(sync.resident),
            mib(sync.live),
            mib(sync.resident_peak),
            sync.synced_ms,
            sync.cpu_s * 1e3,
            steady_us,
        );
    }
}

/// Connections, memory and CPU of programs with many types.
pub(crate) fn types(programs: &[Program]) {
    println!("\nOne program that follows {TYPES} types over TLS, {FEW_PODS} pods among them\n");
    println!(
        "| program | connections | requests | resident MiB | live MiB | synced ms | sync CPU ms | CPU a change µs | server CPU a change µs |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for Program { kind, sync, steady_us, server_us } in programs {
        println!(
            "| {} | {} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} |",
            kind.name(),
            sync.connections,
            sync.requests,
            mib(sync.resident),
            mib(sync.live),
            sync.synced_ms,
            sync.cpu_s * 1e3,
            steady_us,
            server_us,
        );
    }
}

/// Bytes and CPU of lists.
pub(crate) fn lists(lists: &[ListRead]) {
    println!("\nOne list of {PODS} pods, plain and compressed, by two clients one after the other\n");
    println!("| client | read | MiB received | synced ms | client CPU ms | server CPU ms | peak MiB |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for ListRead { kind, read, sync, server_cpu_s } in lists {
        println!(
            "| {} | {read} | {} | {:.0} | {:.0} | {:.0} | {} |",
            kind.name(),
            mib(usize::try_from(sync.body_bytes).unwrap_or(usize::MAX)),
            sync.synced_ms,
            sync.cpu_s * 1e3,
            server_cpu_s * 1e3,
            mib(sync.resident_peak),
        );
    }
}

/// CPU time per object.
pub(crate) fn frames(cost: Cost) {
    println!("\nCPU to frame, decode or trim, and store one object of {} bytes, no sockets:\n", cost.object_bytes);
    println!("| client | µs |\n| --- | ---: |");
    println!("| kube: serde to `Pod`, reflector's store | {:.1} |", cost.kube_us);
    println!("| informer: framer, trimmed, store | {:.1} |", cost.informer_us);
}

/// Requests to a failing server.
pub(crate) fn refusals(all: &[Refused]) {
    println!("\nRequests in virtual time, without network and without kube's own retry layer:\n");
    let names: Vec<_> = ASKING.iter().map(|(name, _)| *name).collect();
    println!("| the server | within | {} |", names.join(" | "));
    println!("| --- | --- |{}", " ---: |".repeat(names.len()));
    for refused in all {
        let counts: Vec<_> = refused.counted.iter().map(counted).collect();
        println!("| {} | {} min | {} |", refused.name, refused.span.as_secs() / 60, counts.join(" | "));
    }
}

/// Targets, with whether they are met.
pub(crate) fn targets(all: &[Target]) {
    println!("\n| target | limit | measured | |\n| --- | ---: | ---: | --- |");
    for target in all {
        let verdict = if target.holds() { "holds" } else { "MISSED" };
        let Target { what, measured, limit, unit } = target;
        println!("| {what} | {limit:.1} {unit} | {measured:.2} {unit} | {verdict} |");
    }
}

fn counted(counted: &Counted) -> String {
    counted.stopped_after.map_or_else(
        || counted.requests.to_string(),
        |after| format!("{} in {:.1} s, then stopped", counted.requests, after.as_secs_f64()),
    )
}

fn mib(bytes: usize) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}
