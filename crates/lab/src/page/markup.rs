//! Elements of HTML and SVG that are also well-formed XML. Text and attributes are escaped only here.

use std::fmt::{Display, Write as _};

/// An element with its content.
pub(crate) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Node>,
}

enum Node {
    Element(Element),
    Text(String),
}

/// An element without attributes and content.
pub(crate) fn el(name: &'static str) -> Element {
    Element { name, attributes: Vec::new(), children: Vec::new() }
}

impl Element {
    pub(crate) fn attr(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    pub(crate) fn class(self, names: impl Display) -> Self {
        self.attr("class", names)
    }

    pub(crate) fn text(mut self, text: impl Display) -> Self {
        self.children.push(Node::Text(text.to_string()));
        self
    }

    pub(crate) fn child(mut self, child: Self) -> Self {
        self.children.push(Node::Element(child));
        self
    }

    pub(crate) fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children.into_iter().map(Node::Element));
        self
    }

    /// Appends the element to a text.
    pub(crate) fn write(&self, to: &mut String) {
        let _ = write!(to, "<{}", self.name);
        for (name, value) in &self.attributes {
            let _ = write!(to, " {name}=\"");
            escape(value, to);
            to.push('"');
        }
        // In HTML only these elements have no end tag; SVG accepts both forms.
        if self.children.is_empty() && ["meta", "br"].contains(&self.name) {
            to.push_str("/>");
            return;
        }
        to.push('>');
        for child in &self.children {
            match child {
                Node::Element(element) => element.write(to),
                Node::Text(text) => escape(text, to),
            }
        }
        let _ = write!(to, "</{}>", self.name);
        if ["p", "tr", "li", "section", "figure", "svg", "table", "h2", "h3"].contains(&self.name) {
            to.push('\n');
        }
    }
}

/// Escapes markup characters, and replaces characters that XML does not allow.
fn escape(text: &str, to: &mut String) {
    for character in text.chars() {
        match character {
            '&' => to.push_str("&amp;"),
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '"' => to.push_str("&quot;"),
            '\t' | '\n' | '\r' => to.push(character),
            '\u{fffe}' | '\u{ffff}' => to.push('\u{fffd}'),
            control if control.is_control() => to.push('\u{fffd}'),
            other => to.push(other),
        }
    }
}

/// A cell with more characters may wrap.
const LONG: usize = 24;

/// A table: a caption, column headings, and rows whose first cell is their heading.
pub(crate) fn table(caption: &str, columns: &[String], rows: Vec<Vec<String>>) -> Element {
    let heading = |text: &String| el("th").attr("scope", "col").text(text);
    let row = |cells: Vec<String>| {
        let cells = cells.into_iter().enumerate().map(|(at, cell)| match at {
            0 => el("th").attr("scope", "row").text(cell),
            _ if cell.chars().count() > LONG => el("td").class("words").text(cell),
            _ => el("td").text(cell),
        });
        el("tr").children(cells)
    };
    let head = el("thead").child(el("tr").children(columns.iter().map(heading)));
    let body = el("tbody").children(rows.into_iter().map(row));
    let table = el("table").child(el("caption").text(caption)).child(head).child(body);
    // A table wider than the screen scrolls separately, also with the keyboard.
    let scroll = el("div").class("scroll").attr("tabindex", "0").attr("role", "region");
    scroll.attr("aria-label", caption).child(table)
}

/// A plot, what it shows, and its numbers behind a click.
pub(crate) fn figure(caption: &str, plots: Vec<Element>, numbers: Vec<Element>) -> Element {
    let scroll = el("div").class("scroll").attr("tabindex", "0").attr("role", "region");
    let scroll = scroll.attr("aria-label", caption).children(plots);
    let summary = el("summary").text("The numbers as a table");
    let details = el("details").child(summary).children(numbers);
    el("figure").child(el("figcaption").text(caption)).child(scroll).child(details)
}
