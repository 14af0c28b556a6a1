//! The coverage-guided run of one target, which `CURTAIL_FUZZ_TARGET` names. See `fuzz/run`.

#![no_main]

use std::{path::Path, sync::LazyLock};

use curtail_fuzz::Target;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("CURTAIL_FUZZ_TARGET").unwrap_or_default();
    curtail_fuzz::target(&name).expect("CURTAIL_FUZZ_TARGET names a target")
});

/// Writes the target's seeds to the directory in `CURTAIL_FUZZ_SEEDS`, before libFuzzer reads it.
fn write_seeds() {
    let Some(dir) = std::env::var_os("CURTAIL_FUZZ_SEEDS") else { return };
    for (i, seed) in (TARGET.seeds)().iter().enumerate() {
        std::fs::write(Path::new(&dir).join(format!("seed-{i}")), seed)
            .expect("a writable directory");
    }
}

libfuzzer_sys::fuzz_target!(init: write_seeds(), |input: &[u8]| (TARGET.run)(input));
