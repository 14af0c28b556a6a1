//! Codecs as cargo features. Without them: `cargo test -p curtail-wire --no-default-features --test features`.

use curtail_wire::compression::{
    Codec, CompressError, Compression, DecompressError, DecompressLimit, decompress,
};

#[test]
fn a_codec_works_or_names_the_feature_that_is_missing() {
    let limit = DecompressLimit::default();
    for codec in Codec::ALL {
        let mut out = Vec::new();
        let compressed = Compression::from(codec).compress(b"records", &mut out);
        if codec.is_built() {
            assert_eq!(compressed, Ok(()));
            assert_eq!(decompress(codec, &out, &limit), Ok(b"records".to_vec()));
            continue;
        }
        assert_eq!(compressed, Err(CompressError::NotBuilt(codec)));
        let refused = decompress(codec, b"records", &limit).expect_err("no such codec");
        assert_eq!(refused, DecompressError::NotBuilt(codec));
        let line = format!("{codec} is not in this build; add the cargo feature '{codec}'");
        assert_eq!(refused.to_string(), line);
    }
}
