//! Sources of credentials against a local service, and the signed messages.

use std::{collections::VecDeque, fs};

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{ProducerConfig, config::AdminConfig, security::SecurityConfig};

const NOW: i64 = 1_440_938_160_000;
const EXPIRATION: &str = "4000-01-01T00:00:00Z";

/// A service that responds to each request with the next of its responses.
struct Service {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Service {
    async fn start<const N: usize>(responses: [(u16, String); N]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = requests.clone();
        tokio::spawn(async move {
            let mut responses = VecDeque::from(responses);
            while let Some((status, body)) = responses.pop_front() {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (mut text, mut chunk) = (String::new(), [0; 4096]);
                while !is_complete(&text) {
                    let read = socket.read(&mut chunk).await.unwrap();
                    text.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
                }
                seen.lock().push(text);
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
                socket.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

fn is_complete(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    body.len() == length.map_or(0, |length| length.parse().unwrap())
}

fn limits() -> Limits {
    let limit = std::time::Duration::from_secs(60);
    Limits { connect: limit, read: limit }
}

async fn find<const N: usize>(
    variables: [(&str, &str); N],
    profile: Option<&str>,
    role: Option<&Role>,
) -> Result<Found, Trouble> {
    let (env, variables) = (Env::real(), Variables::of(variables));
    Finder { env: &env, variables: &variables, limits: limits() }.find(profile, role).await
}

fn json_credentials() -> String {
    json!({
        "Code": "Success", "AccessKeyId": "ID", "SecretAccessKey": "hush", "Token": "hush2",
        "Expiration": EXPIRATION,
    })
    .to_string()
}

fn xml_credentials() -> String {
    format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>\
         <AccessKeyId>ID</AccessKeyId><SecretAccessKey>hush</SecretAccessKey><SessionToken>hush2</SessionToken>\
         <Expiration>{EXPIRATION}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
}

fn of_service() -> Found {
    let credentials = AwsCredentials::new("ID", "hush").session_token("hush2");
    Found { credentials, expires_ms: calendar::extended(EXPIRATION).unwrap() }
}

fn role() -> Role {
    Role {
        arn: "arn:aws:iam::1:role/r".into(),
        session_name: "s 1".into(),
        external_id: Some("e".into()),
        with: None,
        sts_region: Some("eu-west-1".into()),
    }
}

const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "hush-env")];
const NO_MACHINE: (&str, &str) = ("AWS_EC2_METADATA_DISABLED", "true");

#[tokio::test]
async fn environment_comes_first() {
    let found = find(KEYS, None, None).await.unwrap();
    let credentials = AwsCredentials::new("AKID", "hush-env");
    assert_eq!(found, Found { credentials: credentials.clone(), expires_ms: ALWAYS });
    assert!(!format!("{found:?}").contains("hush"));
    let [id, secret] = KEYS;
    let found = find([id, secret, ("AWS_SESSION_TOKEN", "t")], None, None).await.unwrap();
    assert_eq!(found.credentials, credentials.session_token("t"));
}

#[tokio::test]
async fn container_sends_its_token() {
    let service = Service::start([(200, json_credentials())]).await;
    let url = format!("{}/creds?x=1", service.url);
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*url),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush-token"),
    ];
    assert_eq!(find(variables, None, None).await.unwrap(), of_service());
    let requests = service.requests();
    assert!(requests[0].starts_with("GET /creds?x=1 HTTP/1.1\r\n"), "{requests:?}");
    assert!(requests[0].contains("authorization: hush-token\r\n"), "{requests:?}");
    let elsewhere = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/")];
    let trouble = find(elsewhere, None, None).await.unwrap_err();
    assert!(matches!(&trouble, Trouble::Refused(r) if r.contains("https://")), "{trouble:?}");
}

#[tokio::test]
async fn machine_is_asked_with_a_session_token() {
    let service = Service::start([
        (200, "hush-session".into()),
        (200, "the-role\n".into()),
        (200, json_credentials()),
    ])
    .await;
    let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*service.url)];
    assert_eq!(find(variables, None, None).await.unwrap(), of_service());
    let requests = service.requests();
    assert!(requests[0].starts_with("PUT /latest/api/token HTTP/1.1\r\n"), "{requests:?}");
    assert!(requests[0].contains("x-aws-ec2-metadata-token-ttl-seconds: 300\r\n"));
    let path = "GET /latest/meta-data/iam/security-credentials/";
    assert!(requests[1].starts_with(&format!("{path} HTTP")), "{requests:?}");
    assert!(requests[2].starts_with(&format!("{path}the-role HTTP")), "{requests:?}");
    assert!(requests[2].contains("x-aws-ec2-metadata-token: hush-session\r\n"), "{requests:?}");
}

