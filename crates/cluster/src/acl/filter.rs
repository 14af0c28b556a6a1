//! ACL filters of DescribeAcls and DeleteAcls.

use super::{ANY, Acl, Operation, Pattern, Permission, ResourceType};

/// The code for any value, in every field.
const ANY_CODE: i8 = 1;
/// The code for all ACLs that apply to a resource name, of any pattern type.
const MATCH: i8 = 2;

/// A filter for ACLs. `None` matches any value.
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
    /// ACLs that apply to the resource with the filter's name.
    Match,
    Exactly(Pattern),
}

/// A filter's fields, as in requests.
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
    /// Returns `None` if a code is unknown.
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
