//! Client properties with which clients connect to a cluster that has TLS or SASL, and files of them.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use crate::{
    ClientAuth, ClusterHandle, Listener, Mechanism, Security, SecurityProtocol, User, private_file,
};

const HEAD: &str =
    "# Written by the embedded cluster at its start; read it with --command-config.\n";

/// What a user's clients connect with at one listener, see [`ClusterHandle::client_logins`]. `Debug` hides the properties.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientLogin {
    /// The listener.
    pub listener: String,
    /// The SASL user; `None` without SASL.
    pub user: Option<String>,
    /// Kafka's names and the values: the bootstrap servers, the truststore, the password. Without the truststore if
    /// `ssl.keystore.location` is set, and without a certificate of the client.
    pub properties: Vec<(&'static str, String)>,
    /// Names of properties that the cluster does not know, with what they need.
    unknown: Vec<&'static str>,
}

impl fmt::Debug for ClientLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, user, .. } = self;
        f.debug_struct("ClientLogin")
            .field("listener", listener)
            .field("user", user)
            .finish_non_exhaustive()
    }
}

impl ClientLogin {
    fn text(&self) -> String {
        let known = self.properties.iter().map(|(name, value)| property(name, value));
        let unknown = self.unknown.iter().map(|line| format!("# {line}\n"));
        HEAD.to_owned() + &known.chain(unknown).collect::<String>()
    }
}

/// A file of client properties, see [`ClusterHandle::write_client_files`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientFile {
    /// The listener that it is for.
    pub listener: String,
    /// The SASL user; `None` without SASL.
    pub user: Option<String>,
    /// The absolute path.
    pub path: PathBuf,
}

/// Mechanisms by preference: SCRAM does not send the password.
const PREFERENCE: [Mechanism; 3] =
    [Mechanism::ScramSha512, Mechanism::ScramSha256, Mechanism::Plain];

impl ClusterHandle {
    /// Returns the properties with which each SASL user connects, or a client without SASL, for each listener. The users
    /// are in the order of the brokers' settings.
    ///
    /// # Errors
    /// The file with the cluster's certificate is gone.
    pub fn client_logins(&self) -> io::Result<Vec<ClientLogin>> {
        let ca = self.ca_file().map(fs::canonicalize).transpose()?;
        let listeners = self.listeners();
        Ok(listeners.iter().flat_map(|at| self.logins_at(at, ca.as_deref())).collect())
    }

    fn logins_at(&self, listener: &Listener, ca: Option<&Path>) -> Vec<ClientLogin> {
        let security = &self.config().security;
        let servers = self.bootstrap_of(listener.name.as_str()).unwrap_or_default();
        let shared = ClientLogin {
            listener: listener.name.to_string(),
            user: None,
            properties: common(&servers, listener.protocol, ca),
            unknown: unknown(listener.protocol, security, ca.is_some()),
        };
        if !listener.protocol.has_sasl() {
            return vec![shared];
        }
        let of_user = |(user, mechanism): (&User, Mechanism)| {
            let mut of_user = shared.clone();
            of_user.user = Some(user.name().to_owned());
            of_user.properties.extend(login(user, mechanism));
            of_user
        };
        logins(security).into_iter().map(of_user).collect()
    }

    /// Writes a file of client properties for each SASL user, or one without SASL, for each listener
    /// that is not PLAINTEXT. This client and Kafka's tools read it with `--command-config`. It has
    /// the bootstrap servers, the truststore if the cluster has created its certificates, and the
    /// password. Only its owner can read it. It replaces the file of an earlier run.
    ///
    /// Returns the files: none for PLAINTEXT and for a cluster without a directory.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_client_files(&self) -> io::Result<Vec<ClientFile>> {
        let mut secured = self.listeners();
        secured.retain(|listener| listener.protocol != SecurityProtocol::Plaintext);
        let Some(dir) = self.dir().filter(|_| !secured.is_empty()) else { return Ok(Vec::new()) };
        let dir = fs::canonicalize(dir)?;
        let ca = self.ca_file().map(fs::canonicalize).transpose()?;
        let mut files = Vec::new();
        let mut taken = BTreeSet::new();
        for (listener, at) in secured.iter().zip(0..) {
            // The files of the only secured listener do not name it.
            let suffix = if at == 0 { None } else { Some(listener) };
            for login in self.logins_at(listener, ca.as_deref()) {
                let path = dir.join(file_name(login.user.as_deref(), suffix, &mut taken));
                private_file::write(&path, &login.text())?;
                files.push(ClientFile { listener: login.listener, user: login.user, path });
            }
        }
        Ok(files)
    }
}

