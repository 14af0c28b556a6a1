//! Checks the documents: links are valid, the book has all of them as chapters, named calls exist, and the README is short.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files of the root, of `docs`, `museum` and `peers`.
fn documents() -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found: Vec<PathBuf> =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "museum/README.md", "peers/README.md"]
            .map(|name| root().join(name))
            .into();
    found.push(root().join("bindings/python/README.md"));
    below(&root().join("docs"), &mut found);
    found
}

/// The documents of the book, by their paths below `docs`.
fn chapters() -> BTreeSet<String> {
    let docs = root().join("docs");
    let below = documents().into_iter().filter_map(|path| {
        let name = path.strip_prefix(&docs).ok()?.to_str().expect("a name in UTF-8").to_owned();
        (name != "SUMMARY.md").then_some(name)
    });
    below.collect()
}

/// The text without blocks of code.
fn prose(text: &str) -> String {
    let mut in_code = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The targets of links and pictures.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The anchor that a forge gives to a heading.
fn anchor(heading: &str) -> String {
    let letter = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim_start_matches('#').trim().chars().filter_map(letter).collect()
}

#[test]
fn relative_links_of_documents_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = prose(&fs::read_to_string(&document).unwrap());
        for link in links(&text).filter(|link| !link.contains("://") && !link.contains(' ')) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => document.clone(),
                path => document.parent().unwrap().join(path),
            };
            let has_heading = |text: String| {
                text.lines().any(|line| line.starts_with('#') && anchor(line) == heading)
            };
            let found = target.exists()
                && (heading.is_empty() || fs::read_to_string(&target).is_ok_and(has_heading));
            if !found {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A link for the summary, as those of the decisions: `[0007: batches grow](decisions/0007-batches-grow.md)`.
fn entry(chapter: &str) -> String {
    let path = Path::new(chapter);
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let title = match stem.split_once('-') {
        Some((number, words)) if number.parse::<u16>().is_ok() => format!("{number}: {words}"),
        _ => stem.to_owned(),
    };
    format!("[{}]({chapter})", title.replace('-', " "))
}

#[test]
fn the_summary_of_the_book_names_each_chapter_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let named: Vec<&str> = links(&summary).collect();
    let chapters = chapters();
    let missing: Vec<String> = chapters
        .iter()
        .filter(|chapter| !named.contains(&chapter.as_str()))
        .map(|chapter| entry(chapter))
        .collect();
    assert!(missing.is_empty(), "add to docs/SUMMARY.md: {missing:#?}");
    let unique: BTreeSet<String> = named.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(unique, chapters, "docs/SUMMARY.md names a file that is no chapter");
    assert_eq!(named.len(), unique.len(), "docs/SUMMARY.md names a chapter twice");
}

/// The book has neither the files outside of `docs` nor the summary as a page.
#[test]
fn chapters_link_only_to_files_of_the_book() {
    let docs = fs::canonicalize(root().join("docs")).unwrap();
    let is_in_the_book =
        |target: PathBuf| target.starts_with(&docs) && target != docs.join("SUMMARY.md");
    let mut outside = Vec::new();
    for chapter in chapters() {
        let path = docs.join(&chapter);
        let text = prose(&fs::read_to_string(&path).unwrap());
        for link in links(&text).filter(|link| !link.contains("://") && !link.contains(' ')) {
            let target = link.split('#').next().unwrap_or_default();
            let target = path.parent().unwrap().join(target);
            // The first test reports links that lead nowhere.
            if fs::canonicalize(target).is_ok_and(|target| !is_in_the_book(target)) {
                outside.push(format!("docs/{chapter}: {link}"));
            }
        }
    }
    assert!(outside.is_empty(), "{outside:#?}");
}

#[test]
fn calls_in_the_table_of_admin_methods_exist() {
    let table = fs::read_to_string(root().join("docs/admin.md")).unwrap();
    let sources = fs::read_dir(root().join("crates/curtail/src/admin")).unwrap();
    let sources: String =
        sources.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let named = rows.filter_map(|(_, call)| call.strip_prefix('`')?.split_once('`'));
    let signatures =
        sources.split("    pub fn ").skip(1).filter_map(|method| method.split_once(" {"));
    let calls: BTreeSet<&str> = signatures
        .filter(|(signature, _)| signature.contains("-> Call<"))
        .filter_map(|(signature, _)| signature.split(['(', '<']).next())
        .collect();
    let missing: Vec<_> =
        named.map(|(call, _)| call).filter(|call| !calls.contains(call)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_readme_has_at_most_700_words() {
    let text = prose(&fs::read_to_string(root().join("README.md")).unwrap());
    let words = text.split_whitespace().filter(|word| *word != "|").count();
    assert!(words <= 700, "{words} words");
}

/// The words of a page that a reader sees without opening a folded block. Rows and links count by their texts.
fn open_words(text: &str) -> usize {
    let (mut depth, mut words) = (0, 0);
    for line in text.lines() {
        depth += line.matches("<details>").count();
        if depth == 0 {
            words += line.split_whitespace().filter(|word| *word != "|").count();
        }
        depth -= line.matches("</details>").count();
    }
    words
}

#[test]
fn the_page_of_results_is_read_in_five_minutes() {
    let text = prose(&fs::read_to_string(root().join("docs/results/README.md")).unwrap());
    let words = open_words(&text);
    assert!(words <= 1500, "{words} words outside of folded blocks");
}
