//! What DescribeAcls and DeleteAcls ask for.

use super::{ANY, Acl, Operation, Pattern, Permission, ResourceType};

/// The number for any, in every field.
const ANY_CODE: i8 = 1;
/// The number for patterns that fit a name, however they are written.
const MATCH: i8 = 2;

/// Which ACLs are meant. Absent is any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    resource_type: Option<ResourceType>,
    resource_name: Option<String>,
    pattern: PatternFilter,
    principal: Option<String>,
    host: Option<String>,
    operation: Option<Operation>,
    permission: Option<Permission>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternFilter {
    Any,
    /// Patterns that name the resource of the filter's name.
    Match,
    Exactly(Pattern),
}

/// A filter's fields as requests have them.
pub(crate) struct Fields<'a> {
    pub(crate) resource_type: i8,
    pub(crate) resource_name: Option<&'a str>,
    pub(crate) pattern: i8,
    pub(crate) principal: Option<&'a str>,
    pub(crate) host: Option<&'a str>,
    pub(crate) operation: i8,
    pub(crate) permission: i8,
}

impl Filter {
    /// `None` if a number means nothing.
    pub(crate) fn new(fields: &Fields<'_>) -> Option<Self> {
        fn any<T>(code: i8, of_code: fn(i8) -> Option<T>) -> Option<Option<T>> {
            if code == ANY_CODE { Some(None) } else { of_code(code).map(Some) }
        }
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Some(Self {
            resource_type: any(fields.resource_type, ResourceType::of_code)?,
            resource_name: owned(fields.resource_name),
            pattern: match fields.pattern {
                ANY_CODE => PatternFilter::Any,
                MATCH => PatternFilter::Match,
                code => PatternFilter::Exactly(Pattern::of_code(code)?),
            },
            principal: owned(fields.principal),
            host: owned(fields.host),
            operation: any(fields.operation, Operation::of_code)?,
            permission: any(fields.permission, Permission::of_code)?,
        })
    }

    pub(crate) fn fits(&self, acl: &Acl) -> bool {
        fn same<T: PartialEq + ?Sized>(wanted: Option<&T>, is: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == is)
        }
        same(self.resource_type.as_ref(), &acl.resource_type)
            && same(self.principal.as_deref(), acl.principal.as_str())
            && same(self.host.as_deref(), acl.host.as_str())
            && same(self.operation.as_ref(), &acl.operation)
            && same(self.permission.as_ref(), &acl.permission)
            && self.fits_name(acl)
    }

    fn fits_name(&self, acl: &Acl) -> bool {
        let name = self.resource_name.as_deref();
        let same = || name.is_none_or(|name| name == acl.resource_name);
        match (self.pattern, acl.pattern) {
            (PatternFilter::Any, _) => same(),
            (PatternFilter::Exactly(wanted), is) => wanted == is && same(),
            (PatternFilter::Match, Pattern::Literal) => same() || acl.resource_name == ANY,
            (PatternFilter::Match, Pattern::Prefixed) => {
                name.is_none_or(|name| name.starts_with(&acl.resource_name))
            }
        }
    }
}