/// Each user once, with the preferred mechanism of its entries that the listeners offer.
fn logins(security: &Security) -> Vec<(&User, Mechanism)> {
    let mut names = BTreeSet::new();
    let first = security.users.iter().filter(|user| names.insert(user.name()));
    let best = |name: &str| {
        let offered = PREFERENCE.into_iter().filter(|one| security.mechanisms.contains(one));
        offered.into_iter().find_map(|mechanism| {
            // A later entry replaces an earlier one of the same mechanism.
            let mut entries = security.users.iter().rev().filter(|user| user.name() == name);
            entries.find(|user| user.has_one_of(&[mechanism])).map(|user| (user, mechanism))
        })
    };
    first.filter_map(|user| best(user.name())).collect()
}

/// `client-USER-LISTENER.properties`, with characters that are special in paths replaced.
fn file_name(
    user: Option<&str>,
    listener: Option<&Listener>,
    taken: &mut BTreeSet<String>,
) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    let part = |text: &str| {
        let plain = text.chars().map(|c| if plain(c) { c } else { '_' });
        format!("-{}", plain.collect::<String>())
    };
    let user = user.map(part).unwrap_or_default();
    let listener = listener.map(|listener| part(listener.name.as_str())).unwrap_or_default();
    let name = format!("client{user}{listener}");
    let mut file = format!("{name}.properties");
    let mut number = 2;
    while !taken.insert(file.clone()) {
        file = format!("{name}-{number}.properties");
        number += 1;
    }
    file
}

fn common(
    bootstrap: &str,
    protocol: SecurityProtocol,
    ca: Option<&Path>,
) -> Vec<(&'static str, String)> {
    let mut properties = vec![
        ("bootstrap.servers", bootstrap.to_owned()),
        ("security.protocol", protocol.name().to_owned()),
    ];
    if let Some(path) = ca.filter(|_| protocol.has_tls()) {
        properties.push(("ssl.truststore.type", "PEM".to_owned()));
        properties.push(("ssl.truststore.location", path.to_string_lossy().into_owned()));
    }
    properties
}

/// The properties that the cluster does not know, with what they need.
fn unknown(protocol: SecurityProtocol, security: &Security, has_ca: bool) -> Vec<&'static str> {
    let mut lines = Vec::new();
    if protocol.has_tls() && !has_ca {
        lines.push("ssl.truststore.location: the authority of ssl.keystore.location");
    }
    if protocol.has_tls() && security.client_auth == ClientAuth::Required {
        lines.push("ssl.keystore.location: a certificate that the brokers' truststore trusts");
    }
    lines
}

fn login(user: &User, mechanism: Mechanism) -> [(&'static str, String); 2] {
    let module = match mechanism {
        Mechanism::Plain => "plain.PlainLoginModule",
        _ => "scram.ScramLoginModule",
    };
    let login = format!(
        "org.apache.kafka.common.security.{module} required username={} password={};",
        quoted(user.name()),
        quoted(user.password())
    );
    [("sasl.mechanism", mechanism.name().to_owned()), ("sasl.jaas.config", login)]
}

/// A quoted text of a JAAS configuration.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '"' | '\\' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A line of a Java properties file, which Kafka's tools read as ISO 8859-1.
fn property(name: &str, value: &str) -> String {
    let mut line = format!("{name}=");
    for c in value.chars() {
        match c {
            '\\' => line.push_str("\\\\"),
            ' '..='~' => line.push(c),
            _ => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    line += &format!("\\u{unit:04x}");
                }
            }
        }
    }
    line.push('\n');
    line
}
