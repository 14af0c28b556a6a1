//! Large results: made without the interpreter on the runtime, and turned into Python objects in bounded turns.

use std::{mem, time::Instant, vec};

use curtail::{Error, TopicPartition, Uuid};
use pyo3::{
    IntoPyObjectExt, intern,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyModule, PyString, PyTuple},
};

use crate::error;

/// Objects between looks at the clock. An exception is the slowest one, with about 10 µs.
const LOOK_EVERY: usize = 8;

/// A value of Python, before it is one.
pub(crate) enum Tree {
    None,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Name(&'static str),
    Text(String),
    Bytes(Vec<u8>),
    Error(Box<Error>),
    Tuple(Vec<Tree>),
    List(Vec<Tree>),
    /// Keys and values in turn.
    Dict(Vec<Tree>),
    /// An instance of a class of `curtail_kafka.admin`: its name, and its fields in the order of their names. Without
    /// names they are arguments.
    Object(&'static str, &'static [&'static str], Vec<Tree>),
}

impl From<&TopicPartition> for Tree {
    fn from(at: &TopicPartition) -> Self {
        let fields = vec![Self::Text(at.topic.to_string()), Self::Int(at.partition.into())];
        Self::Object("TopicPartition", &[], fields)
    }
}

/// A UUID, as Python's class.
pub(crate) fn uuid(py: Python<'_>, id: Uuid) -> PyResult<Py<PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item(intern!(py, "bytes"), PyBytes::new(py, &id.0))?;
    let class = PyModule::import(py, intern!(py, "uuid"))?.getattr(intern!(py, "UUID"))?;
    Ok(class.call((), Some(&fields))?.unbind())
}

/// A value that is being built.
pub(crate) struct Build {
    /// The next value to build; without one, the next of the innermost collection.
    next: Option<Tree>,
    open: Vec<Collection>,
}

struct Collection {
    kind: Kind,
    rest: vec::IntoIter<Tree>,
}

enum Kind {
    Tuple(Vec<Py<PyAny>>),
    List(Py<PyList>),
    Dict(Py<PyDict>, Option<Py<PyAny>>),
    Object(&'static str, &'static [&'static str], Vec<Py<PyAny>>),
}

impl Build {
    pub(crate) fn new(tree: Tree) -> Self {
        Self { next: Some(tree), open: Vec::new() }
    }

    /// Continues until the time. `None` if the value is not complete by then.
    pub(crate) fn run(&mut self, py: Python<'_>, until: Instant) -> PyResult<Option<Py<PyAny>>> {
        let mut built = 0;
        loop {
            let value = match self.next.take() {
                Some(tree) => match self.begin(py, tree)? {
                    Some(value) => value,
                    None => continue,
                },
                None => match self.open.last_mut().and_then(|open| open.rest.next()) {
                    Some(tree) => {
                        self.next = Some(tree);
                        continue;
                    }
                    None => match self.open.pop() {
                        Some(complete) => complete.kind.end(py)?,
                        None => return Ok(None),
                    },
                },
            };
            match self.open.last_mut() {
                Some(open) => open.kind.add(py, value)?,
                None => return Ok(Some(value)),
            }
            built += 1;
            if built % LOOK_EVERY == 0 && Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Builds a plain value, or opens a collection.
    fn begin(&mut self, py: Python<'_>, tree: Tree) -> PyResult<Option<Py<PyAny>>> {
        let (kind, rest) = match tree {
            Tree::None => return Ok(Some(py.None())),
            Tree::Bool(value) => return value.into_py_any(py).map(Some),
            Tree::Int(value) => return value.into_py_any(py).map(Some),
            Tree::Unsigned(value) => return value.into_py_any(py).map(Some),
            Tree::Float(value) => return value.into_py_any(py).map(Some),
            Tree::Name(name) => return Ok(Some(PyString::intern(py, name).into_any().unbind())),
            Tree::Text(text) => return text.into_py_any(py).map(Some),
            Tree::Bytes(bytes) => return Ok(Some(PyBytes::new(py, &bytes).into_any().unbind())),
            Tree::Error(error) => return Ok(Some(error::value(py, &error)?.unbind())),
            Tree::Tuple(all) => (Kind::Tuple(Vec::with_capacity(all.len())), all),
            Tree::List(all) => (Kind::List(PyList::empty(py).unbind()), all),
            Tree::Dict(all) => (Kind::Dict(PyDict::new(py).unbind(), None), all),
            Tree::Object(class, names, fields) => {
                (Kind::Object(class, names, Vec::with_capacity(fields.len())), fields)
            }
        };
        self.open.push(Collection { kind, rest: rest.into_iter() });
        Ok(None)
    }
}

impl Kind {
    fn add(&mut self, py: Python<'_>, value: Py<PyAny>) -> PyResult<()> {
        match self {
            Self::Tuple(all) | Self::Object(_, _, all) => all.push(value),
            Self::List(list) => list.bind(py).append(value)?,
            Self::Dict(dict, key) => match key.take() {
                Some(key) => dict.bind(py).set_item(key, value)?,
                None => *key = Some(value),
            },
        }
        Ok(())
    }

    fn end(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Tuple(all) => Ok(PyTuple::new(py, all)?.into_any().unbind()),
            Self::List(list) => Ok(list.into_any()),
            Self::Dict(dict, _) => Ok(dict.into_any()),
            Self::Object(class, names, mut all) => {
                let fields = PyDict::new(py);
                let arguments = all.split_off(names.len().min(all.len()));
                for (name, value) in names.iter().zip(mem::take(&mut all)) {
                    fields.set_item(PyString::intern(py, name), value)?;
                }
                let module = PyModule::import(py, intern!(py, "curtail_kafka.admin"))?;
                let class = module.getattr(PyString::intern(py, class))?;
                Ok(class.call(PyTuple::new(py, arguments)?, Some(&fields))?.unbind())
            }
        }
    }
}
