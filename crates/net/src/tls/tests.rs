//! Both sides of TLS over a socket in memory that transfers bytes in small pieces.

mod memory;

use std::{
    io,
    sync::{Arc, LazyLock},
    time::Duration,
};

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::{
    AlertDescription, CertificateError, Error as Session, pki_types::pem::PemObject as _,
};
use tokio::{join, runtime, time::timeout};

use self::memory::MemorySocket;
use super::*;
use crate::{HostCheck, Socket, SocketExt as _};

const LIMIT: Duration = Duration::from_secs(60);
const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

/// The authority that signs the tests' certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate signed by an authority.
struct Signed {
    chain: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    fn trusted(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let own = certificates_from_pem(self.0.pem().as_bytes()).expect("its certificate");
        roots.add_parsable_certificates(own);
        roots
    }

    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Signed { chain: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Signed {
    fn identity(&self) -> Identity {
        Identity::from_pem(self.chain.as_bytes(), self.key.as_bytes(), None).expect("usable PEM")
    }
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);
static SERVER: LazyLock<Signed> = LazyLock::new(|| AUTHORITY.sign("broker", |_| {}));

fn server() -> Arc<ServerConfig> {
    server_config(SERVER.identity(), ClientAuth::None, BOTH).expect("a usable configuration")
}

fn client(versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    client_config(AUTHORITY.trusted(), HostCheck::Https, None, versions).expect("usable")
}

fn named(name: &str) -> ServerName<'static> {
    ServerName::try_from(name.to_owned()).expect("a name")
}

/// Bytes a pipe holds. The end of the server's handshake must fit: a client here does not read
/// before then.
const ROOM: usize = 2000;

type Side = Result<TlsSocket, TlsError>;

async fn shake(
    (left, right): (MemorySocket, MemorySocket),
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
) -> (Side, Side) {
    join!(
        TlsSocket::connect(Box::new(left), client, named("broker"), LIMIT),
        TlsSocket::accept(Box::new(right), server, LIMIT),
    )
}

async fn read_to_end(socket: &dyn Socket, piece: usize) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buf = vec![0; piece];
    loop {
        match socket.read(&mut buf).await? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async { timeout(LIMIT, test).await.expect("no hang") })
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 % 251) as u8).collect()
}

async fn read_exactly(socket: &dyn Socket, length: usize, piece: usize) -> Vec<u8> {
    let mut got = vec![0; length];
    let mut read = 0;
    while read < length {
        let end = length.min(read + piece);
        read += match socket.read(&mut got[read..end]).await.expect("read") {
            0 => panic!("the end after {read} of {length} bytes"),
            n => n,
        };
    }
    got
}

#[test]
fn bytes_arrive_in_order_for_any_piece_size() {
    for (chunk, room, piece) in
        [(1, ROOM, 3), (17, ROOM, 4096), (5000, 20_000, 16_384), (1 << 20, 1 << 20, 1 << 17)]
    {
        for versions in [&[&TLS12][..], &[&TLS13]] {
            run(async {
                let pair = MemorySocket::pair(chunk, room);
                let (left, right) = shake(pair, client(versions), server()).await;
                let (left, right) = (left.expect("the client's"), right.expect("the server's"));
                let sent = pattern(if chunk == 1 { 3000 } else { 300_000 });
                let (written, got) =
                    join!(left.write_all(&sent), read_exactly(&right, sent.len(), piece));
                written.expect("written");
                assert!(got == sent, "{chunk} {room} {piece}");
            });
        }
    }
}

#[test]
fn a_dropped_socket_ends_its_stream_after_all_written_bytes() {
    run(async {
        let pair = MemorySocket::pair(1 << 20, 1 << 20);
        let (left, right) = shake(pair, client(BOTH), server()).await;
        let (left, right) = (left.expect("the client's"), right.expect("the server's"));
        let sent = pattern(100_000);
        left.write_all(&sent).await.expect("written");
        drop(left);
        assert!(read_to_end(&right, 5000).await.expect("a clean end") == sent);
    });
}

