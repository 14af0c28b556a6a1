use super::*;

const CONFIG: &str = "
# A comment.
[default]
region = eu-west-1
output = json
s3 =
  max_concurrent_requests = 20
[profile work]
region=us-east-2 # Ohio
role_arn = arn:aws:iam::1:role/work
source_profile = base
external_id = e1
[profile outer]
role_arn = arn:aws:iam::1:role/outer
role_session_name = s1
source_profile = work
[profile self]
role_arn = arn:aws:iam::1:role/self
source_profile = self
[profile web]
role_arn = arn:aws:iam::1:role/web
web_identity_token_file = /token
[profile machine]
role_arn = arn:aws:iam::1:role/m
credential_source = Ec2InstanceMetadata
[profile sso]
sso_session = corp
[profile process]
credential_process = /bin/hush
[profile lost]
role_arn = x
source_profile = missing
[profile loop]
role_arn = x
source_profile = loop2
[profile loop2]
role_arn = x
source_profile = loop
[profile half]
role_arn = x
[profile both]
role_arn = x
source_profile = base
credential_source = Environment
[profile of-rich]
role_arn = arn:aws:iam::1:role/of-rich
source_profile = rich
[profile rich]
role_arn = arn:aws:iam::1:role/rich
source_profile = base
[base]
aws_access_key_id = not-a-profile
";

const CREDENTIALS: &str = "[default]
aws_access_key_id=ID
aws_secret_access_key = hush
[base]
AWS_ACCESS_KEY_ID = BASE
aws_secret_access_key = hush2
aws_session_token = hush3
[self]
aws_access_key_id = SELF
aws_secret_access_key = hush
[rich]
aws_access_key_id = RICH
aws_secret_access_key = hush
[id-only]
aws_access_key_id = ID
[secret-only]
aws_secret_access_key = hush
";

fn profiles() -> Profiles {
    let mut profiles = Profiles::default();
    profiles.add(CONFIG, true);
    profiles.add(CREDENTIALS, false);
    profiles
}

fn role_of(arn: &str) -> Role {
    Role {
        arn: format!("arn:aws:iam::1:role/{arn}"),
        session_name: "curtail".into(),
        external_id: None,
        with: None,
        sts_region: None,
    }
}

#[test]
fn profiles_of_both_files_are_combined() {
    let profiles = profiles();
    let plan = |name| profiles.plan(name).unwrap();
    let keys = |base| Some(Plan { base: Base::Keys(base), roles: Vec::new() });
    assert_eq!(plan("default"), keys(AwsCredentials::new("ID", "hush")));
    let base = AwsCredentials::new("BASE", "hush2").session_token("hush3");
    assert_eq!(plan("base"), keys(base.clone()));
    assert_eq!(profiles.region("work").as_deref(), Some("us-east-2"));
    assert_eq!(profiles.region("default").as_deref(), Some("eu-west-1"));
    assert_eq!(plan("unknown"), None);
    let work = Role {
        external_id: Some("e1".into()),
        sts_region: Some("us-east-2".into()),
        ..role_of("work")
    };
    let outer = Role { session_name: "s1".into(), ..role_of("outer") };
    let expected = Plan { base: Base::Keys(base), roles: vec![work, outer] };
    assert_eq!(plan("outer"), Some(expected), "the source's role comes first");
    let own = Base::Keys(AwsCredentials::new("SELF", "hush"));
    assert_eq!(plan("self"), Some(Plan { base: own, roles: vec![role_of("self")] }));
    let web = Base::WebIdentity { role: role_of("web"), token_file: "/token".into() };
    assert_eq!(plan("web"), Some(Plan { base: web, roles: Vec::new() }));
    let machine = Plan { base: Base::Machine, roles: vec![role_of("m")] };
    assert_eq!(plan("machine"), Some(machine));
    assert!(!format!("{profiles:?}").contains("hush"));
}

