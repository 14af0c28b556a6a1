//! Credentials of AWS from the environment, files and services, in the order of the AWS SDKs.

use std::{fs, path::Path, time::Duration};

use curtail_net::Env;
use hyper::{Method, Request, Uri, header};
use roxmltree::Document;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{
    ALWAYS, Found, Variables, calendar,
    profile::{Base, Plan, Profiles},
    sigv4, uri_encoded,
};
use crate::{
    config::{HIDDEN, Role, SESSION_NAME},
    error::one_line,
    security::{
        AwsCredentials, Secret, SslConfig,
        http::{self, Limits, Target},
        oidc::Trouble,
        tls::Peer,
    },
};

/// Time after which keys in a file are read again.
const FILE_LIFETIME: Duration = Duration::from_secs(900);
/// Limit for a response of AWS STS, in bytes: credentials have a few thousand.
const MAX_XML: usize = 64 * 1024;
/// Limit for a connection to a service of this machine: on another machine nothing may respond.
const NEARBY: Duration = Duration::from_secs(1);

const CONTAINER: &str = "http://169.254.170.2";
const MACHINE: &str = "http://169.254.169.254";
/// Hosts to which a container's token may be sent without TLS, as in the AWS SDKs: loopback, ECS, EKS.
const CONTAINER_HOSTS: [&str; 5] =
    ["localhost", "127.0.0.1", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

const EC2: &str = "the metadata service of EC2";

type Outcome<T = Found> = Result<T, Trouble>;

/// Finds credentials for one client.
pub(super) struct Finder<'a> {
    pub(super) env: &'a Env,
    pub(super) variables: &'a Variables,
    pub(super) limits: Limits,
}

fn refused(reason: impl Into<String>) -> Trouble {
    Trouble::Refused(reason.into().into())
}