#[tokio::test]
async fn web_identity_takes_the_token_of_its_file() {
    let service = Service::start([(200, xml_credentials())]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "a.b.c\n").unwrap();
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.path().to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/w"),
        ("AWS_ENDPOINT_URL_STS", &service.url),
    ];
    assert_eq!(find(variables, None, None).await.unwrap(), of_service());
    let request = &service.requests()[0];
    assert!(request.starts_with("POST / HTTP/1.1\r\n") && !request.contains("authorization:"));
    let form = "Action=AssumeRoleWithWebIdentity&WebIdentityToken=a.b.c&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fw&RoleSessionName=curtail";
    assert!(request.ends_with(&format!("\r\n\r\n{form}")), "{request}");
}

#[tokio::test]
async fn role_is_assumed_with_a_signed_request() {
    let service = Service::start([(200, xml_credentials())]).await;
    let [id, secret] = KEYS;
    let variables = [id, secret, ("AWS_ENDPOINT_URL_STS", &service.url)];
    assert_eq!(find(variables, None, Some(&role())).await.unwrap(), of_service());
    let request = &service.requests()[0];
    let authorization = request.split("authorization: ").nth(1).unwrap().lines().next().unwrap();
    let date = request.split("x-amz-date: ").nth(1).unwrap().lines().next().unwrap();
    let day = &date[..8];
    let scope = format!("AWS4-HMAC-SHA256 Credential=AKID/{day}/eu-west-1/sts/aws4_request, ");
    let signed = "SignedHeaders=content-type;host;x-amz-date, Signature=";
    assert!(authorization.starts_with(&format!("{scope}{signed}")), "{request}");
    let form = "Action=AssumeRole&ExternalId=e&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=s%201";
    assert!(request.ends_with(&format!("\r\n\r\n{form}")), "{request}");
    // Signed for the host that is asked, as the service sees it.
    let host = service.url.strip_prefix("http://").unwrap();
    let again = sigv4::Request {
        method: "POST",
        path: "/",
        query: Vec::new(),
        headers: vec![
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8".into()),
            ("host", host.into()),
        ],
        body: form.as_bytes(),
    };
    let date = format!(
        "{}-{}-{}T{}:{}:{}Z",
        &date[..4],
        &date[4..6],
        &date[6..8],
        &date[9..11],
        &date[11..13],
        &date[13..15]
    );
    let now_ms = calendar::extended(&date).unwrap();
    let scope = Scope { region: "eu-west-1", service: "sts", now_ms };
    let again = again.sign(scope, &AwsCredentials::new("AKID", "hush-env"));
    assert_eq!(again.headers.last().unwrap().1, authorization);
}

#[tokio::test]
async fn failures_name_the_source_in_one_line_without_secrets() {
    let [id, secret] = KEYS;
    let denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not\nfor you</Message></Error></ErrorResponse>";
    let slow = denied.replace("AccessDenied", "Throttling");
    for (status, body, is_final, part) in [
        (
            403,
            denied.to_owned(),
            true,
            "AWS STS for the role arn:aws:iam::1:role/r: it responds with status 403: AccessDenied, not for you",
        ),
        (400, slow, false, "status 400: Throttling"),
        (503, String::new(), false, "status 503"),
        (200, "<x>hush</x>".into(), true, "its response has no credentials"),
    ] {
        let service = Service::start([(status, body)]).await;
        let variables = [id, secret, ("AWS_ENDPOINT_URL_STS", &service.url)];
        let trouble = find(variables, None, Some(&role())).await.unwrap_err();
        let reason = trouble.reason().to_string();
        assert!(reason.contains(part), "{reason} lacks {part}");
        assert!(!reason.contains("hush") && !reason.contains('\n'), "{reason}");
        assert_eq!(matches!(trouble, Trouble::Refused(_)), is_final, "{trouble:?}");
    }
    let nothing = find([NO_MACHINE], None, None).await.unwrap_err();
    assert!(nothing.reason().contains("AWS_EC2_METADATA_DISABLED is true"), "{nothing:?}");
    assert!(nothing.reason().contains("none in AWS_ACCESS_KEY_ID"), "{nothing:?}");
    let missing = find([NO_MACHINE], Some("work"), None).await.unwrap_err();
    assert!(missing.reason().contains("no profile 'work'"), "{missing:?}");
    let named = find([NO_MACHINE, ("AWS_PROFILE", "work")], None, None).await.unwrap_err();
    assert!(named.reason().contains("AWS_PROFILE names no profile"), "{named:?}");
}

