//! Redaction of names and values in errors: each may be a secret in the wrong place.

/// Replaces redacted text, as in Java.
pub(crate) const HIDDEN: &str = "[hidden]";

/// Shorter texts cannot be a secret.
const SHORT: usize = 5;
/// Longer texts are no value that a person would look for in an error.
const LONG: usize = 200;

/// Prefixes of the constants that the Java clients accept for `ssl.*`, `sasl.*` and `security.*`.
const CONSTANTS: [&str; 13] = [
    "TLS", "SSL", "SASL", "SCRAM", "PLAIN", "GSSAPI", "OAUTH", "DIGEST", "JKS", "JCEKS", "PKCS",
    "BCFKS", "PEM",
];

/// Returns the value as an error may quote it. For security settings only constants are quoted: a password under the
/// wrong name is still a password. Other values are quoted unless they look like a login, a URL with a user, or a
/// key.
pub(super) fn value(name: &str, value: &str) -> String {
    let families = ["ssl.", "sasl.", "security.", "curtail.socks5.password"];
    let is_security = families.iter().any(|family| name.starts_with(family));
    let may_quote = match is_security {
        true => value.len() <= SHORT || is_constant(value) || value.parse::<f64>().is_ok(),
        false => !looks_secret(value),
    };
    if may_quote { value.to_owned() } else { HIDDEN.to_owned() }
}

/// Returns the name as an error may quote it. Names and values get swapped, and a login module on several lines
/// without backslashes turns its options into names.
pub(super) fn name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_name = name.len() <= LONG && name.chars().all(plain);
    if is_name { name.to_owned() } else { HIDDEN.to_owned() }
}

fn is_constant(value: &str) -> bool {
    let of_constants = |c: char| {
        c.is_ascii_uppercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.' | 'v')
    };
    let begins = |entry: &str| CONSTANTS.iter().any(|constant| entry.starts_with(constant));
    let mut entries = value.split(',').map(str::trim);
    entries.clone().any(begins)
        && entries.all(|e| e.len() <= SHORT || begins(e) && e.chars().all(of_constants))
}

fn looks_secret(value: &str) -> bool {
    const SIGNS: [&str; 5] = ["password", "secret", "token", "loginmodule", "-----begin"];
    let lower = value.to_ascii_lowercase();
    value.len() > LONG
        || value.contains(['"', '\'', '=', ';', '@', '\n'])
        || SIGNS.iter().any(|sign| lower.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_security_settings_are_quoted_only_if_they_are_constants() {
        let quoted = [
            "GSSAPI",
            "SSLv3",
            "TLSv1.2,",
            "TLS_RSA_WITH_AES_128_CBC_SHA",
            "JKS",
            "x",
            "-0.1",
            "TLS_Y,x",
        ];
        for text in quoted {
            assert_eq!(value("sasl.mechanism", text), text);
        }
        let login = "PLAIN required password=\"hunter22\";";
        for text in ["hunter22", "HUNTER22", "TLShunter", "SCRAM-hunter", "PEM,hunter22", login] {
            assert_eq!(value("ssl.keystore.type", text), HIDDEN, "{text}");
        }
    }

    #[test]
    fn values_of_other_settings_are_quoted_unless_they_look_like_a_login() {
        for text in ["5ms", "a b:1", "http://a:1", "http://[::1]:1", "zstandard"] {
            assert_eq!(value("linger.ms", text), text);
        }
        let long = "x".repeat(LONG + 1);
        for text in
            ["user:pw@host:1", "a=b", "\"x\"", "a PlainLoginModule", "Password1", long.as_str()]
        {
            assert_eq!(value("bootstrap.servers", text), HIDDEN, "{text}");
        }
    }

    #[test]
    fn names_are_quoted_only_if_they_look_like_names() {
        assert_eq!(name("ssl.key.pasword"), "ssl.key.pasword");
        for text in ["password=\"x\";", "a b", "p@ss", &"x".repeat(LONG + 1)] {
            assert_eq!(name(text), HIDDEN, "{text}");
        }
    }
}