impl Finder<'_> {
    /// Returns credentials of a profile or of the default sources, and assumes the role with them.
    pub(super) async fn find(&self, profile: Option<&str>, role: Option<&Role>) -> Outcome {
        let found = match (role.and_then(|role| role.with.clone()), profile) {
            (Some(credentials), _) => Found { credentials, expires_ms: ALWAYS },
            (None, Some(profile)) => self.of_profile(profile).await?.ok_or_else(|| {
                refused(format!("there is no profile '{profile}' with credentials in AWS's files"))
            })?,
            (None, None) => self.default().await?,
        };
        match role {
            Some(role) => self.assume(role, &found.credentials).await,
            None => Ok(found),
        }
    }

    async fn default(&self) -> Outcome {
        if let Some(found) = self.environment() {
            return Ok(found);
        }
        if let Some((role, file)) = self.web_identity_variables() {
            return self.web_identity(&role, Path::new(&file)).await;
        }
        let named = self.variables.get("AWS_PROFILE");
        match self.of_profile(named.as_deref().unwrap_or("default")).await? {
            Some(found) => return Ok(found),
            None if named.is_some() => {
                return Err(refused("AWS_PROFILE names no profile with credentials"));
            }
            None => {}
        }
        match self.container().await? {
            Some(found) => Ok(found),
            None => self.machine().await.map_err(|trouble| {
                trouble.map(|reason| {
                    format!(
                        "none in AWS_ACCESS_KEY_ID, in AWS_WEB_IDENTITY_TOKEN_FILE, in the profile 'default' or of a container, and the machine has none: {reason}"
                    )
                })
            }),
        }
    }

    fn environment(&self) -> Option<Found> {
        let credentials = AwsCredentials {
            access_key_id: self.variables.get("AWS_ACCESS_KEY_ID")?,
            secret_access_key: self.variables.get("AWS_SECRET_ACCESS_KEY")?.into(),
            session_token: self.variables.get("AWS_SESSION_TOKEN").map(Secret::new),
        };
        Some(Found { credentials, expires_ms: ALWAYS })
    }

    fn web_identity_variables(&self) -> Option<(Role, String)> {
        let file = self.variables.get("AWS_WEB_IDENTITY_TOKEN_FILE")?;
        let session_name = self.variables.get("AWS_ROLE_SESSION_NAME");
        let role = Role {
            arn: self.variables.get("AWS_ROLE_ARN")?,
            session_name: session_name.unwrap_or_else(|| SESSION_NAME.into()),
            external_id: None,
            with: None,
            sts_region: self.variables.region(),
        };
        Some((role, file))
    }

    async fn of_profile(&self, name: &str) -> Outcome<Option<Found>> {
        let (variables, name) = (self.variables.clone(), name.to_owned());
        let plan = http::blocking(move || Profiles::read(&variables)?.plan(&name)).await?;
        let Some(Plan { base, roles }) = plan else { return Ok(None) };
        let mut found = match base {
            Base::Keys(credentials) => {
                let lifetime = i64::try_from(FILE_LIFETIME.as_millis()).unwrap_or(ALWAYS);
                let expires_ms = self.env.wall.now_ms().saturating_add(lifetime);
                Found { credentials, expires_ms }
            }
            Base::WebIdentity { role, token_file } => self.web_identity(&role, &token_file).await?,
            Base::Environment => {
                self.environment().ok_or_else(|| refused("AWS_ACCESS_KEY_ID is not set"))?
            }
            Base::Container => {
                self.container().await?.ok_or_else(|| refused("this is no container of AWS"))?
            }
            Base::Machine => self.machine().await?,
        };
        for role in roles {
            found = self.assume(&role, &found.credentials).await?;
        }
        Ok(Some(found))
    }

    /// Credentials of a container, from ECS or EKS; `None` outside of one.
    async fn container(&self) -> Outcome<Option<Found>> {
        let relative = self.variables.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = self.variables.get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let Some(url) = relative.map(|path| format!("{CONTAINER}{path}")).or(full) else {
            return Ok(None);
        };
        let uri = parsed("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url)?;
        let host = bare_host(&uri);
        if uri.scheme_str() != Some("https") && !CONTAINER_HOSTS.contains(&host.as_str()) {
            return Err(refused(
                "AWS_CONTAINER_CREDENTIALS_FULL_URI: it must begin with https://, or name this machine",
            ));
        }
        let token = match self.variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            Some(file) => {
                Some(read("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", Path::new(&file)).await?)
            }
            None => self.variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(Secret::new),
        };
        let mut request = get(&uri);
        if let Some(token) = &token {
            request = request.header(header::AUTHORIZATION, token.reveal());
        }
        let from = "the container's credentials";
        let body = self.send(from, &uri, request, String::new()).await?;
        of_json(from, &body).map(Some)
    }

    /// Credentials of the machine's role, from EC2 (IMDSv2).
    async fn machine(&self) -> Outcome {
        let disabled = self.variables.get("AWS_EC2_METADATA_DISABLED");
        if disabled.is_some_and(|disabled| disabled.eq_ignore_ascii_case("true")) {
            return Err(refused("AWS_EC2_METADATA_DISABLED is true"));
        }
        let name = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
        let endpoint = self.variables.get(name).unwrap_or_else(|| MACHINE.into());
        let at = |path: &str| parsed(name, &format!("{}{path}", endpoint.trim_end_matches('/')));
        let uri = at("/latest/api/token")?;
        let request = Request::builder()
            .method(Method::PUT)
            .uri(target(&uri))
            .header("x-aws-ec2-metadata-token-ttl-seconds", "300");
        let token = line(&self.send(EC2, &uri, request, String::new()).await?);
        let roles = "/latest/meta-data/iam/security-credentials/";
        let role = line(&self.of_machine(&at(roles)?, &token).await?);
        let credentials = at(&format!("{roles}{}", role.reveal()))?;
        of_json(EC2, &self.of_machine(&credentials, &token).await?)
    }

    async fn of_machine(&self, uri: &Uri, token: &Secret) -> Outcome<Zeroizing<Vec<u8>>> {
        let request = get(uri).header("x-aws-ec2-metadata-token", token.reveal());
        self.send(EC2, uri, request, String::new()).await
    }

    async fn web_identity(&self, role: &Role, file: &Path) -> Outcome {
        let token = read("the file of the web identity's token", file).await?;
        let form = [("Action", "AssumeRoleWithWebIdentity"), ("WebIdentityToken", token.reveal())];
        self.ask_sts(role, &form, None).await
    }

    async fn assume(&self, role: &Role, with: &AwsCredentials) -> Outcome {
        let external_id = role.external_id.as_deref().map(|id| ("ExternalId", id));
        let form: Vec<_> = [("Action", "AssumeRole")].into_iter().chain(external_id).collect();
        self.ask_sts(role, &form, Some(with)).await
    }

    /// Sends a request for a role to AWS STS, signed if it has credentials.
    async fn ask_sts(
        &self,
        role: &Role,
        form: &[(&str, &str)],
        with: Option<&AwsCredentials>,
    ) -> Outcome {
        let (uri, region) = self.sts(role)?;
        let always = [
            ("Version", "2011-06-15"),
            ("RoleArn", role.arn.as_str()),
            ("RoleSessionName", role.session_name.as_str()),
        ];
        let pair = |(name, value): &(&str, &str)| format!("{name}={}", uri_encoded(value));
        let pairs: Vec<String> = form.iter().chain(&always).map(pair).collect();
        let body = pairs.join("&");
        let kind = "application/x-www-form-urlencoded; charset=utf-8".to_owned();
        let mut headers = vec![("content-type", kind)];
        if let Some(credentials) = with {
            let host = uri.authority().map_or("", |authority| authority.as_str());
            headers.push(("host", host.to_owned()));
            let now_ms = self.env.wall.now_ms();
            let scope = sigv4::Scope { region: &region, service: "sts", now_ms };
            let request = sigv4::Request {
                method: "POST",
                path: "/",
                query: Vec::new(),
                headers,
                body: body.as_bytes(),
            };
            headers = request.sign(scope, credentials).headers;
        }
        let request = Request::post(target(&uri));
        let request = headers
            .iter()
            .filter(|(name, _)| *name != "host")
            .fold(request, |request, (name, value)| request.header(*name, value));
        let from = format!("AWS STS for the role {}", one_line(&role.arn));
        let (status, answer) = self.exchange(&from, &uri, request, body).await?;
        if status == 200 {
            return of_xml(&from, &answer);
        }
        let keys = with.into_iter().flat_map(|credentials| {
            [Some(&credentials.secret_access_key), credentials.session_token.as_ref()]
        });
        let token = form.iter().find(|(name, _)| *name == "WebIdentityToken");
        let token = token.map(|(_, token)| *token);
        let secrets: Vec<&str> = keys.flatten().map(Secret::reveal).chain(token).collect();
        Err(failed(&from, status, &xml_error(&answer, &secrets).unwrap_or_default()))
    }

    /// Address and region of AWS STS.
    fn sts(&self, role: &Role) -> Outcome<(Uri, String)> {
        let name = "AWS_ENDPOINT_URL_STS";
        // Java's name of the global endpoint.
        let region = role.sts_region.as_deref().filter(|region| *region != "aws-global");
        let url = self.variables.get(name).unwrap_or_else(|| match region {
            None => "https://sts.amazonaws.com/".into(),
            Some(region) if region.starts_with("cn-") => {
                format!("https://sts.{region}.amazonaws.com.cn/")
            }
            Some(region) => format!("https://sts.{region}.amazonaws.com/"),
        });
        Ok((parsed(name, &url)?, region.unwrap_or("us-east-1").to_owned()))
    }

    /// Sends a request and returns the body of a response with status 200. An error does not quote other bodies.
    async fn send(
        &self,
        from: &str,
        uri: &Uri,
        request: hyper::http::request::Builder,
        body: String,
    ) -> Outcome<Zeroizing<Vec<u8>>> {
        match self.exchange(from, uri, request, body).await? {
            (200, body) => Ok(body),
            (status, _) => Err(failed(from, status, "")),
        }
    }

    /// Sends a request and returns the status and the body of its response.
    async fn exchange(
        &self,
        from: &str,
        uri: &Uri,
        request: hyper::http::request::Builder,
        body: String,
    ) -> Outcome<(u16, Zeroizing<Vec<u8>>)> {
        let ssl = SslConfig::default();
        let host = bare_host(uri);
        let is_tls = uri.scheme_str() == Some("https");
        let nearby = !is_tls;
        let limits = Limits {
            connect: if nearby { self.limits.connect.min(NEARBY) } else { self.limits.connect },
            ..self.limits
        };
        let target = Target {
            host: &host,
            port: uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            tls: is_tls.then_some((&ssl, Peer::Aws)),
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let request = request
            .header(header::HOST, authority)
            .header(header::CONNECTION, "close")
            .body(body)
            .map_err(|error| refused(format!("{from}: no valid request: {error}")))?;
        let sent = http::exchange(self.env, &target, request, limits).await;
        sent.map_err(|trouble| trouble.map(|reason| format!("{from}: {reason}")))
    }
}

