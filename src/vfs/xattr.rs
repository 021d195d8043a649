//! Extended attributes of samples: what the sample is and what its metadata says.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::{Ino, Mounted, Node, Vfs, VfsError};
use crate::cache::SampleVerified;
use crate::error::{Error, Result};
use crate::format::metadata::ValueRef;

const PREFIX: &str = "user.datasetrt.";
const FIELD_PREFIX: &str = "user.datasetrt.meta.";
/// Longest value, in bytes; a longer one does not exist.
const MAX_VALUE: usize = 4 << 10;
/// Longest name that the kernel takes, in bytes.
const MAX_NAME: usize = 255;
/// Longest list of names that the kernel takes, in bytes.
const MAX_LIST: usize = 64 << 10;

/// The attributes that every sample has.
#[derive(Clone, Copy)]
enum Fixed {
    CacheId,
    SampleId,
    SourceName,
    Metadata,
    Verified,
}

impl Fixed {
    const ALL: [Self; 5] = [
        Self::CacheId,
        Self::SampleId,
        Self::SourceName,
        Self::Metadata,
        Self::Verified,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::CacheId => "cache_id",
            Self::SampleId => "sample_id",
            Self::SourceName => "source_name",
            Self::Metadata => "metadata",
            Self::Verified => "verified",
        }
    }
}

impl Vfs {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`VfsError::Unsupported`] when attributes are not shown, [`VfsError::NoAttribute`] for a
    /// name that the node does not have or whose value is longer than 4 KiB, and
    /// [`VfsError::NotFound`].
    pub fn getxattr(&self, ino: Ino, name: &OsStr) -> Result<Vec<u8>, VfsError> {
        let (mounted, sample) = self.attributed(ino)?.ok_or(VfsError::NoAttribute)?;
        let name = name.as_bytes();
        let value = if let Some(field) = name.strip_prefix(FIELD_PREFIX.as_bytes()) {
            let schema = &mounted.cache().manifest().schema;
            let column = schema
                .iter()
                .position(|known| known.name.as_bytes() == field);
            match column {
                Some(column) => field_value(mounted, sample, column).map_err(damaged)?,
                None => None,
            }
        } else {
            let rest = name.strip_prefix(PREFIX.as_bytes());
            let fixed = Fixed::ALL
                .into_iter()
                .find(|fixed| rest == Some(fixed.name().as_bytes()));
            match fixed {
                Some(fixed) => fixed_value(mounted, sample, fixed).map_err(damaged)?,
                None => None,
            }
        };
        value.ok_or(VfsError::NoAttribute)
    }

    /// The names of the node's extended attributes, each followed by a NUL byte.
    ///
    /// # Errors
    /// [`VfsError::Unsupported`] when attributes are not shown, and [`VfsError::NotFound`].
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>, VfsError> {
        let Some((mounted, sample)) = self.attributed(ino)? else {
            return Ok(Vec::new());
        };
        let mut list = Vec::new();
        for fixed in Fixed::ALL {
            // Every sample has the last one, and finding its value out reads the record.
            let always = matches!(fixed, Fixed::Verified);
            if always || fixed_value(mounted, sample, fixed).is_ok_and(|value| value.is_some()) {
                push_name(&mut list, PREFIX, fixed.name());
            }
        }
        for (column, field) in mounted.cache().manifest().schema.iter().enumerate() {
            if field_value(mounted, sample, column).is_ok_and(|value| value.is_some()) {
                push_name(&mut list, FIELD_PREFIX, &field.name);
            }
        }
        Ok(list)
    }

    /// The sample that a node is; `None` for a node without attributes.
    fn attributed(&self, ino: Ino) -> Result<Option<(&Mounted, u64)>, VfsError> {
        if !self.options.xattrs {
            return Err(VfsError::Unsupported);
        }
        let Node::Sample(slot, sample) = self.node(ino)? else {
            return Ok(None);
        };
        let mounted = self.mounted(slot)?;
        match sample < mounted.cache().sample_count() {
            true => Ok(Some((mounted, sample))),
            false => Err(VfsError::NotFound),
        }
    }
}

/// Adds a name unless the kernel would not take it.
fn push_name(list: &mut Vec<u8>, prefix: &str, name: &str) {
    let len = prefix.len() + name.len();
    if len <= MAX_NAME && list.len() + len < MAX_LIST && !name.contains('\0') {
        list.extend_from_slice(prefix.as_bytes());
        list.extend_from_slice(name.as_bytes());
        list.push(0);
    }
}

fn damaged(error: Error) -> VfsError {
    VfsError::Damaged(Arc::new(error))
}

fn fixed_value(mounted: &Mounted, sample: u64, fixed: Fixed) -> Result<Option<Vec<u8>>> {
    let cache = mounted.cache();
    let value = match fixed {
        Fixed::CacheId => mounted.entry.cache_id.to_string().into_bytes(),
        Fixed::SampleId => sample.to_string().into_bytes(),
        Fixed::SourceName => cache.manifest().source_name.clone().into_bytes(),
        Fixed::Verified => match cache.sample_verified(sample) {
            SampleVerified::None => b"none".to_vec(),
            SampleVerified::Envelope => b"envelope".to_vec(),
            SampleVerified::Shard => b"shard".to_vec(),
        },
        Fixed::Metadata => {
            // Texts alone tell that the object is too long, without writing it.
            let Some(row) = cache.table()?.row(sample) else {
                return Ok(None);
            };
            let texts = (0..cache.manifest().schema.len()).map(|column| match row.value(column) {
                Ok(Some(ValueRef::String(text))) => text.len(),
                _ => 0,
            });
            if texts.sum::<usize>() > MAX_VALUE {
                return Ok(None);
            }
            let mut json = Vec::new();
            if cache.write_metadata_json(sample, &mut json).is_err() {
                // Also a null has no JSON; a table that is wrong is an error.
                return cache.table().map(|_| None);
            }
            json
        }
    };
    Ok((value.len() <= MAX_VALUE).then_some(value))
}

fn field_value(mounted: &Mounted, sample: u64, column: usize) -> Result<Option<Vec<u8>>> {
    let table = mounted.cache().table()?;
    let row = table.row(sample);
    let value = row.and_then(|row| row.value(column).ok()?);
    let value = value.and_then(spelled);
    table.check()?;
    Ok(value)
}

fn spelled(value: ValueRef<'_>) -> Option<Vec<u8>> {
    let value = match value {
        ValueRef::Bool(value) => value.to_string().into_bytes(),
        ValueRef::Int(value) => value.to_string().into_bytes(),
        ValueRef::Float(value) => format!("{value:?}").into_bytes(),
        ValueRef::String(text) if text.len() <= MAX_VALUE => text.as_bytes().to_vec(),
        ValueRef::String(_) => return None,
    };
    Some(value)
}
