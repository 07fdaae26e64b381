//! Floors of the transport: the CPU time of the steps that no server can leave out, each alone, for the bytes of the rows
//! `sync-*` of `docs/benchmarks` (64 clients that read 7,130 pods).
//!
//! Prints one row for each step: copying, encrypting records, and writing to sockets on loopback. CPU is the time of the
//! thread that does the step, by the kernel's scheduler; for writes it includes the receiver's half of TCP.

#![allow(clippy::print_stdout, reason = "a program")]

use std::{
    fs,
    hint::black_box,
    io::{self, IoSlice, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
};

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// Bytes of the rows `sync-*`.
const BYTES: usize = 2_459_733_120;

/// Bytes of 7,130 pods, which each client reads.
const STATE_BYTES: usize = BYTES / 64;

/// Bytes of a TLS record and of a usual HTTP/2 frame.
const RECORD_BYTES: usize = 16 << 10;

/// Bytes of a batch, and the slices that it has.
const BATCH_BYTES: usize = 64 << 10;
const BATCH_SLICES: usize = 40;

/// Bytes of one read of the receiver.
const READ_BYTES: usize = 256 << 10;

fn main() -> io::Result<()> {
    println!("| step | CPU s | µs for 64 KiB |\n| --- | ---: | ---: |");
    let state: Vec<u8> = (0..STATE_BYTES).map(|at| at.to_le_bytes()[0]).collect();
    row("copy batches of 64 KiB", || {
        let mut batch = vec![0; BATCH_BYTES];
        pieces(&state, BATCH_BYTES, |piece| {
            batch.copy_from_slice(piece);
            black_box(&mut batch);
            Ok(())
        })
    })?;
    for (name, algorithm) in
        [("AES-128-GCM", &AES_128_GCM), ("AES-256-GCM", &AES_256_GCM), ("ChaCha20-Poly1305", &CHACHA20_POLY1305)]
    {
        row(&format!("encrypt records of 16 KiB in place, {name}"), || encrypt(&state, algorithm))?;
    }
    row("write 16 KiB at a time", || write(&state, each_record))?;
    row("write 64 KiB at a time", || write(&state, |socket, batch| socket.write_all(batch)))?;
    row("write 64 KiB at a time, 40 slices", || write(&state, each_slice))
}

/// Runs a step twice, the first time to warm up, and prints the CPU time of the second.
fn row(name: &str, mut step: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    step()?;
    let before = cpu_seconds()?;
    step()?;
    let seconds = cpu_seconds()? - before;
    println!("| {name} | {seconds:.2} | {:.1} |", seconds * 1e6 / (BYTES / BATCH_BYTES) as f64);
    Ok(())
}

/// CPU time of this thread.
fn cpu_seconds() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanos.map(|nanos| nanos / 1e9).ok_or_else(|| io::Error::other("schedstat has no number"))
}

/// Passes [`BYTES`] bytes of `state` on, in pieces of whole `length`.
fn pieces(state: &[u8], length: usize, mut use_piece: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    for _ in 0..BYTES / STATE_BYTES {
        state.chunks_exact(length).try_for_each(&mut use_piece)?;
    }
    Ok(())
}

/// Encrypts one buffer again and again, as if each record was copied into it.
fn encrypt(state: &[u8], algorithm: &'static Algorithm) -> io::Result<()> {
    let failed = |_| io::Error::other("not encrypted");
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &vec![7; algorithm.key_len()]).map_err(failed)?);
    let (mut record, mut number) = (state[..RECORD_BYTES].to_vec(), 0_u64);
    pieces(state, RECORD_BYTES, |_| {
        number += 1;
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut record);
        sealed.map(|tag| _ = black_box(tag)).map_err(failed)
    })
}

/// Writes batches of the state to a socket that another thread reads.
fn write(state: &[u8], mut send: impl FnMut(&mut TcpStream, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut socket = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let reading = thread::spawn(move || -> io::Result<()> {
        let mut into = vec![0; READ_BYTES];
        while receiver.read(&mut into)? > 0 {}
        Ok(())
    });
    pieces(state, BATCH_BYTES, |batch| send(&mut socket, batch))?;
    drop(socket);
    reading.join().map_err(|_| io::Error::other("the receiver panicked"))?
}

fn each_record(socket: &mut TcpStream, batch: &[u8]) -> io::Result<()> {
    batch.chunks(RECORD_BYTES).try_for_each(|record| socket.write_all(record))
}

fn each_slice(socket: &mut TcpStream, batch: &[u8]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = batch.chunks(BATCH_BYTES.div_ceil(BATCH_SLICES)).map(IoSlice::new).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        let sent = socket.write_vectored(left)?;
        IoSlice::advance_slices(&mut left, sent);
    }
    Ok(())
}