/// The failure for a status other than 200, with the error that the service reports.
fn failed(from: &str, status: u16, said: &str) -> Trouble {
    let reason = format!("{from}: it responds with status {status}{said}");
    // STS reports its limits of requests with status 400.
    match (400..500).contains(&status) && status != 429 && !said.contains("Throttl") {
        true => refused(reason),
        false => Trouble::Unreachable(reason.into()),
    }
}

fn get(uri: &Uri) -> hyper::http::request::Builder {
    Request::get(target(uri)).header(header::ACCEPT, "application/json")
}

fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
}

fn parsed(name: &str, url: &str) -> Outcome<Uri> {
    let uri: Option<Uri> = url.parse().ok();
    let known = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
    uri.filter(known).ok_or_else(|| refused(format!("{name}: it is no http or https address")))
}

/// The host without the brackets of an IPv6 address.
fn bare_host(uri: &Uri) -> String {
    uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned()
}

async fn read(name: &str, file: &Path) -> Outcome<Secret> {
    let (name, file) = (name.to_owned(), file.to_owned());
    http::blocking(move || {
        let text = fs::read_to_string(&file).map(Zeroizing::new);
        let text = text.map_err(|error| format!("{name} ({}): {error}", file.display()))?;
        Ok(Secret::new(text.trim()))
    })
    .await
}