/// As in the AWS CLI and the SDKs for Python, Rust and JavaScript.
#[test]
fn keys_of_a_source_profile_take_precedence_over_its_role() {
    let profiles = profiles();
    let rich = AwsCredentials::new("RICH", "hush");
    let of_rich = Plan { base: Base::Keys(rich), roles: vec![role_of("of-rich")] };
    assert_eq!(profiles.plan("of-rich").unwrap(), Some(of_rich));
    let base = AwsCredentials::new("BASE", "hush2").session_token("hush3");
    let alone = Plan { base: Base::Keys(base), roles: vec![role_of("rich")] };
    assert_eq!(profiles.plan("rich").unwrap(), Some(alone), "the role of the profile itself");
}

/// As Python's configparser reads them, and so the AWS CLI.
#[test]
fn a_line_continues_a_setting_only_if_it_is_indented_deeper() {
    let text = "
[indented]
  aws_access_key_id = ID
  s3 =
    region = nested
    # A comment.
  aws_secret_access_key = hush

  region = eu-west-1
[mixed]
region = eu-west-1
\tregion = nested
[deeper]
\t\tregion = eu-west-1
\toutput = json
 [after]
region = eu-west-2
";
    let mut profiles = Profiles::default();
    profiles.add(text, false);
    for (name, region) in [
        ("indented", "eu-west-1"),
        ("mixed", "eu-west-1"),
        ("deeper", "eu-west-1"),
        ("after", "eu-west-2"),
    ] {
        assert_eq!(profiles.region(name).as_deref(), Some(region), "{name}");
    }
    let keys = AwsCredentials::new("ID", "hush");
    let expected = Plan { base: Base::Keys(keys), roles: Vec::new() };
    assert_eq!(profiles.plan("indented").unwrap(), Some(expected));
}

#[test]
fn profiles_without_usable_credentials_are_refused_with_the_reason() {
    for (name, part) in [
        ("sso", "profile 'sso': credentials of IAM Identity Center (sso_*) are not supported"),
        ("process", "credential_process is not supported; use SecurityConfig::aws_msk_iam_with"),
        ("lost", "no profile 'missing'"),
        ("loop", "leads back to it"),
        ("half", "role_arn needs source_profile or credential_source"),
        ("both", "profile 'both': source_profile and credential_source exclude each other"),
        ("id-only", "profile 'id-only': aws_access_key_id needs aws_secret_access_key"),
        ("secret-only", "profile 'secret-only': aws_secret_access_key needs aws_access_key_id"),
    ] {
        let error = profiles().plan(name).unwrap_err();
        assert!(error.contains(part) && !error.contains("hush"), "{error}");
    }
}

#[test]
fn files_are_found_by_variable_or_in_the_home_folder() {
    let home = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(home.path().join(".aws/config"), CONFIG).unwrap();
    let elsewhere = home.path().join("keys");
    std::fs::write(&elsewhere, CREDENTIALS).unwrap();
    let (home, elsewhere) = (home.path().display().to_string(), elsewhere.display().to_string());
    let variables = Variables::of([("HOME", &*home), ("AWS_SHARED_CREDENTIALS_FILE", &elsewhere)]);
    let profiles = Profiles::read(&variables).unwrap();
    assert_eq!(profiles.region("default").as_deref(), Some("eu-west-1"));
    assert!(profiles.plan("base").unwrap().is_some());
    let none = Profiles::read(&Variables::of([("HOME", "/missing")])).unwrap();
    assert_eq!(none.plan("default").unwrap(), None);
    let folder = Variables::of([("AWS_CONFIG_FILE", "/")]);
    assert!(Profiles::read(&folder).unwrap_err().starts_with("/: "));
}

#[test]
fn inaccessible_files_of_the_home_folder_are_missing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let home = file.path().display().to_string();
    let profiles = Profiles::read(&Variables::of([("HOME", &*home)])).unwrap();
    assert_eq!(profiles.plan("default").unwrap(), None);
    // On Windows a file below a file is missing as any other.
    #[cfg(unix)]
    {
        let named = format!("{home}/.aws/config");
        let named = Profiles::read(&Variables::of([("AWS_CONFIG_FILE", &*named)]));
        assert!(named.unwrap_err().starts_with(&home));
    }
    // Permissions do not bind the superuser, who may run the tests.
    let denied = std::io::ErrorKind::PermissionDenied;
    assert!(is_missing(denied, false) && !is_missing(denied, true));
}
