//! `sasl.jaas.config`: a line in the syntax of Java's login modules. Four modules are supported.
//!
//! `org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";`

use std::{collections::BTreeMap, iter::Peekable, str::Chars};

use curtail_proto::sasl::Secret;

const NAME: &str = "sasl.jaas.config";

/// The supported login modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Module {
    Plain,
    Scram,
    OAuthBearer,
    AwsMskIam,
}

impl Module {
    const ALL: [Self; 4] = [Self::Plain, Self::Scram, Self::OAuthBearer, Self::AwsMskIam];

    /// The Java class.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
            Self::Scram => "org.apache.kafka.common.security.scram.ScramLoginModule",
            Self::OAuthBearer => {
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
            }
            Self::AwsMskIam => "software.amazon.msk.auth.iam.IAMLoginModule",
        }
    }
}

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Jaas {
    pub(super) module: Module,
    options: BTreeMap<String, Secret>,
}

impl Jaas {
    /// Parses the line. Errors quote only the module's name and the options' names.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut words = Words { rest: text.chars().peekable() };
        let class = words.next()?.ok_or("it is empty")?;
        let Some(module) = Module::ALL.into_iter().find(|module| module.class() == class) else {
            // A password alone is parsed as a class.
            let named = match class.rsplit('.').next() {
                Some(name) if name.ends_with("LoginModule") => format!(" '{class}'"),
                _ => String::new(),
            };
            return Err(format!(
                "unknown login module{named}; expected PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule of org.apache.kafka.common.security, or software.amazon.msk.auth.iam.IAMLoginModule"
            ));
        };
        let flag = words.next()?.unwrap_or_default().to_ascii_lowercase();
        if !["required", "requisite", "sufficient", "optional"].contains(&flag.as_str()) {
            return Err("'required' must follow the login module".into());
        }
        let mut options = BTreeMap::new();
        loop {
            match words.next()?.as_deref() {
                Some(";") => break,
                None => return Err("it must end with a semicolon".into()),
                Some(name) => {
                    if words.next()?.as_deref() != Some("=") {
                        return Err(format!(
                            "'=' is missing{}; a value with spaces needs quotation marks",
                            quoted(name)
                        ));
                    }
                    let value = words.next()?.filter(|value| value != ";");
                    let value = value.ok_or_else(|| format!("no value{}", quoted(name)))?;
                    options.insert(name.to_owned(), Secret::new(value));
                }
            }
        }
        match words.next()? {
            None => Ok(Self { module, options }),
            Some(_) => {
                Err("there is text after the semicolon; only one login module is accepted".into())
            }
        }
    }

    /// The value of an option.
    pub(super) fn option(&self, name: &str) -> Option<&Secret> {
        self.options.get(name)
    }

    #[cfg(feature = "oidc")]
    /// The options whose names begin with `prefix`, by the rest of their names.
    pub(super) fn options_after(&self, prefix: &str) -> impl Iterator<Item = (&str, &Secret)> {
        self.options.iter().filter_map(move |(n, value)| Some((n.strip_prefix(prefix)?, value)))
    }

    /// The value of a mandatory option.
    pub(super) fn required(&self, name: &str) -> Result<&Secret, String> {
        let missing = || format!("the option '{name}' is missing in {NAME}");
        self.option(name).filter(|value| !value.reveal().is_empty()).ok_or_else(missing)
    }
}

/// Names an option in an error. Quotes only known names: the second word of a password without quotation marks is
/// parsed as a name.
fn quoted(option: &str) -> String {
    const NAMES: [&str; 7] =
        ["username", "password", "tokenauth", "clientId", "clientSecret", "scope", "serviceName"];
    match NAMES.contains(&option) {
        true => format!(" after the option '{option}'"),
        false => " after one of the options".to_owned(),
    }
}

/// A lexer: words, quoted texts, and the signs `=` and `;`.
struct Words<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Words<'_> {
    fn next(&mut self) -> Result<Option<String>, String> {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        match self.rest.next() {
            None => Ok(None),
            Some(sign @ ('=' | ';')) => Ok(Some(sign.to_string())),
            Some(quote @ ('"' | '\'')) => self.quoted(quote).map(Some),
            Some(first) => {
                let mut word = String::from(first);
                let ends = |c: &char| c.is_whitespace() || matches!(c, '=' | ';' | '"' | '\'');
                while let Some(c) = self.rest.next_if(|c| !ends(c)) {
                    word.push(c);
                }
                Ok(Some(word))
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some(c) if c == quote => return Ok(text),
                Some('\\') => text.push(match self.rest.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some(other) => other,
                    None => break,
                }),
                Some(c) => text.push(c),
                None => break,
            }
        }
        Err("a quotation mark is not closed".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";

    #[test]
    fn options_are_read_in_all_their_spellings() {
        let text = format!(
            "{PLAIN} required\n  username=\"al\\\"ice\" password = 'it=s; a secret' serviceName=kafka ;"
        );
        let jaas = Jaas::parse(&text).expect("well formed");
        assert_eq!(jaas.module, Module::Plain);
        let option = |name: &str| jaas.option(name).map(Secret::reveal);
        assert_eq!(option("username"), Some("al\"ice"));
        assert_eq!(option("password"), Some("it=s; a secret"));
        assert_eq!(option("serviceName"), Some("kafka"));
        assert_eq!(option("other"), None);
        assert!(!format!("{jaas:?}").contains("secret"));
    }

    #[test]
    fn invalid_config_is_refused_without_its_secrets() {
        let kerberos = "com.sun.security.auth.module.Krb5LoginModule required password=\"x9\";";
        let refused = Jaas::parse(kerberos).expect_err("refused");
        assert!(refused.contains("Krb5LoginModule") && !refused.contains("x9"), "{refused}");
        let alone = Jaas::parse("hunter-x9").expect_err("refused");
        assert!(alone.contains("unknown login module") && !alone.contains("x9"), "{alone}");
        for (rest, part) in [
            ("", "required"),
            (" maybe;", "required"),
            (" required password=\"x9\"", "semicolon"),
            (" required password \"x9\";", "'=' is missing"),
            (" required password=;", "no value"),
            (" required password=\"x9;", "not closed"),
            (" required password=\"x9\"; more", "after the semicolon"),
            (" required username=al password=a x9;", "quotation marks"),
            (" required password=a x9=;", "no value"),
            (" required password=a =x9;", "quotation marks"),
        ] {
            let refused = Jaas::parse(&format!("{PLAIN}{rest}")).expect_err("refused");
            assert!(refused.contains(part) && !refused.contains("x9"), "{rest}: {refused}");
        }
    }
}
