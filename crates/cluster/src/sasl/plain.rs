//! PLAIN (RFC 4616): authorization id, name and password, separated by NUL.

use super::{Refused, Step, Users};

pub(super) fn check(users: &Users, message: &[u8]) -> Result<Step, Refused> {
    let text = std::str::from_utf8(message).map_err(|_| Refused::Invalid)?;
    let mut parts = text.split('\0');
    let (Some(on_behalf_of), Some(name), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Refused::Invalid);
    };
    if name.is_empty() {
        return Err(Refused::Because("Authentication failed: username not specified"));
    }
    if password.is_empty() {
        return Err(Refused::Because("Authentication failed: password not specified"));
    }
    if !users.has_password(name, password) {
        return Err(Refused::Because("Authentication failed: Invalid username or password"));
    }
    if !on_behalf_of.is_empty() && on_behalf_of != name {
        return Err(Refused::Because(
            "Authentication failed: Client requested an authorization id that is different from username",
        ));
    }
    Ok(Step::Proved { last: Vec::new(), user: name.to_owned(), expires_ms: None })
}
