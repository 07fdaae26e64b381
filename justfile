# Daily commands; `just --list` prints them. All build the same features, so none rebuilds what another has built.

# Formatting, lints and docs.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Formatting, lints and tests of the programs that measure.
check-benches:
    cargo fmt --all --check --manifest-path benches/Cargo.toml
    cargo clippy --workspace --all-targets --locked --manifest-path benches/Cargo.toml -- -D warnings
    cargo test --workspace --locked --manifest-path benches/Cargo.toml

# All tests.
test:
    cargo test --workspace

# One test binary, such as `just test-one informer skipping` or `just test-one server tls`.
test-one binary *filter:
    cargo test --workspace --test {{binary}} -- {{filter}}

# Rules of the repository: arrows, layers, words, pages.
tidy:
    cargo test -p tidy

# The seeded random world.
world seeds="1000":
    SEEDS={{seeds}} cargo test --workspace --test sdk world

# Instructions and allocations of the hot paths.
counts *bench:
    .ci/counts {{bench}}

# The server's numbers beside their targets.
bench *flags:
    cargo run --release --manifest-path benches/Cargo.toml --bin numbers -- {{flags}}

# A release: `just release 0.1.0 --key ~/.ssh/release`, or with --dry-run instead of a key.
release version *flags:
    .ci/release {{flags}} {{version}}

# All checks before a merge.
gate:
    .ci/run

# Slow checks; parts can be named.
nightly *parts:
    .ci/nightly {{parts}}
