//! Keys and values of Trogdor's generators, byte for byte.
//!
//! Their random numbers come from `java.util.Random`, which documents its algorithm.

mod java;
#[cfg(test)]
mod tests;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use self::java::Random;
use super::refuse;
use crate::perf::Result;

/// A generator of a specification.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(super) enum Generator {
    /// The same bytes each time: `value` (Base64) repeated up to `size`, or zeros.
    Constant {
        size: usize,
        #[serde(default)]
        value: String,
    },
    /// The record's number, little endian, followed by zeros.
    Sequential {
        size: usize,
        #[serde(default, alias = "startOffset")]
        offset: u64,
    },
    /// Random bytes; the last `padding` of them are constant.
    UniformRandom {
        size: usize,
        #[serde(default)]
        seed: i64,
        #[serde(default)]
        padding: usize,
    },
    /// No payload.
    Null,
    /// A random one of several generators, each with its probability.
    RandomComponent {
        #[serde(default)]
        seed: i64,
        components: Vec<Component>,
    },
    /// The time of the send in milliseconds, then random bytes.
    TimestampRandom {
        size: usize,
        #[serde(default)]
        seed: i64,
    },
    /// The time of the send in milliseconds, then zeros.
    TimestampConstant { size: usize },
    /// As `timestampRandom`, with varying size.
    GaussianTimestampRandom {
        message_size_average: i64,
        #[serde(default)]
        message_size_deviation: f64,
        #[serde(default)]
        messages_until_size_change: u64,
        #[serde(default)]
        seed: i64,
    },
    /// As `timestampConstant`, with varying size.
    GaussianTimestampConstant {
        message_size_average: i64,
        #[serde(default)]
        message_size_deviation: f64,
        #[serde(default)]
        messages_until_size_change: u64,
        #[serde(default)]
        seed: i64,
    },
}

/// A part of a [`Generator::RandomComponent`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Component {
    percent: u32,
    component: Generator,
}

/// Bytes of a timestamp.
const TIME: usize = 8;

/// State of a generator.
#[derive(Clone, Debug)]
pub(super) enum Payloads {
    Constant(Vec<u8>),
    Sequential { size: usize, offset: u64 },
    Uniform { size: usize, seed: i64, padding: Vec<u8> },
    Null,
    Mixed { seed: i64, parts: Vec<(u32, Payloads)> },
    Timed { size: usize, rest: Rest },
    Gaussian { sizes: Sizes, rest: Rest },
}

/// Content after the timestamp.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    Random(i64),
    Zeros,
}

/// Normally distributed sizes; several consecutive records share one size.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    average: i64,
    deviation: f64,
    alike: u64,
    seed: i64,
    size: usize,
    left: u64,
}

impl Payloads {
    /// # Errors
    /// Invalid sizes and probabilities.
    pub(super) fn new(generator: &Generator) -> Result<Self> {
        Ok(match generator {
            Generator::Constant { size, value } => Self::Constant(constant(*size, value)?),
            Generator::Sequential { size, offset } => {
                Self::Sequential { size: *size, offset: *offset }
            }
            Generator::UniformRandom { size, padding, .. } if padding > size => {
                return refuse(format!("padding {padding} is more than the size {size}"));
            }
            Generator::UniformRandom { size, seed, padding } => {
                let mut bytes = vec![0; *padding];
                Random::new(*seed).fill(&mut bytes);
                Self::Uniform { size: *size, seed: *seed, padding: bytes }
            }
            Generator::Null => Self::Null,
            Generator::RandomComponent { seed, components } => mixed(*seed, components)?,
            Generator::TimestampRandom { size, seed } => timed(*size, Rest::Random(*seed))?,
            Generator::TimestampConstant { size } => timed(*size, Rest::Zeros)?,
            Generator::GaussianTimestampRandom {
                message_size_average: average,
                message_size_deviation: deviation,
                messages_until_size_change: alike,
                seed,
            } => {
                let sizes = Sizes::new(*average, *deviation, *alike, *seed)?;
                Self::Gaussian { sizes, rest: Rest::Random(*seed) }
            }
            Generator::GaussianTimestampConstant {
                message_size_average: average,
                message_size_deviation: deviation,
                messages_until_size_change: alike,
                seed,
            } => {
                let sizes = Sizes::new(*average, *deviation, *alike, *seed)?;
                Self::Gaussian { sizes, rest: Rest::Zeros }
            }
        })
    }

