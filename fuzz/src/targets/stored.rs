//! Records of the coordinators' topics, and responses of token endpoints.

use bytes::Bytes;
use curtail_cluster::fuzzing as cluster;

use crate::{Input, Target, memory};

pub(super) const TARGET: Target = Target { name: "stored", run, seeds, cases: 20_000 };

const SECRET: &str = "client-secret-of-the-application";

const NOW_MS: i64 = 1_700_000_000_000;

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let cap = 2 * memory::SLACK + 64 * input.remaining();
    memory::within("a stored record", cap, || match input.below(3) {
        0 => {
            let key = input.section();
            let has_value = input.flag();
            cluster::offsets_record(key, has_value.then(|| input.rest()));
        }
        1 => {
            let key = Bytes::copy_from_slice(input.section());
            cluster::transaction_record(&key, &Bytes::copy_from_slice(input.rest()));
        }
        _ => curtail::fuzzing::token_response(input.u16() % 600, input.rest(), SECRET, NOW_MS),
    });
}

fn seeds() -> Vec<Vec<u8>> {
    let section = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let record = |kind: u8, key: &[u8], value: &[u8]| {
        let has_value: &[u8] = if kind == 0 { &[1] } else { &[] };
        [&[kind], &section(key)[..], has_value, value].concat()
    };
    let mut seeds = vec![
        record(0, b"\0\x01\0\x01g\0\x01t\0\0\0\x02", b"\0\x03\0\0\0\0\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\0\0\x05"),
        record(
            0,
            b"\0\x02\0\x01g",
            b"\0\x03\0\x08consumer\0\0\0\x01\0\x05range\0\x01m\0\0\0\0\0\0\0\x05\0\0\0\x01\0\x01m\xff\xff\0\x01c\0\x01h\
              \0\0\0\x0a\0\0\0\x0a\0\0\0\x01s\0\0\0\x01a",
        ),
        record(1, b"\0\0\0\x01x", b"\0\0\0\0\0\0\0\0\0\x07\0\x01\0\0\x27\x10\x01\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x04"),
        record(1, b"\0\0\0\x01x", b"\0\x01\0\0\0\0\0\0\0\x07\0\x01\0\0\x27\x10\x01\x02\x02t\x02\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x04\x01\x02\x02\0\x02"),
    ];
    let id = [7; 16];
    let topic = [&[2][..], &id, &[2, 0, 0, 0, 1]].concat();
    let consumer: [(u8, Vec<u8>); 6] = [
        (3, b"\0\0\0\0\0\x05\x01\0\x08\0\0\0\0\0\0\0\x09".to_vec()),
        (5, b"\0\0\0\0\x02c\x02h\x02\x02t\x01\0\0\x27\x10\0\0".to_vec()),
        (6, b"\0\0\0\0\0\x05\0".to_vec()),
        (7, [b"\0\0", &topic[..], &[0, 0]].concat()),
        (
            8,
            [&b"\0\0\0\0\0\x05\0\0\0\x04\0"[..], &topic, &[1, 0, 5, 2, 0, 0, 0, 3], &[1, 0]]
                .concat(),
        ),
        (16, b"\0\0\x02\x02t\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0".to_vec()),
    ];
    for (kind, value) in consumer {
        seeds.push(record(0, &[0, kind, 0, 1, b'g', 0, 1, b'm'], &value));
        seeds.push(record(0, &[0, kind, 0, 1, b'g'], &value));
    }
    let claims = "eyJleHAiOjE3MDAwMDM2MDAsImlhdCI6MTcwMDAwMDAwMH0";
    let token = format!(r#"{{"access_token":"e30.{claims}.s","expires_in":3600}}"#);
    let refusal = format!(r#"{{"error":"invalid_client","error_description":"{SECRET}"}}"#);
    for (status, body) in [(200u16, token), (401, refusal), (302, String::new())] {
        seeds.push([&[2], &status.to_be_bytes()[..], body.as_bytes()].concat());
    }
    seeds
}
