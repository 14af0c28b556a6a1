//! Files of client properties, with which clients connect to a cluster that has TLS or SASL.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    ClientAuth, ClusterHandle, Listener, Mechanism, Security, SecurityProtocol, User, private_file,
};

const HEAD: &str =
    "# Written by the embedded cluster at its start; read it with --command-config.\n";

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
            let servers = self.bootstrap_of(listener.name.as_str()).unwrap_or_default();
            let security = &self.config().security;
            let common = common(&servers, listener.protocol, security, ca.as_deref());
            // The files of the only secured listener do not name it.
            let suffix = if at == 0 { None } else { Some(listener) };
            for (user, login) in logins_at(listener, security) {
                let path = dir.join(file_name(user, suffix, &mut taken));
                private_file::write(&path, &(HEAD.to_owned() + &common + &login))?;
                let user = user.map(ToOwned::to_owned);
                files.push(ClientFile { listener: listener.name.to_string(), user, path });
            }
        }
        Ok(files)
    }
}

/// The names of those who log in at a listener, with their properties: `None` without SASL.
fn logins_at<'a>(listener: &Listener, security: &'a Security) -> Vec<(Option<&'a str>, String)> {
    if !listener.protocol.has_sasl() {
        return vec![(None, String::new())];
    }
    let all = logins(security).into_iter();
    all.map(|(user, mechanism)| (Some(user.name()), login(user, mechanism))).collect()
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
    security: &Security,
    ca: Option<&Path>,
) -> String {
    let mut text = property("bootstrap.servers", bootstrap);
    text += &property("security.protocol", protocol.name());
    if protocol.has_tls() {
        match ca {
            Some(path) => {
                text += &property("ssl.truststore.type", "PEM");
                text += &property("ssl.truststore.location", &path.to_string_lossy());
            }
            None => text += "# ssl.truststore.location: the authority of ssl.keystore.location\n",
        }
        if security.client_auth == ClientAuth::Required {
            text += "# ssl.keystore.location: a certificate that the brokers' truststore trusts\n";
        }
    }
    text
}

fn login(user: &User, mechanism: Mechanism) -> String {
    let module = match mechanism {
        Mechanism::Plain => "plain.PlainLoginModule",
        _ => "scram.ScramLoginModule",
    };
    let login = format!(
        "org.apache.kafka.common.security.{module} required username={} password={};",
        quoted(user.name()),
        quoted(user.password())
    );
    property("sasl.mechanism", mechanism.name()) + &property("sasl.jaas.config", &login)
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