    /// The payload of a record, by its number from 0 and the time in milliseconds since 1970; `None` for a
    /// null payload.
    pub(super) fn get(&mut self, position: u64, now_ms: i64) -> Option<Vec<u8>> {
        let at = |seed: &i64| seed.wrapping_add(position as i64);
        Some(match self {
            Self::Constant(bytes) => bytes.clone(),
            Self::Sequential { size, offset } => {
                let mut bytes = vec![0; *size];
                let number = position.wrapping_add(*offset).to_le_bytes();
                let length = number.len().min(*size);
                bytes[..length].copy_from_slice(&number[..length]);
                bytes
            }
            Self::Uniform { size, seed, padding } => {
                let mut bytes = vec![0; *size];
                let (random, rest) = bytes.split_at_mut(*size - padding.len());
                Random::new(at(seed)).fill(random);
                rest.copy_from_slice(padding);
                bytes
            }
            Self::Null => return None,
            Self::Mixed { seed, parts } => {
                let drawn = Random::new(at(seed)).below_hundred();
                let mut sum = 0;
                let part = parts.iter_mut().find(|(percent, _)| {
                    sum += percent;
                    sum > drawn
                });
                return part.and_then(|(_, payloads)| payloads.get(position, now_ms));
            }
            Self::Timed { size, rest } => {
                let mut bytes = vec![0; *size];
                if let Rest::Random(seed) = rest {
                    Random::new(at(seed)).fill(&mut bytes[TIME..]);
                }
                bytes[..TIME].copy_from_slice(&now_ms.to_le_bytes());
                bytes
            }
            Self::Gaussian { sizes, rest } => {
                let mut random = Random::new(at(&sizes.seed));
                let mut bytes = vec![0; sizes.next(&mut random)];
                if let Rest::Random(_) = rest {
                    random.fill(&mut bytes);
                }
                bytes[..TIME].copy_from_slice(&now_ms.to_le_bytes());
                bytes
            }
        })
    }
}

impl Sizes {
    fn new(average: i64, deviation: f64, alike: u64, seed: i64) -> Result<Self> {
        if !deviation.is_finite() || !(0..=1 << 30).contains(&average) {
            return refuse(format!(
                "messageSizeAverage {average} with messageSizeDeviation {deviation} makes no size"
            ));
        }
        Ok(Self { average, deviation, alike, seed, size: 0, left: 0 })
    }

    fn next(&mut self, random: &mut Random) -> usize {
        if self.left == 0 {
            let drawn = (random.gaussian() * self.deviation) as i64 + self.average;
            self.size = usize::try_from(drawn).unwrap_or(0).max(TIME);
            self.left = self.alike.max(1);
        }
        self.left -= 1;
        self.size
    }
}

fn constant(size: usize, value: &str) -> Result<Vec<u8>> {
    let Ok(value) = STANDARD.decode(value) else {
        return refuse(format!("value '{value}': expected Base64"));
    };
    if value.is_empty() {
        return Ok(vec![0; size]);
    }
    Ok(value.into_iter().cycle().take(size).collect())
}

fn timed(size: usize, rest: Rest) -> Result<Payloads> {
    if size < TIME {
        return refuse(format!("size {size}: a payload with a time has at least {TIME} bytes"));
    }
    Ok(Payloads::Timed { size, rest })
}

fn mixed(seed: i64, components: &[Component]) -> Result<Payloads> {
    let sum: u64 = components.iter().map(|part| u64::from(part.percent)).sum();
    if sum != 100 || components.iter().any(|part| part.percent == 0) {
        return refuse(format!(
            "the percents of components must be above 0 and make up 100, not {sum}"
        ));
    }
    let part = |part: &Component| Ok((part.percent, Payloads::new(&part.component)?));
    Ok(Payloads::Mixed { seed, parts: components.iter().map(part).collect::<Result<_>>()? })
}