fn error_of_sts(message: &str) -> String {
    format!(
        "<ErrorResponse><Error><Code>SomeCode</Code><Message>{message}</Message></Error></ErrorResponse>"
    )
}

#[tokio::test]
async fn an_error_of_sts_that_echoes_the_request_shows_no_secret() {
    let [id, secret] = KEYS;
    let message = "signed: x-amz-security-token:hush/token= or hush%2Ftoken%3D, by hush-env";
    let service = Service::start([(403, error_of_sts(message))]).await;
    let url = ("AWS_ENDPOINT_URL_STS", &*service.url);
    let session = ("AWS_SESSION_TOKEN", "hush/token=");
    let error = find([id, secret, session, url], None, Some(&role())).await.unwrap_err();
    let expected = "SomeCode, signed: x-amz-security-token:[hidden] or [hidden], by [hidden]";
    assert!(error.reason().ends_with(expected), "{error:?}");

    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "hush.jwt").unwrap();
    let service = Service::start([(400, error_of_sts("not hush.jwt"))]).await;
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.path().to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/w"),
        ("AWS_ENDPOINT_URL_STS", &service.url),
    ];
    let error = find(variables, None, None).await.unwrap_err();
    assert!(error.reason().ends_with("SomeCode, not [hidden]"), "{error:?}");
}

#[tokio::test]
async fn bodies_of_errors_are_read_only_from_sts_and_up_to_64_kib() {
    let [id, secret] = KEYS;
    let long = error_of_sts(&"x".repeat(64 * 1024));
    let service = Service::start([(403, long)]).await;
    let variables = [id, secret, ("AWS_ENDPOINT_URL_STS", &service.url)];
    let error = find(variables, None, Some(&role())).await.unwrap_err();
    assert!(error.reason().ends_with("it responds with status 403"), "{error:?}");

    let service = Service::start([(403, error_of_sts("hush"))]).await;
    let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*service.url)];
    let error = find(variables, None, None).await.unwrap_err();
    assert!(error.reason().ends_with("it responds with status 403"), "{error:?}");

    let service = Service::start([(403, error_of_sts("hush"))]).await;
    let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*service.url)];
    let error = find(variables, None, None).await.unwrap_err();
    assert!(error.reason().ends_with("it responds with status 403"), "{error:?}");
}

#[test]
fn message_has_the_fields_of_the_presigned_request() {
    let credentials = AwsCredentials::new("AKID", "hush").session_token("t/=");
    let host = "b-1.x.kafka.us-east-1.amazonaws.com";
    let text = message(&credentials, host, "us-east-1", NOW);
    let fields: Value = serde_json::from_str(&text).unwrap();
    let presigned = presigned(&credentials, host, "us-east-1", NOW);
    let signature = &presigned.query.last().unwrap().1;
    let expected = json!({
        "version": "2020_10_22",
        "host": host,
        "user-agent": USER_AGENT,
        "action": "kafka-cluster:Connect",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": "AKID/20150830/us-east-1/kafka-cluster/aws4_request",
        "x-amz-date": "20150830T123600Z",
        "x-amz-expires": "900",
        "x-amz-security-token": "t/=",
        "x-amz-signedheaders": "host",
        "x-amz-signature": signature,
    });
    assert_eq!(fields, expected);
    assert!(!text.contains("hush"));
}

