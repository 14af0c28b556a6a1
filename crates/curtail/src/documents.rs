//! Parts of the documents that are made from the code.

use std::{fs, path::Path};

/// Compares the parts of `docs/NAME` between `<!-- MARK -->` and `<!-- end of MARK -->` with the expected texts.
/// `DOCUMENTS=write` writes them instead.
///
/// # Panics
/// If a mark is missing or a part is outdated.
pub(crate) fn check(name: &str, parts: &[(&str, String)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let document = fs::read_to_string(&path).expect("the document");
    let mut expected = document.clone();
    for (mark, part) in parts {
        let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- end of {mark} -->"));
        let (head, rest) = expected.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
        let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
        expected = [head, &begin, "\n", part, "\n", &end, tail].concat();
    }
    if std::env::var("DOCUMENTS").is_ok_and(|value| value == "write") {
        fs::write(&path, expected).expect("a document that can be written");
        return;
    }
    assert!(
        document == expected,
        "docs/{name} is outdated; run DOCUMENTS=write cargo test -p curtail --lib page_"
    );
}
