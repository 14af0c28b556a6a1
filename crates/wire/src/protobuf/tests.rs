use super::*;

#[test]
fn fields_have_the_bytes_of_the_encoding() {
    let mut message = Message::default();
    message.uint(1, 150);
    message.sint(5, -2);
    message.fixed64(3, 1);
    message.double(2, 1.0);
    message.text(4, "ab");
    message.message(6, |inner| inner.uint(1, 0));
    message.uints(7, [1, 300].into_iter());
    message.sints(13, [0, -1, 1].into_iter());
    let expected: &[&[u8]] = &[
        &[0x08, 0x96, 0x01],
        &[0x28, 0x03],
        &[0x19, 1, 0, 0, 0, 0, 0, 0, 0],
        &[0x11, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        &[0x22, 2, b'a', b'b'],
        &[0x32, 2, 0x08, 0],
        &[0x3a, 3, 1, 0xac, 0x02],
        &[0x6a, 3, 0, 1, 2],
    ];
    assert_eq!(message.as_bytes(), expected.concat());
}

#[test]
fn delimited_messages_follow_their_lengths() {
    let mut inner = Message::default();
    inner.uint(1, 1);
    let mut stream = Message::default();
    stream.delimited(&inner);
    stream.delimited(&Message::default());
    assert_eq!(stream.into_bytes(), [2, 0x08, 1, 0]);
}