#[test]
fn token_is_the_address_of_a_presigned_request() {
    let token = token(&AwsCredentials::new("AKID", "hush"), "eu-west-1", NOW);
    let url = String::from_utf8(URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    let begin = "https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKID%2F20150830%2Feu-west-1%2Fkafka-cluster%2Faws4_request&X-Amz-Date=20150830T123600Z&X-Amz-Expires=900&X-Amz-Signature=";
    assert!(url.starts_with(begin), "{url}");
    assert!(
        url.ends_with(&format!("&X-Amz-SignedHeaders=host&User-Agent={}", uri_encoded(USER_AGENT)))
    );
}

#[test]
fn region_is_part_of_the_host() {
    for (host, region) in [
        ("b-1.x.123.c2.kafka.us-east-1.amazonaws.com", Some("us-east-1")),
        ("boot-x.c1.kafka-serverless.ap-southeast-2.amazonaws.com", Some("ap-southeast-2")),
        ("b-1.x.kafka.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
        ("vpce-1.vpce-svc-2.us-gov-west-1.vpce.amazonaws.com", Some("us-gov-west-1")),
        ("b-1.x.kafka.eusc-de-east-1.amazonaws.eu", Some("eusc-de-east-1")),
        ("my-kafka-1.example.com", None),
        ("127.0.0.1", None),
    ] {
        assert_eq!(region_of_host(host).as_deref(), region, "{host}");
    }
}

proptest! {
    #[test]
    fn arbitrary_responses_and_files_cause_no_panic(text in "[\\[\\]<>/={}:\"TZ0-9 \na-zCredntials#;-]{0,120}") {
        let _ = credentials::of_json("x", text.as_bytes());
        let _ = credentials::of_xml("x", text.as_bytes());
        let _ = credentials::xml_error(text.as_bytes(), &["a"]);
        let _ = calendar::extended(&text);
        let _ = region_of_host(&text);
        let mut profiles = Profiles::default();
        profiles.add(&text, true);
        profiles.add(&text, false);
        let _ = profiles.plan("a");
    }
}

/// Returns the credentials that a connection to `peer` sends.
async fn sent<const N: usize>(
    security: SecurityConfig,
    variables: [(&str, &str); N],
    peer: &str,
) -> Result<Credentials, Error> {
    let config = ProducerConfig::new("a:1").security(security);
    let crate::config::Login::Aws(login) = config.common.security.sasl.login().unwrap() else {
        panic!("no login of AWS")
    };
    let (cache, peer) = (&config.common.security.cache, peer.into());
    let aws = Aws::with(cache, &Env::real(), &config.common, *login, Variables::of(variables))
        .await
        .map_err(|trouble| trouble.error(&peer))?;
    aws.credentials(&peer).await
}

#[tokio::test]
async fn message_is_signed_for_the_broker_and_its_region() {
    let [id, secret] = KEYS;
    let peer = "b-1.x.kafka.us-east-1.amazonaws.com:9098";
    let Credentials::AwsMskIam { message } =
        sent(SecurityConfig::aws_msk_iam(), KEYS, peer).await.unwrap()
    else {
        panic!("another mechanism")
    };
    let fields: Value = serde_json::from_str(message.reveal()).unwrap();
    assert_eq!(fields["host"], "b-1.x.kafka.us-east-1.amazonaws.com");
    assert!(fields["x-amz-credential"].as_str().unwrap().contains("/us-east-1/kafka-cluster/"));
    let mut bearer = SecurityConfig::aws_msk_iam();
    bearer.sasl.mechanism = Some(crate::security::Mechanism::OAuthBearer);
    bearer.sasl.aws.oauth_bearer = true;
    let variables = [id, secret, ("AWS_REGION", "eu-west-1")];
    let Credentials::OAuthBearer { token, .. } =
        sent(bearer.clone(), variables, "localhost:9098").await.unwrap()
    else {
        panic!("another mechanism")
    };
    let url = URL_SAFE_NO_PAD.decode(token.reveal()).unwrap();
    assert!(url.starts_with(b"https://kafka.eu-west-1.amazonaws.com/?Action"));
    bearer.sasl.aws.region = Some("eu-north-1".into());
    sent(bearer, KEYS, "localhost:9098").await.unwrap();
    let error = sent(SecurityConfig::aws_msk_iam(), KEYS, "localhost:1").await.unwrap_err();
    assert!(
        error.to_string().contains("'localhost' has no region of AWS; set AWS_REGION"),
        "{error}"
    );
}

#[tokio::test]
async fn application_may_be_the_source_of_credentials() {
    let security = SecurityConfig::aws_msk_iam_with(|| async {
        Ok(AwsCredentials::new("OWN", "hush").session_token("t"))
    });
    assert!(!format!("{security:?}").contains("hush"));
    let peer = "b-1.x.kafka.us-east-1.amazonaws.com:9098";
    let Credentials::AwsMskIam { message } = sent(security, [], peer).await.unwrap() else {
        panic!("another mechanism")
    };
    assert!(message.reveal().contains("\"x-amz-credential\":\"OWN/"));
    let fails = SecurityConfig::aws_msk_iam_with(|| async { Err("vault\nis sealed".into()) });
    let error = sent(fails, [], peer).await.unwrap_err();
    assert!(error.to_string().contains("no AWS credentials: vault is sealed"), "{error}");
    let problem = ConnectionProblem::NoToken;
    assert!(matches!(error, Error::Connection { problem: p, .. } if p == problem), "{error:?}");
}

#[test]
fn options_of_the_login_module_select_the_source() {
    let login = |options: &str| {
        let module = "software.amazon.msk.auth.iam.IAMLoginModule";
        let mut config = AdminConfig::new("a:1");
        config.set("security.protocol", "SASL_SSL").unwrap();
        config.set("sasl.mechanism", "AWS_MSK_IAM").unwrap();
        config.set("sasl.jaas.config", &format!("{module} required {options};")).unwrap();
        let handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler";
        config.set("sasl.client.callback.handler.class", handler).unwrap();
        match config.common.security.sasl.login().map_err(|error| error.to_string())? {
            crate::config::Login::Aws(login) => match login.source {
                AwsSource::Found { profile, role } => Ok((profile, role)),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(login(""), Ok((None, None)));
    assert_eq!(
        login("awsProfileName=\"work\" awsDebugCreds=true"),
        Ok((Some("work".into()), None))
    );
    let options = "awsRoleArn=\"arn:aws:iam::1:role/r\" awsRoleSessionName=\"s 1\" awsRoleExternalId=e awsStsRegion=eu-west-1";
    assert_eq!(login(options), Ok((None, Some(role()))));
    let keys = " awsRoleAccessKeyId=K awsRoleSecretAccessKey=hush awsRoleSessionToken=hush2";
    let with = Some(AwsCredentials::new("K", "hush").session_token("hush2"));
    assert_eq!(login(&format!("{options}{keys}")), Ok((None, Some(Role { with, ..role() }))));
    for (options, part) in [
        ("awsProfileName=a awsRoleArn=b", "cannot be set together"),
        ("awsRoleArn=b awsRoleAccessKeyId=K", "awsRoleSecretAccessKey is missing"),
        ("awsRoleArn=b awsRoleSecretAccessKey=hush", "awsRoleAccessKeyId is missing"),
        ("awsRoleArn=b awsRoleSessionToken=hush", "awsRoleAccessKeyId is missing"),
        (keys, "awsRoleAccessKeyId needs awsRoleArn"),
        (
            "awsShouldUseFips=true",
            "the option 'awsShouldUseFips' in sasl.jaas.config is not supported",
        ),
    ] {
        let error: String = login(options).unwrap_err();
        assert!(error.contains(part) && !error.contains("hush"), "{error}");
    }
}

#[test]
fn function_for_credentials_excludes_a_profile_and_a_role() {
    type Change = fn(&mut crate::security::AwsConfig);
    let with = |change: Change| {
        let mut security =
            SecurityConfig::aws_msk_iam_with(|| async { Ok(AwsCredentials::new("OWN", "hush")) });
        change(&mut security.sasl.aws);
        security.sasl.login().map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(with(|aws| aws.region = Some("eu-west-1".into())), Ok(()));
    let changes: [(Change, &str); 4] = [
        (|aws| aws.profile = Some("p".into()), "awsProfileName"),
        (|aws| aws.role_arn = Some("a".into()), "awsRoleArn"),
        (|aws| aws.role_session_name = Some("s".into()), "awsRoleSessionName"),
        (|aws| aws.role_external_id = Some("e".into()), "awsRoleExternalId"),
    ];
    for (change, name) in changes {
        let error = with(change).unwrap_err();
        let expected =
            format!("{name} and SecurityConfig::aws_msk_iam_with cannot be set together");
        assert!(error.starts_with(&expected), "{error}");
    }
}
