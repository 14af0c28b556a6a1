//! Vectors of AWS's signing test suite (`aws-signing-test-suite/v4`).

use super::*;

const NOW: i64 = 1_440_938_160_000;
const SCOPE: Scope<'_> = Scope { region: "us-east-1", service: "service", now_ms: NOW };

/// Query, session token, signature in the header, signature in the query.
type Vector = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    Option<&'static str>,
    [&'static str; 2],
);

const UNRESERVED: &str = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const STS: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

const VECTORS: [Vector; 7] = [
    (
        "get-vanilla",
        "GET",
        &[],
        None,
        [
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            "e93c787ed7f371d5c6b165c1b38ede9550f4dce4144713e844b25b7192d3865d",
        ],
    ),
    (
        "get-vanilla-query-order-key-case",
        "GET",
        &[("Param2", "value2"), ("Param1", "value1")],
        None,
        [
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            "86012e2c9ad4d77369f5d81c11f75158aae4f895a085212cc6d3f923d300bed5",
        ],
    ),
    (
        "get-vanilla-query-unreserved",
        "GET",
        &[(UNRESERVED, UNRESERVED)],
        None,
        [
            "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
            "8e76a88a7433637b12778d5592799b29ad21ecd6cf6325051c21d86f0acda2bf",
        ],
    ),
    (
        "get-vanilla-utf8-query",
        "GET",
        &[("\u{1234}", "bar")],
        None,
        [
            "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
            "0bdd809b1519ac4f0c1dc3540e2cc46bd0c7f778eda408b2ebf3b913d21ff600",
        ],
    ),
    (
        "get-vanilla-query-order-encoded",
        "GET",
        &[("Param-3", "Value3"), ("Param", "Value2"), ("\u{1234}", "Value1")],
        None,
        [
            "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
            "c5f1848ceec943ac2ca68ee720460c23aaae30a2300586597ada94c4a65e4787",
        ],
    ),
    (
        "get-vanilla-with-session-token",
        "GET",
        &[],
        Some("6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"),
        [
            "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
            "7ff2b50b376cb4d151970630573d6291dc128cc5c2a12ffb237f73cc53f67b6c",
        ],
    ),
    (
        "post-sts-header-before",
        "POST",
        &[],
        Some(STS),
        [
            "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            "46c2e3c63c1dbe7d39f8ada16fe7f001c1f56c5791441565323677f96308871c",
        ],
    ),
];

fn credentials(token: Option<&str>) -> AwsCredentials {
    let credentials =
        AwsCredentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
    match token {
        Some(token) => credentials.session_token(token),
        None => credentials,
    }
}

fn header<'a>(request: &'a Request<'_>, name: &str) -> &'a str {
    request.headers.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
}

#[test]
fn signatures_match_the_vectors_of_aws() {
    for (name, method, query, token, [in_header, in_query]) in VECTORS {
        let request = || Request {
            method,
            path: "/",
            query: query.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            headers: vec![("host", "example.amazonaws.com".into())],
            body: b"",
        };
        let signed = request().sign(SCOPE, &credentials(token));
        let names = if token.is_some() {
            "host;x-amz-date;x-amz-security-token"
        } else {
            "host;x-amz-date"
        };
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={names}, Signature={in_header}"
        );
        assert_eq!(header(&signed, "authorization"), expected, "{name}");
        let presigned = request().presign(SCOPE, &credentials(token), 3600);
        let (field, signature) = presigned.query.last().unwrap();
        assert_eq!((*field, signature.as_str()), ("X-Amz-Signature", in_query), "{name}");
        let sent = presigned.canonical_query();
        assert!(sent.contains(&format!("&X-Amz-Signature={in_query}&")), "{sent}");
    }
}

#[test]
fn body_and_headers_are_signed() {
    let body = b"Param1=value1";
    let digest = hex(&Sha256::digest(body));
    let form = Request {
        method: "POST",
        path: "/",
        query: Vec::new(),
        headers: vec![
            ("content-type", "application/x-www-form-urlencoded".into()),
            ("host", "example.amazonaws.com".into()),
            ("content-length", "13".into()),
            ("x-amz-content-sha256", digest),
        ],
        body,
    };
    // post-x-www-form-urlencoded
    let signed = form.sign(SCOPE, &credentials(None));
    let signature = "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b";
    assert!(header(&signed, "authorization").ends_with(signature), "{:?}", signed.headers);
    // get-header-value-trim
    let trimmed = Request {
        method: "GET",
        path: "/",
        query: Vec::new(),
        headers: vec![
            ("host", "example.amazonaws.com".into()),
            ("my-header1", " value1".into()),
            ("my-header2", " \"a   b   c\"".into()),
        ],
        body: b"",
    };
    let signed = trimmed.sign(SCOPE, &credentials(None));
    let signature = "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736";
    assert!(header(&signed, "authorization").ends_with(signature), "{:?}", signed.headers);
}
