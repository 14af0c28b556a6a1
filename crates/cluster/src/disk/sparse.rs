//! The content of a file in memory. Long runs of zeros take no space, like the holes of a sparse
//! file.

/// Size of the blocks that are checked for zeros, in bytes.
const BLOCK: usize = 64;

/// Bytes that can be appended, read and cut.
#[derive(Debug, Default)]
pub(super) struct Sparse {
    len: usize,
    /// The bytes of all runs, concatenated.
    stored: Vec<u8>,
    /// The parts that are not holes, in order.
    runs: Vec<Run>,
}

/// A run of stored bytes; it ends where the next run starts.
#[derive(Debug)]
struct Run {
    /// Position in the file.
    at: usize,
    /// Position in `stored`.
    from: usize,
}

impl From<&[u8]> for Sparse {
    fn from(bytes: &[u8]) -> Self {
        let mut sparse = Self::default();
        sparse.append(bytes);
        sparse
    }
}

impl Sparse {
    /// Length of the file.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds bytes at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(BLOCK) {
            // Checks every byte: without an early exit the loop is a few instructions.
            let is_hole = block.len() == BLOCK && block.iter().fold(0, |all, byte| all | byte) == 0;
            if !is_hole {
                if self.end_of_runs() != Some(self.len) {
                    self.runs.push(Run { at: self.len, from: self.stored.len() });
                }
                self.stored.extend_from_slice(block);
            }
            self.len += block.len();
        }
    }

    /// Returns the end of the last run in the file.
    fn end_of_runs(&self) -> Option<usize> {
        self.runs.last().map(|run| run.at + self.stored.len() - run.from)
    }

    /// Returns up to `len` bytes from `offset`; fewer only at the end of the file.
    pub(super) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let start = offset.min(self.len);
        let end = start.saturating_add(len).min(self.len);
        let first = self.runs.partition_point(|run| run.at <= start).saturating_sub(1);
        let mut bytes = Vec::with_capacity(end - start);
        for (index, run) in self.runs.iter().enumerate().skip(first) {
            if run.at >= end {
                break;
            }
            let stored_end = self.runs.get(index + 1).map_or(self.stored.len(), |next| next.from);
            let run_end = run.at + stored_end - run.from;
            let (from, to) = (start.max(run.at), end.min(run_end));
            if from < to {
                bytes.resize(from - start, 0);
                let at = run.from + from - run.at;
                bytes.extend_from_slice(&self.stored[at..at + to - from]);
            }
        }
        bytes.resize(end - start, 0);
        bytes
    }

    /// Cuts the file; does nothing if it is not longer.
    pub(super) fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        self.len = len;
        while let Some(run) = self.runs.last()
            && self.end_of_runs() > Some(len)
        {
            self.stored.truncate(run.from + len.saturating_sub(run.at));
            if run.at >= len {
                self.runs.pop();
            }
        }
    }
}
