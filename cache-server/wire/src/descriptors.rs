//! Messages between two processes of this machine over a Unix socket, each with at most one open file.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recv, recvmsg, sendmsg,
    },
};

/// Bytes of one message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Sends a message, and a copy of the descriptor `file`. Blocks.
///
/// # Errors
/// The other process has ended, or did not read in time; or the message is too long.
pub fn send(mut stream: &UnixStream, message: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MESSAGE_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("the message is too long"))?.to_le_bytes();
    let files: Vec<_> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let sent = retry_on_intr(|| sendmsg(stream, &[IoSlice::new(&length)], &mut control, SendFlags::empty()))?;
    stream.write_all(&length[sent..])?;
    stream.write_all(message)
}

/// Receives a message, and its file. Blocks.
///
/// # Errors
/// The other process has ended, or did not send in time; or the message is too long.
pub fn receive(mut stream: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // The file comes with the first byte.
    let receive = || recvmsg(stream, &mut [IoSliceMut::new(&mut length)], &mut control, RECEIVE);
    let received = retry_on_intr(receive)?.bytes;
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let file = control.drain().find_map(|message| {
        let RecvAncillaryMessage::ScmRights(mut files) = message else { return None };
        files.next()
    });
    stream.read_exact(&mut length[received..])?;
    let length = u32::from_le_bytes(length) as usize;
    if MESSAGE_BYTES_MAX < length {
        return Err(io::Error::other("the message is too long"));
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    Ok((message, file))
}

/// True if the other process has closed the stream, and everything that it sent was received.
pub fn is_closed(stream: &UnixStream) -> bool {
    let peeked = retry_on_intr(|| recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT));
    !matches!(peeked, Ok((1, _)) | Err(Errno::WOULDBLOCK))
}

/// Files of other processes do not get into the programs that this one starts.
#[cfg(target_os = "linux")]
const RECEIVE: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const RECEIVE: RecvFlags = RecvFlags::empty();

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Seek as _, os::fd::AsFd as _};

    use super::*;

    #[test]
    fn messages_arrive_in_order_each_with_its_file() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"content").unwrap();
        send(&here, b"one", Some(file.as_fd())).unwrap();
        send(&here, b"", None).unwrap();
        send(&here, &[7; MESSAGE_BYTES_MAX], None).unwrap();
        send(&here, &[7; MESSAGE_BYTES_MAX + 1], None).unwrap_err();
        assert!(!is_closed(&there));
        drop(here);
        let (message, found) = receive(&there).unwrap();
        assert_eq!(message, b"one");
        let (mut found, mut text) = (File::from(found.unwrap()), String::new());
        found.rewind().unwrap();
        found.read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        let (message, found) = receive(&there).unwrap();
        assert!(message.is_empty() && found.is_none());
        assert!(!is_closed(&there), "there is more to receive");
        assert_eq!(receive(&there).unwrap().0.len(), MESSAGE_BYTES_MAX);
        assert!(is_closed(&there));
        assert_eq!(receive(&there).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
