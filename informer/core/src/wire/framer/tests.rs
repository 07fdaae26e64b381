//! Any document in any chunks: the same frames, equal to what a full decoder says, within the limits.

use super::*;

/// One frame, owned.
#[derive(Clone, Debug, PartialEq)]
enum Got {
    Event(EventKind, String),
    Item(String),
    ListEnd(ListEnd),
    Status(String),
}

/// All frames of a body cut into `chunks`, and how it ended.
fn frame<'a>(config: &FramerConfig, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Got>, Result<(), FrameError>) {
    let mut framer = Framer::new(config.clone());
    let mut got = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    for mut chunk in chunks {
        loop {
            match framer.next(&mut chunk) {
                Ok(None) => break assert!(chunk.is_empty(), "no frame, but bytes left"),
                Ok(Some(Frame::Event { kind, object })) => got.push(Got::Event(kind, text(object))),
                Ok(Some(Frame::Item(object))) => got.push(Got::Item(text(object))),
                Ok(Some(Frame::ListEnd(end))) => got.push(Got::ListEnd(end)),
                Ok(Some(Frame::Status(status))) => got.push(Got::Status(text(status))),
                Err(error) => {
                    assert_eq!(framer.next(&mut &b"{}"[..]), Err(error), "errors repeat");
                    assert_eq!(framer.finish(), Err(error), "errors repeat");
                    return (got, Err(error));
                }
            }
        }
    }
    let end = framer.finish();
    (got, end)
}

#[test]
fn smoke() {
    let mut config = FramerConfig::new(Shape::Watch);
    config.cut = vec![MANAGED_FIELDS.to_owned()];
    let body = br#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"managedFields":[{"a":1}],"name":"a"}}}"#;
    let (got, end) = frame(&config, [&body[..]]);
    assert_eq!(end, Ok(()));
    assert_eq!(got, [Got::Event(EventKind::Added, r#"{"kind":"Pod","metadata":{"name":"a"}}"#.to_owned())]);
}
