use super::{
    format::{Format, Shown},
    unescape,
};

struct Sample {
    value: Option<&'static [u8]>,
}

impl Shown for Sample {
    fn topic(&self) -> &str {
        "topic"
    }

    fn partition(&self) -> i32 {
        3
    }

    fn offset(&self) -> i64 {
        42
    }

    fn timestamp(&self) -> i64 {
        1_700_000_000_000
    }

    fn key(&self) -> Option<&[u8]> {
        Some(b"key")
    }

    fn value(&self) -> Option<&[u8]> {
        self.value
    }

    fn headers(&self) -> Vec<(&str, Option<&[u8]>)> {
        vec![("a", Some(b"1")), ("a", None), ("b", Some(b""))]
    }
}

fn show(format: &Format, value: Option<&'static [u8]>, null: &str) -> Vec<u8> {
    let mut out = Vec::new();
    format.write(&Sample { value }, null, &mut out).unwrap();
    out
}

#[test]
fn escapes_are_replaced_once() {
    assert_eq!(unescape(r"a\n\t\r\\n\x41\xzz\q\"), "a\n\t\r\\nA\\xzz\\q\\");
}

#[test]
fn every_field_of_a_format_is_shown() {
    let format = Format::parse(r"%t[%p]@%o %T %K:%k %S:%s %h 100%%\n").unwrap();
    let shown = show(&format, Some(b"value"), "NULL");
    assert_eq!(
        String::from_utf8(shown).unwrap(),
        "topic[3]@42 1700000000000 3:key 5:value a=1,a=NULL,b= 100%\n"
    );
    assert_eq!(show(&format, None, ""), b"topic[3]@42 1700000000000 3:key -1: a=1,a=,b= 100%\n");
    assert_eq!(show(&Format::parse("%R").unwrap(), Some(b"12345"), ""), [0, 0, 0, 5]);
}

#[test]
fn values_are_not_unescaped() {
    let format = Format::lines(Some(r"\t"), r"\n");
    assert_eq!(show(&format, Some(br"x\ny%s"), ""), b"key\tx\\ny%s\n");
}

#[test]
fn json_is_one_object_on_a_line() {
    let json = Format::parse("json").unwrap();
    let start = r#"{"topic":"topic","partition":3,"offset":42,"ts":1700000000000,"headers":["a","1","a",null,"b",""],"key":"key""#;
    for (value, payload) in [
        (Some(&b"a \"b\"\n%s"[..]), r#""a \"b\"\n%s""#),
        (Some(b"\xff"), "\"\u{fffd}\""),
        (None, "null"),
    ] {
        let shown = String::from_utf8(show(&json, value, "NULL")).unwrap();
        assert_eq!(shown, format!("{start},\"payload\":{payload}}}\n"));
    }
}

#[test]
fn formats_not_understood_are_refused() {
    assert!(Format::parse("%q").unwrap_err().contains("%q"));
    assert!(Format::parse("50%").is_err());
}
