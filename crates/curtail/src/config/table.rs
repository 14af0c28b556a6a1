//! The one list of a client's settings.
//!
//! A row of [`settings!`] is a setting: its documentation, field, type, default, property name and form. The row makes
//! the field, its default, the setter and the getter, the property, and the line in `docs/settings.md`. Rows of [`group!`]
//! do the same for TLS and SASL, but without setters and getters.

use super::redact;
use crate::error::ConfigError;

/// One property: name, meaning, accepted values, setter and getter.
pub(super) struct Property<C: 'static> {
    pub(super) name: &'static str,
    /// Its documentation, as Markdown with links of rustdoc.
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/settings.md, which a test writes"))]
    pub(super) about: &'static str,
    /// Whether it exists only with the feature `arms`.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documents, which a test writes"))]
    pub(super) is_arm: bool,
    pub(super) expected: &'static str,
    pub(super) set: fn(&mut C, &str) -> Option<()>,
    pub(super) get: fn(&C) -> String,
    /// Copies the value to the second configuration.
    pub(super) copy: fn(&C, &mut C),
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
pub(super) trait Settings: Clone + Default + 'static {
    /// The client's name in messages.
    const KIND: Kind;
    /// Properties of this client only.
    const TABLES: &'static [&'static [Property<Self>]];
    /// Common properties that this client lacks.
    const WITHOUT: &'static [&'static str];
    fn common(&self) -> &super::CommonConfig;
    fn common_mut(&mut self) -> &mut super::CommonConfig;
    /// Computes the settings that follow from others unless they were made explicitly.
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

/// A property that is a field with a form. The path to the field may come in brackets.
macro_rules! property {
    ([$($path:ident).+] $name:expr, $about:expr, $($field:ident).+, $form:expr) => {
        property!($name, $about, $($path).+.$($field).+, $form)
    };
    ($name:expr, $about:expr, $($field:ident).+, $form:expr $(, $feature:literal)?) => {
        Property {
            name: $name,
            about: $about,
            is_arm: !<[&str]>::is_empty(&[$($feature)?]),
            expected: $form.expected,
            set: |config, text| {
                config.$($field).+ = ($form.read)(text)?;
                Some(())
            },
            get: |config| ($form.show)(&config.$($field).+),
            copy: |from, to| to.$($field).+.clone_from(&from.$($field).+),
        }
    };
}
pub(super) use property;

