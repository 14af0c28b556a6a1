//! Frames that pass through the proxy: it finds all addresses, and no frame makes it panic.

use bytes::Bytes;
use curtail_cluster::fuzzing as cluster;
use curtail_wire::ApiKey;

use crate::{Input, Target, memory};

pub(super) const TARGET: Target = Target { name: "proxied", run, seeds, cases: 20_000 };

/// APIs whose responses the proxy reads.
const RESPONSES: [ApiKey; 9] = [
    ApiKey::METADATA,
    ApiKey::PRODUCE,
    ApiKey::FETCH,
    ApiKey::FIND_COORDINATOR,
    ApiKey::DESCRIBE_CLUSTER,
    ApiKey::DESCRIBE_QUORUM,
    ApiKey::SHARE_FETCH,
    ApiKey::SHARE_ACKNOWLEDGE,
    ApiKey::API_VERSIONS,
];

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let cap = 4 * memory::SLACK + 128 * input.remaining();
    memory::within("a frame of the proxy", cap, || match input.below(2) {
        0 => {
            let api = *input.pick(&RESPONSES);
            let version = input.below(20) as i16;
            cluster::proxied_response(api, version, &Bytes::copy_from_slice(input.rest()));
        }
        _ => cluster::proxied_request(&Bytes::copy_from_slice(input.rest())),
    });
}

fn seeds() -> Vec<Vec<u8>> {
    // Metadata 1 with a broker, Produce 13 with an endpoint, and a request to DeleteTopics 1.
    vec![
        b"\0\0\x01\0\0\0\x07\0\0\0\x01\0\0\0\x01\0\x01k\0\0\x23\x84\xff\xff".to_vec(),
        b"\0\x01\x0d\0\0\0\x07\0\x01\0\0\0\0\x01\0\x0d\x02\0\0\0\x01\x02k\0\0\x23\x84\0\0".to_vec(),
        b"\x01\0\x14\0\x01\0\0\0\x07\0\x01c\0\0\0\x01\0\x01t\0\0\0\x09".to_vec(),
    ]
}