#[test]
fn bytes_reported_as_written_arrive_without_another_write() {
    run(async {
        let (left, right) = shake(MemorySocket::pair(100, ROOM), client(BOTH), server()).await;
        let (left, right) = (left.expect("the client's"), right.expect("the server's"));
        for length in [1, 2, 999, 1000, 5000, 70_000] {
            let sent = pattern(length);
            let (written, got) =
                join!(left.write_all(&sent), read_exactly(&right, length, 100_000));
            written.expect("written");
            assert_eq!(got, sent);
        }
    });
}

#[test]
fn both_sides_can_write_at_once() {
    run(async {
        let (left, right) = shake(MemorySocket::pair(1000, 4000), client(BOTH), server()).await;
        let (left, right) = (left.expect("the client's"), right.expect("the server's"));
        let sent = pattern(200_000);
        let (a, b, there, back) = join!(
            left.write_all(&sent),
            right.write_all(&sent),
            read_exactly(&right, sent.len(), 10_000),
            read_exactly(&left, sent.len(), 10_000),
        );
        a.and(b).expect("written");
        assert!(there == sent && back == sent);
    });
}

#[test]
fn a_connection_cut_without_close_notify_is_an_unexpected_eof() {
    run(async {
        let (a, b) = MemorySocket::pair(1 << 20, 1 << 20);
        let scissors = b.scissors();
        let (left, right) = shake((a, b), client(BOTH), server()).await;
        let (left, right) = (left.expect("the client's"), right.expect("the server's"));
        left.write_all(b"part").await.expect("written");
        scissors.cut();
        let error = read_to_end(&right, 100).await.expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(session_error(&error).is_none());
    });
}

#[test]
fn a_failed_handshake_is_reported_with_its_cause() {
    run(async {
        let connect = |socket: MemorySocket, limit| {
            TlsSocket::connect(Box::new(socket), client(BOTH), named("broker"), limit)
        };
        let (left, right) = MemorySocket::pair(1 << 20, 1 << 20);
        let silent = connect(left, Duration::from_millis(10)).await;
        assert!(matches!(silent, Err(TlsError::TimedOut(_))), "{silent:?}");
        drop(right);

        let (left, right) = MemorySocket::pair(1 << 20, 1 << 20);
        drop(right);
        let closed = connect(left, LIMIT).await;
        assert!(matches!(closed, Err(TlsError::Closed | TlsError::Io(_))), "{closed:?}");

        let (left, right) = MemorySocket::pair(1 << 20, 1 << 20);
        right.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("written");
        let foreign = connect(left, LIMIT).await;
        assert!(
            matches!(foreign, Err(TlsError::Session(Session::InvalidMessage(_)))),
            "{foreign:?}"
        );

        let (left, right) = MemorySocket::pair(1 << 20, 1 << 20);
        left.write_all(&[0, 0, 0, 20, 0, 18, 0, 3]).await.expect("written");
        let clear = TlsSocket::accept(Box::new(right), server(), LIMIT).await;
        assert!(matches!(clear, Err(TlsError::Session(Session::InvalidMessage(_)))), "{clear:?}");
    });
}

