//! The tables as Markdown, ready to be pasted.

use measured::memory::mib;

use crate::{
    plan::Options,
    run::{ClientRow, ServerRow},
};

/// Prints both tables.
pub(crate) fn print(options: &Options, servers: &[ServerRow], clients: &[ClientRow]) {
    println!("{} pods on {} nodes, every client reads all of them at once\n", options.pods, options.nodes);
    println!(
        "| server | clients | idle MiB | growth MiB | growth per client KiB | after MiB | client peak MiB \
         | first object ms | one synced ms | all synced ms |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for row in servers {
        println!(
            "| {} | {} | {:.1} | {:.1} | {:.0} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} |",
            row.mode,
            row.clients,
            mib(row.idle),
            mib(row.growth),
            row.growth as f64 / 1024.0 / row.clients as f64,
            mib(row.after),
            mib(row.client.peak),
            row.client.first_object_ms,
            row.client.synced_ms,
            row.all_synced_ms,
        );
    }
    println!("\n| client | peak MiB | resident MiB | objects MiB | first object ms | synced ms |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for row in clients {
        let outcome = &row.outcome;
        let stored = outcome.stored_bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", mib(bytes)));
        println!(
            "| {} | {:.1} | {:.1} | {stored} | {:.1} | {:.0} |",
            row.kind,
            mib(outcome.peak),
            mib(outcome.resident),
            outcome.first_object_ms,
            outcome.synced_ms,
        );
    }
}