/// Makes a configuration from rows `/// documentation`, `KIND field, getter: Type = default => "property.name", FORM;`.
///
/// `KIND` is that of the methods, which have the names `field` and `getter`:
///
/// | kind | setter takes | getter returns |
/// |---|---|---|
/// | `plain` | the type | the type |
/// | `text` | a text | `&str` |
/// | `name` | a text | `Option<&str>` |
/// | `value` | is written by hand | the type |
/// | `none` | is written by hand | is written by hand |
///
/// A row with `#[cfg(feature = "arms")]` before its kind has property and setter with this feature only, and no getter.
/// Without the feature the field keeps the default.
///
/// `without property` lists the other fields. `methods` are the configurations that have the methods, with the field in
/// which they have these settings.
macro_rules! settings {
    (
        $(#[$about:meta])*
        $type:ident, $table:ident: $rows:tt
        without property $others:tt
        methods $($owner:ident $path:tt),+
    ) => {
        settings!(@struct [$(#[$about])*] $type $rows $others);
        settings!(@table $type $table $rows);
        $(settings!(@methods $owner $path $rows);)+
    };
    (@struct [$(#[$about:meta])*] $type:ident
        { $($(#[doc = $doc:literal])+ $(#[cfg(feature = $feature:literal)])?
            $kind:ident $field:ident $(, $getter:ident)?: $of:ty = $default:expr
            => $name:literal, $form:expr;)* }
        { $($(#[doc = $more:literal])+ $other:ident: $other_of:ty = $other_default:expr;)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub struct $type {
            $($(#[doc = $more])+ pub(crate) $other: $other_of,)*
            $($(#[doc = $doc])+ pub(crate) $field: $of,)*
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
        { $($(#[doc = $doc:literal])+ $(#[cfg(feature = $feature:literal)])?
            $kind:ident $field:ident $(, $getter:ident)?: $of:ty = $default:expr
            => $name:literal, $form:expr;)* }
    ) => {
        pub(super) static $table: &[Property<$type>] =
            &[$(
                $(#[cfg(feature = $feature)])?
                property!($name, concat!($($doc),+), $field, $form $(, $feature)?),
            )*];
    };
    (@methods $owner:ident $path:tt
        { $($(#[doc = $doc:literal])+ $(#[cfg(feature = $feature:literal)])?
            $kind:ident $field:ident $(, $getter:ident)?: $of:ty = $default:expr
            => $name:literal, $form:expr;)* }
    ) => {
        impl $owner {
            $(
                $(#[cfg(feature = $feature)])?
                settings!(@setter $kind $path [$($doc)+] $name, $field: $of);
            )*
            $($(
                settings!(@getter $kind $path $name, $field $getter: $of);
            )?)*
        }
    };
    (@setter none $path:tt $docs:tt $name:literal, $field:ident: $of:ty) => {};
    (@setter value $path:tt $docs:tt $name:literal, $field:ident: $of:ty) => {};
    (@setter plain [$($path:ident)?] [$($doc:literal)+] $name:literal, $field:ident: $of:ty) => {
        $(#[doc = $doc])+
        #[must_use]
        pub fn $field(mut self, $field: $of) -> Self {
            self.$($path.)?$field = $field;
            $crate::config::table::Settings::give(&mut self, $name);
            self
        }
    };
    (@setter text [$($path:ident)?] [$($doc:literal)+] $name:literal, $field:ident: $of:ty) => {
        $(#[doc = $doc])+
        #[must_use]
        pub fn $field(mut self, $field: impl Into<String>) -> Self {
            self.$($path.)?$field = $field.into();
            $crate::config::table::Settings::give(&mut self, $name);
            self
        }
    };
    (@setter name [$($path:ident)?] [$($doc:literal)+] $name:literal, $field:ident: $of:ty) => {
        $(#[doc = $doc])+
        #[must_use]
        pub fn $field(mut self, $field: impl Into<String>) -> Self {
            self.$($path.)?$field = Some($field.into());
            $crate::config::table::Settings::give(&mut self, $name);
            self
        }
    };
    (@getter text [$($path:ident)?] $name:literal, $field:ident $getter:ident: $of:ty) => {
        #[doc = concat!("Returns `", $name, "`.")]
        #[must_use]
        pub fn $getter(&self) -> &str {
            &self.$($path.)?$field
        }
    };
    (@getter name [$($path:ident)?] $name:literal, $field:ident $getter:ident: $of:ty) => {
        #[doc = concat!("Returns `", $name, "`.")]
        #[must_use]
        pub fn $getter(&self) -> Option<&str> {
            self.$($path.)?$field.as_deref()
        }
    };
    (@getter $kind:ident [$($path:ident)?] $name:literal, $field:ident $getter:ident: $of:ty) => {
        #[doc = concat!("Returns `", $name, "`.")]
        #[must_use]
        pub fn $getter(&self) -> $of {
            self.$($path.)?$field
        }
    };
}
pub(super) use settings;

/// Makes a group of the settings of TLS and SASL from rows `/// documentation`, `field: Type = default => "name", FORM;`.
///
/// `in` is the group's place in [`super::CommonConfig`]. `within` has rows for fields of fields, and `without property`
/// the other fields.
macro_rules! group {
    (
        $(#[$about:meta])*
        $type:ident, $table:ident in $path:tt: $rows:tt
        within $inner:tt
        without property $others:tt
    ) => {
        group!(@struct [$(#[$about])*] $type $rows $others);
        group!(@table $table $path $rows $inner);
    };
    (@struct [$(#[$about:meta])*] $type:ident
        { $($(#[doc = $doc:literal])+ $field:ident: $of:ty = $default:expr => $name:literal, $form:expr;)* }
        { $($(#[doc = $more:literal])+ $other:ident: $other_of:ty = $other_default:expr;)* }
    ) => {
        $(#[$about])*
        #[non_exhaustive]
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
    (@table $table:ident $path:tt
        { $($(#[doc = $doc:literal])+ $field:ident: $of:ty = $default:expr => $name:literal, $form:expr;)* }
        { $($(#[doc = $inner:literal])+ $($part:ident).+ => $inner_name:literal, $inner_form:expr;)* }
    ) => {
        pub(in crate::config) static $table: &[Property<CommonConfig>] = &[
            $(property!($path $name, concat!($($doc),+), $field, $form),)*
            $(property!($path $inner_name, concat!($($inner),+), $($part).+, $inner_form),)*
        ];
    };
}
pub(super) use group;

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