async fn refused_because(
    server: &Signed,
    trusted: RootCertStore,
    check: HostCheck,
) -> Option<Session> {
    let client = client_config(trusted, check, None, BOTH).expect("usable");
    let server = server_config(server.identity(), ClientAuth::None, BOTH).expect("usable");
    match shake(MemorySocket::pair(1 << 20, 1 << 20), client, server).await.0 {
        Ok(_) => None,
        Err(TlsError::Session(error)) => Some(error),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn an_untrusted_expired_or_misnamed_server_is_refused() {
    run(async {
        let good = |check| refused_because(&SERVER, AUTHORITY.trusted(), check);
        assert_eq!(good(HostCheck::Https).await, None);
        let stranger = Authority::new();
        for check in [HostCheck::Https, HostCheck::Off] {
            let unknown = refused_because(&SERVER, stranger.trusted(), check).await;
            let unknown = unknown.expect("refused");
            let issuer = Session::InvalidCertificate(CertificateError::UnknownIssuer);
            let signature = Session::InvalidCertificate(CertificateError::BadSignature);
            assert!(unknown == issuer || unknown == signature, "{unknown:?}");
            let old =
                AUTHORITY.sign("broker", |params| params.not_after = date_time_ymd(2001, 1, 1));
            let old = refused_because(&old, AUTHORITY.trusted(), check).await.expect("refused");
            assert!(
                matches!(
                    old,
                    Session::InvalidCertificate(
                        CertificateError::Expired | CertificateError::ExpiredContext { .. }
                    )
                ),
                "{old:?}"
            );
        }
        let other = AUTHORITY.sign("elsewhere", |_| {});
        let named = refused_because(&other, AUTHORITY.trusted(), HostCheck::Https).await;
        assert!(
            matches!(
                named,
                Some(Session::InvalidCertificate(
                    CertificateError::NotValidForName
                        | CertificateError::NotValidForNameContext { .. }
                ))
            ),
            "{named:?}"
        );
        assert_eq!(refused_because(&other, AUTHORITY.trusted(), HostCheck::Off).await, None);
    });
}

#[test]
fn a_requested_client_certificate_is_sent_and_verified() {
    run(async {
        let server = |auth| server_config(SERVER.identity(), auth, BOTH).expect("usable");
        let with = |identity| {
            client_config(AUTHORITY.trusted(), HostCheck::Https, identity, BOTH).expect("usable")
        };
        let required = server(ClientAuth::Required(AUTHORITY.trusted()));
        let pair = || MemorySocket::pair(1 << 20, 1 << 20);
        let identity = AUTHORITY.sign("someone", |_| {}).identity();
        let own = identity.chain()[0].clone();
        let (left, right) = shake(pair(), with(Some(identity)), required.clone()).await;
        assert_eq!(right.expect("accepted").peer_certificates()[0], own);
        assert!(left.expect("accepted").describe().starts_with("TLSv1_3, "));

        let (left, right) = shake(pair(), with(None), required).await;
        assert!(right.is_err());
        let error = read_to_end(&left.expect("not refused yet"), 10).await.expect_err("refused");
        let alert = Session::AlertReceived(AlertDescription::CertificateRequired);
        assert_eq!(session_error(&error), Some(&alert));

        let requested = server(ClientAuth::Requested(AUTHORITY.trusted()));
        let (_, right) = shake(pair(), with(None), requested).await;
        assert_eq!(right.expect("accepted").peer_certificates(), []);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_cause_no_panic_and_no_hang(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        record in prop::bool::ANY,
        open in prop::bool::ANY,
    ) {
        run(async {
            let (a, b) = MemorySocket::pair(1 << 20, 1 << 20);
            let mut hostile = bytes;
            if record && hostile.len() >= 5 {
                // Bytes that look like a record reach deeper code.
                let length = u16::try_from(hostile.len() - 5).expect("short");
                hostile[0] = 20 + hostile[0] % 5;
                hostile[1..3].copy_from_slice(&[3, 3]);
                hostile[3..5].copy_from_slice(&length.to_be_bytes());
            }
            if open {
                let scissors = a.scissors();
                let (left, right) = shake((a, b), client(BOTH), server()).await;
                let (left, right) = (left.expect("the client's"), right.expect("the server's"));
                scissors.inject(&hostile);
                scissors.cut();
                read_to_end(&left, 64).await.expect_err("never a clean end");
                drop(right);
            } else {
                b.write_all(&hostile).await.expect("written");
                drop(b);
                let tried = TlsSocket::connect(Box::new(a), client(BOTH), named("broker"), LIMIT);
                tried.await.expect_err("no handshake");
            }
        });
    }
}

/// A key made for this test only.
const CLEAR_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgXyGddv0CqbPbHReb
uPlBr+isFFfgKV+XRpE0BxTwCt2hRANCAAT9/wUF1HVoAW6xIap/f5AUOMIIdp1Q
G0KhWdYtCO3aIXux0Lt05NoSb0uZU8l+pguA1I5pzDpmGNqCloz1Jt6L
-----END PRIVATE KEY-----";

/// The same key: `openssl pkcs8 -topk8 -v2 aes256 -passout pass:opensesame`.
const ENCRYPTED_KEY: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhP+8w4pSgmigICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEECASq8jMgpjCGxvowcepCZIEgZDC
+MTm6cUaWLz6KAfFO1JWSIHgi8mtkxYQWqbxFpy91/KSL0m0Vu3d8ZkdN5My/no0
UULRkNhXb1lTXKpEQ+746ILv7FBECCEQ+4dXSVZX7ouN8Y0hfGiDSRmJBseoEru9
8CSaCPnIb0e1b9NczYZV3r5vaH7fFld93ijwSbZrs0wT+ndUZnc5Zm4uoQcGBQE=
-----END ENCRYPTED PRIVATE KEY-----";

#[test]
fn pem_is_read_from_one_line_and_with_encrypted_keys() {
    let one_line = SERVER.chain.replace('\n', " ");
    let certificates = certificates_from_pem(one_line.as_bytes()).expect("PEM");
    assert_eq!(certificates, SERVER.identity().chain);
    let bundle = format!("subject=broker\n{0}{0}", SERVER.chain);
    assert_eq!(certificates_from_pem(bundle.as_bytes()).expect("PEM").len(), 2);
    assert_eq!(certificates_from_pem(b"none"), Err(MaterialError::NoCertificate));

    let clear = PrivateKeyDer::from_pem_slice(CLEAR_KEY.as_bytes()).expect("PEM");
    let read = |key: &str, password| {
        let read = Identity::from_pem(SERVER.chain.as_bytes(), key.as_bytes(), password);
        read.map(|identity| identity.key)
    };
    assert_eq!(read(ENCRYPTED_KEY, Some("opensesame")), Ok(clear.clone_key()));
    assert_eq!(read(&ENCRYPTED_KEY.replace('\n', " "), Some("opensesame")), Ok(clear.clone_key()));
    assert_eq!(read(CLEAR_KEY, None), Ok(clear));
    assert_eq!(read(ENCRYPTED_KEY, None), Err(MaterialError::PasswordNeeded));
    assert_eq!(read(ENCRYPTED_KEY, Some("wrong")), Err(MaterialError::Decryption));
    assert_eq!(read(&SERVER.chain, None), Err(MaterialError::NoKey));
    assert_eq!(
        read("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n", Some("x")),
        Err(MaterialError::OldEncryption)
    );
    assert!(!format!("{:?}", SERVER.identity()).contains("key"));
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let other = AUTHORITY.sign("broker", |_| {});
    let mixed = Identity::from_pem(SERVER.chain.as_bytes(), other.key.as_bytes(), None);
    let refused = server_config(mixed.expect("PEM"), ClientAuth::None, BOTH).expect_err("refused");
    assert_eq!(refused.to_string(), "the private key does not match the certificate");
}

/// Both stores were made for this test: `keytool -genkeypair -keyalg EC -storepass opensesame` and
/// `openssl pkcs12 -export`. `keytool -importcert` made the store of the certificate.
#[test]
fn pkcs12_is_read_as_keytool_and_openssl_write_it() {
    let by_keytool = include_bytes!("tests/identity.p12");
    let identity = Identity::from_pkcs12(by_keytool, "opensesame").expect("an identity");
    let by_openssl = include_bytes!("tests/openssl.p12");
    let other = Identity::from_pkcs12(by_openssl, "opensesame").expect("an identity");
    assert_eq!((&identity.chain, &identity.key), (&other.chain, &other.key));
    let trusted = include_bytes!("tests/trusted.p12");
    let trusted = certificates_from_pkcs12(trusted, "opensesame").expect("a certificate");
    assert_eq!(trusted, identity.chain);
    server_config(identity, ClientAuth::None, BOTH).expect("the key is the certificate's");

    let refused =
        |store: &[u8], password| Identity::from_pkcs12(store, password).expect_err("refused");
    assert!(matches!(refused(by_keytool, "wrong"), MaterialError::Store(_)));
    assert!(matches!(refused(b"", "opensesame"), MaterialError::Store(_)));
    let cut = &by_keytool[..by_keytool.len() / 2];
    assert!(matches!(refused(cut, "opensesame"), MaterialError::Store(_)));
    let none = certificates_from_pkcs12(by_keytool, "opensesame").expect_err("none is trusted");
    assert!(none.to_string().contains("importcert"), "{none}");
}
