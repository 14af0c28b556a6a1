//! The one list of a client's settings.
//!
//! A row of [`settings!`] is a setting: its documentation, field, type, default, property name and form. The row makes
//! the field, its default, the builder method, the property, and the line in `docs/settings.md`.

use super::redact;
use crate::error::ConfigError;

/// One property: name, meaning, accepted values, setter and getter.
pub(super) struct Property<C: 'static> {
    pub(super) name: &'static str,
    /// Its documentation, as Markdown with links of rustdoc. Empty for TLS and SASL.
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/settings.md, which a test writes"))]
    pub(super) about: &'static str,
    pub(super) expected: &'static str,
    pub(super) set: fn(&mut C, &str) -> Option<()>,
    pub(super) get: fn(&C) -> String,
}

impl<C: Clone> Property<C> {
    pub(super) fn set(&self, config: &mut C, value: &str) -> Result<(), ConfigError> {
        if (self.set)(config, value).is_some() {
            return Ok(());
        }
        // For a list, names the unusable entries.
        let bad = |entry: &&str| (self.set)(&mut config.clone(), entry).is_none();
        let entries = value.split(',').map(str::trim);
        let bad: Vec<_> = entries.filter(|_| value.contains(',')).filter(bad).collect();
        let (expected, value) = (self.expected, redact::value(self.name, value));
        let reason = match bad.as_slice() {
            [_, ..] if value != redact::HIDDEN => {
                format!("'{}' cannot be used; expected {expected}", bad.join("', '"))
            }
            _ => format!("expected {}", bound(expected, &value)),
        };
        Err(ConfigError::Invalid { name: self.name, value, reason })
    }

    /// Refuses a number that [`Self::set`] would refuse. Only numbers have ranges.
    pub(super) fn check(&self, config: &C) -> Result<(), ConfigError> {
        let value = (self.get)(config);
        let is_number = value.parse::<f64>().is_ok();
        if is_number { self.set(&mut config.clone(), &value) } else { Ok(()) }
    }
}

/// A client's settings and their tables.
pub(super) trait Settings: Clone + 'static {
    /// The client's name in messages.
    const KIND: Kind;
    /// Properties of this client only.
    const TABLES: &'static [&'static [Property<Self>]];
    /// Common properties that this client lacks.
    const WITHOUT: &'static [&'static str];
    fn common(&self) -> &super::CommonConfig;
    fn common_mut(&mut self) -> &mut super::CommonConfig;
    /// Updates settings that follow from others.
    fn settle(&mut self) {}

    /// Properties of this client only.
    fn table() -> impl Iterator<Item = &'static Property<Self>> {
        Self::TABLES.iter().copied().flatten()
    }

    /// Remembers that a setting was made explicitly, and updates those that follow from it.
    fn give(&mut self, name: &'static str) {
        self.common_mut().given.insert(name);
        self.settle();
    }
}

/// A kind of client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Producer,
    Consumer,
    Admin,
}

impl Kind {
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Producer => "producers",
            Self::Consumer => "consumers",
            Self::Admin => "Admin",
        }
    }
}

/// A property that is a field with a form.
macro_rules! property {
    ($name:expr, $about:expr, $($field:ident).+, $form:expr) => {
        Property {
            name: $name,
            about: $about,
            expected: $form.expected,
            set: |config, text| {
                config.$($field).+ = ($form.read)(text)?;
                Some(())
            },
            get: |config| ($form.show)(&config.$($field).+),
        }
    };
}
pub(super) use property;

/// Makes a configuration from rows `/// documentation`, `BUILDER field: Type = default => "property.name", FORM;`.
///
/// `BUILDER` is the kind of the builder method: `plain` takes the type, `text` and `name` take texts, and `none` is for
/// a setting whose method is written by hand. `without property` lists the other fields. `builders` are the
/// configurations that have the methods, with the field in which they have these settings.
macro_rules! settings {
    (
        $(#[$about:meta])*
        $type:ident, $table:ident: $rows:tt
        without property $others:tt
        builders $($owner:ident $path:tt),+
    ) => {
        settings!(@struct [$(#[$about])*] $type $rows $others);
        settings!(@table $type $table $rows);
        $(settings!(@builders $owner $path $rows);)+
    };
    (@struct [$(#[$about:meta])*] $type:ident
        { $($(#[doc = $doc:literal])+ $builder:ident $field:ident: $of:ty = $default:expr => $name:literal, $form:expr;)* }
        { $($(#[doc = $more:literal])+ $other:ident: $other_of:ty = $other_default:expr;)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub struct $type {
            $($(#[doc = $more])+ pub $other: $other_of,)*
            $($(#[doc = $doc])+ pub $field: $of,)*
        }

        impl Default for $type {
            fn default() -> Self {
                Self {
                    $($other: $other_default,)*
                    $($field: $default,)*
                }
            }
        }
    };
    (@table $type:ident $table:ident
        { $($(#[doc = $doc:literal])+ $builder:ident $field:ident: $of:ty = $default:expr => $name:literal, $form:expr;)* }
    ) => {
        pub(super) static $table: &[Property<$type>] =
            &[$(property!($name, concat!($($doc),+), $field, $form),)*];
    };
    (@builders $owner:ident $path:tt
        { $($(#[doc = $doc:literal])+ $builder:ident $field:ident: $of:ty = $default:expr => $name:literal, $form:expr;)* }
    ) => {
        impl $owner {
            $(settings!(@builder $builder $path [$($doc)+] $name, $field: $of);)*
        }
    };
    (@builder none $path:tt $docs:tt $name:literal, $field:ident: $of:ty) => {};
    (@builder plain [$($path:ident)?] [$($doc:literal)+] $name:literal, $field:ident: $of:ty) => {
        $(#[doc = $doc])+
        #[must_use]
        pub fn $field(mut self, $field: $of) -> Self {
            self.$($path.)?$field = $field;
            $crate::config::table::Settings::give(&mut self, $name);
            self
        }
    };
    (@builder text [$($path:ident)?] [$($doc:literal)+] $name:literal, $field:ident: $of:ty) => {
        $(#[doc = $doc])+
        #[must_use]
        pub fn $field(mut self, $field: impl Into<String>) -> Self {
            self.$($path.)?$field = $field.into();
            $crate::config::table::Settings::give(&mut self, $name);
            self
        }
    };
    (@builder name [$($path:ident)?] [$($doc:literal)+] $name:literal, $field:ident: $of:ty) => {
        $(#[doc = $doc])+
        #[must_use]
        pub fn $field(mut self, $field: impl Into<String>) -> Self {
            self.$($path.)?$field = Some($field.into());
            $crate::config::table::Settings::give(&mut self, $name);
            self
        }
    };
}
pub(super) use settings;

/// Reduces a range up to the greatest `int` or `long` to the bound that the value violates.
fn bound(expected: &str, value: &str) -> String {
    let range = GREATEST.iter().find_map(|greatest| {
        let (unit, low) =
            expected.strip_suffix(greatest)?.strip_suffix(" to ")?.rsplit_once(' ')?;
        Some((unit, low, greatest))
    });
    let Some((unit, low, greatest)) = range else { return expected.to_owned() };
    let is_digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let is_above = is_digits && value.trim_start_matches('0').len() >= greatest.len();
    let bound = if is_above { format!("at most {greatest}") } else { format!("at least {low}") };
    format!("{unit} {bound}")
}

/// Greatest values of Java's `int` and `long`.
const GREATEST: [&str; 2] = ["2147483647", "9223372036854775807"];