/// The first line of a body.
fn line(body: &[u8]) -> Secret {
    let text = String::from_utf8_lossy(body);
    Secret::new(text.lines().next().unwrap_or_default().trim())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Json {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

/// Reads credentials of a container or a machine. Errors quote nothing.
pub(super) fn of_json(from: &str, body: &[u8]) -> Outcome {
    let unreadable = || refused(format!("{from}: its response has no credentials"));
    let json: Json = serde_json::from_slice(body).map_err(|_| unreadable())?;
    let expires_ms = match &json.expiration {
        Some(text) => calendar::extended(text).ok_or_else(unreadable)?,
        None => ALWAYS,
    };
    let credentials = AwsCredentials {
        access_key_id: json.access_key_id,
        secret_access_key: json.secret_access_key.into(),
        session_token: json.token.map(Secret::new),
    };
    Ok(Found { credentials, expires_ms })
}

/// Text of a response of AWS STS, unless it is too large to be one.
fn xml(body: &[u8]) -> Option<&str> {
    std::str::from_utf8(body).ok().filter(|text| text.len() <= MAX_XML)
}

/// Reads credentials of AWS STS. Errors quote nothing.
pub(super) fn of_xml(from: &str, body: &[u8]) -> Outcome {
    let read = || -> Option<Found> {
        let document = Document::parse(xml(body)?).ok()?;
        let credentials =
            document.descendants().find(|node| node.tag_name().name() == "Credentials")?;
        let field = |name: &str| {
            let node = credentials.children().find(|node| node.tag_name().name() == name)?;
            node.text().map(str::trim).filter(|text| !text.is_empty())
        };
        let credentials = AwsCredentials {
            access_key_id: field("AccessKeyId")?.to_owned(),
            secret_access_key: field("SecretAccessKey")?.into(),
            session_token: Some(field("SessionToken")?.into()),
        };
        Some(Found { credentials, expires_ms: calendar::extended(field("Expiration")?)? })
    };
    read().ok_or_else(|| refused(format!("{from}: its response has no credentials")))
}

/// `: code, message` of an error of AWS STS, without the `secrets` of the request.
pub(super) fn xml_error(body: &[u8], secrets: &[&str]) -> Option<String> {
    let document = Document::parse(xml(body)?).ok()?;
    let text = |name: &str| {
        let node = document.descendants().find(|node| node.tag_name().name() == name)?;
        node.text().map(str::trim)
    };
    let mut said = format!("{}, {}", text("Code")?, text("Message")?);
    // The message for a wrong signature has the signed request, with its session token.
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        for form in [(*secret).to_owned(), uri_encoded(secret)] {
            said = said.replace(&form, HIDDEN);
        }
    }
    Some(format!(": {}", one_line(&said)))
}
