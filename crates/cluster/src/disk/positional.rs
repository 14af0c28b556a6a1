//! Reads and writes at a position of a file. On Windows they move the file's cursor, which nothing uses.

#[cfg(unix)]
pub(super) use unix::{read_at, write_at, write_vectored_at};
#[cfg(windows)]
pub(super) use windows::{read_at, write_at, write_vectored_at};

#[cfg(unix)]
mod unix {
    use std::{
        fs::File,
        io::{self, IoSlice},
    };

    use rustix::{
        buffer::spare_capacity,
        io::{pread, pwrite, pwritev},
    };

    /// Appends what the file has at `position` to `bytes`, at most its spare capacity.
    pub(in crate::disk) fn read_at(
        file: &File,
        bytes: &mut Vec<u8>,
        position: u64,
    ) -> io::Result<usize> {
        Ok(pread(file, spare_capacity(bytes), position)?)
    }

    pub(in crate::disk) fn write_at(file: &File, bytes: &[u8], position: u64) -> io::Result<usize> {
        Ok(pwrite(file, bytes, position)?)
    }

    pub(in crate::disk) fn write_vectored_at(
        file: &File,
        slices: &[IoSlice<'_>],
        position: u64,
    ) -> io::Result<usize> {
        Ok(pwritev(file, slices, position)?)
    }
}

#[cfg(windows)]
mod windows {
    use std::{
        fs::File,
        io::{self, IoSlice},
        os::windows::fs::FileExt as _,
    };

    /// As on Unix. The buffer is filled with zeros first.
    pub(in crate::disk) fn read_at(
        file: &File,
        bytes: &mut Vec<u8>,
        position: u64,
    ) -> io::Result<usize> {
        let start = bytes.len();
        bytes.resize(bytes.capacity(), 0);
        let read = file.seek_read(&mut bytes[start..], position);
        bytes.truncate(start + *read.as_ref().unwrap_or(&0));
        read
    }

    pub(in crate::disk) fn write_at(file: &File, bytes: &[u8], position: u64) -> io::Result<usize> {
        file.seek_write(bytes, position)
    }

    /// Writes the first slice that is not empty.
    pub(in crate::disk) fn write_vectored_at(
        file: &File,
        slices: &[IoSlice<'_>],
        position: u64,
    ) -> io::Result<usize> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        first.map_or(Ok(0), |slice| file.seek_write(slice, position))
    }
}
