//! DescribeLogDirs. Responses of version 5 have cordoned directories (KIP-1066).

use super::{Fields, read_indexes, write_indexes, write_list, write_nullable_list};
use crate::{DecodeError, ErrorCode, Reader, Writer};

/// A request for the log directories of a broker, versions 1 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeLogDirsRequest {
    /// The topics whose replicas are described; `None` for all.
    pub topics: Option<Vec<DescribableLogDirTopic>>,
}

/// One topic of a [`DescribeLogDirsRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribableLogDirTopic {
    /// Topic name.
    pub name: String,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

/// The log directories of a broker, versions 1 to 5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeLogDirsResponse {
    /// Quota throttle, in milliseconds.
    pub throttle_time_ms: i32,
    /// Why nothing is described (version 3 and later).
    pub error: ErrorCode,
    /// The directories.
    pub results: Vec<DescribeLogDirsResult>,
}

/// One log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeLogDirsResult {
    /// KAFKA_STORAGE_ERROR if the directory is offline.
    pub error: ErrorCode,
    /// Absolute path.
    pub log_dir: String,
    /// Replicas in the directory, by topic.
    pub topics: Vec<DescribeLogDirsTopic>,
    /// Size of the volume in bytes (version 4 and later), -1 if unknown.
    pub total_bytes: i64,
    /// Usable bytes of the volume (version 4 and later), -1 if unknown.
    pub usable_bytes: i64,
    /// Whether the directory gets no new replicas (version 5).
    pub is_cordoned: bool,
}

/// The replicas of one topic in a [`DescribeLogDirsResult`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeLogDirsTopic {
    /// Topic name.
    pub name: String,
    /// Replicas by partition.
    pub partitions: Vec<DescribeLogDirsPartition>,
}

/// One replica in a [`DescribeLogDirsResult`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DescribeLogDirsPartition {
    /// Partition index.
    pub index: i32,
    /// Size of its segments in bytes.
    pub size: i64,
    /// Lag behind the high watermark; of a future replica behind the current one.
    pub offset_lag: i64,
    /// Whether the replica will replace the current one after AlterReplicaLogDirs.
    pub is_future: bool,
}

impl Default for DescribeLogDirsResult {
    fn default() -> Self {
        Self {
            error: ErrorCode::NONE,
            log_dir: String::new(),
            topics: Vec::new(),
            total_bytes: -1,
            usable_bytes: -1,
            is_cordoned: false,
        }
    }
}

impl Fields for DescribeLogDirsRequest {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let topics =
            r.nullable_array_of(3, "topics", |r| DescribableLogDirTopic::read(version, r))?;
        r.skip_tagged("DescribeLogDirs request")?;
        Ok(Self { topics })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        write_nullable_list(version, self.topics.as_deref(), w);
        w.no_tags();
    }
}

impl Fields for DescribableLogDirTopic {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = r.string("topic")?.to_owned();
        let partitions = read_indexes("partitions", r)?;
        r.skip_tagged("topics")?;
        Ok(Self { name, partitions })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.string(&self.name);
        write_indexes(&self.partitions, w);
        w.no_tags();
    }
}

impl Fields for DescribeLogDirsResponse {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let throttle_time_ms = r.i32("throttle_time_ms")?;
        let error = if version >= 3 { ErrorCode(r.i16("error_code")?) } else { ErrorCode::NONE };
        let results = r.array_of(4, "results", |r| DescribeLogDirsResult::read(version, r))?;
        r.skip_tagged("DescribeLogDirs response")?;
        Ok(Self { throttle_time_ms, error, results })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.i32(self.throttle_time_ms);
        if version >= 3 {
            w.i16(self.error.0);
        }
        write_list(version, &self.results, w);
        w.no_tags();
    }
}

impl Fields for DescribeLogDirsResult {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let error = ErrorCode(r.i16("error_code")?);
        let log_dir = r.string("log_dir")?.to_owned();
        let topics = r.array_of(3, "topics", |r| DescribeLogDirsTopic::read(version, r))?;
        let (mut total_bytes, mut usable_bytes) = (-1, -1);
        if version >= 4 {
            total_bytes = r.i64("total_bytes")?;
            usable_bytes = r.i64("usable_bytes")?;
        }
        let is_cordoned = version >= 5 && r.bool("is_cordoned")?;
        r.skip_tagged("results")?;
        Ok(Self { error, log_dir, topics, total_bytes, usable_bytes, is_cordoned })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.i16(self.error.0);
        w.string(&self.log_dir);
        write_list(version, &self.topics, w);
        if version >= 4 {
            w.i64(self.total_bytes);
            w.i64(self.usable_bytes);
        }
        if version >= 5 {
            w.bool(self.is_cordoned);
        }
        w.no_tags();
    }
}

impl Fields for DescribeLogDirsTopic {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = r.string("name")?.to_owned();
        let partitions =
            r.array_of(21, "partitions", |r| DescribeLogDirsPartition::read(version, r))?;
        r.skip_tagged("topics")?;
        Ok(Self { name, partitions })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.string(&self.name);
        write_list(version, &self.partitions, w);
        w.no_tags();
    }
}

impl Fields for DescribeLogDirsPartition {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let index = r.i32("partition_index")?;
        let size = r.i64("partition_size")?;
        let offset_lag = r.i64("offset_lag")?;
        let is_future = r.bool("is_future_key")?;
        r.skip_tagged("partitions")?;
        Ok(Self { index, size, offset_lag, is_future })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.i32(self.index);
        w.i64(self.size);
        w.i64(self.offset_lag);
        w.bool(self.is_future);
        w.no_tags();
    }
}
